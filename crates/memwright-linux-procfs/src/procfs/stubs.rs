//! The list of all values in `/proc` and `/sys` that do not reflect kernel state.

use crate::procfs::{
    node::stub::Stub,
    process,
    system::{
        cgroup, cpu, file_limits, general, huge, lock_stat, net, nodes, processors, unix_sockets,
        vm,
    },
};

/// The stubs of each module.
static ALL: &[&[&Stub]] = &[
    general::STUBS,
    vm::STUBS,
    cpu::STUBS,
    process::SMAPS_STUBS,
    process::STATUS_STUBS,
    process::STAT_STUBS,
    process::MOUNTS_STUBS,
    cgroup::STUBS,
    file_limits::STUBS,
    lock_stat::STUBS,
    huge::STUBS,
    net::STUBS,
    unix_sockets::STUBS,
    nodes::STUBS,
    processors::STUBS,
];

/// Iterates over all stubs.
pub fn all() -> impl Iterator<Item = &'static Stub> {
    ALL.iter().copied().flatten().copied()
}

#[cfg(test)]
mod tests {
    use super::all;

    #[test]
    fn every_stub_is_declared_once_with_a_sentence() {
        let mut seen = alloc::collections::BTreeSet::new();
        for stub in all() {
            assert!(seen.insert((stub.file, stub.field)), "{stub:?}");
            assert!(
                stub.file.starts_with('/') && stub.reason.ends_with('.'),
                "{stub:?}"
            );
        }
        assert!(seen.len() > 60, "{}", seen.len());
    }
}
