//! Sends the invalidations of a gather to the CPUs.

use super::GatherCounts;
use crate::addr::CpuSet;
use crate::machine::{Invalidation, Machine};
use crate::root::Table;
use crate::sync::{Step, Threads, step};

/// Invalidates `what` on this CPU if it has the table loaded. If `everywhere` is true, also invalidates it on every
/// other CPU that has the table loaded. `pages` is the number of translations in `what`, or 0 for a full invalidation.
#[cfg_attr(feature = "inline", inline(always))]
pub(super) fn send<M: Machine>(
    table: &Table<M>,
    counts: &mut GatherCounts,
    loaded: CpuSet,
    what: &[Invalidation],
    pages: u64,
    everywhere: bool,
) {
    let machine = table.frames().machine();
    let cpu = M::Threads::cpu();
    step::<M::Threads>(Step::Invalidate);
    let others = loaded.without(cpu);
    if others.is_empty() {
        if loaded.is_empty() {
            counts.elided_not_loaded += 1;
        } else {
            send_here(machine, counts, what, pages);
        }
        return;
    }
    if loaded.contains(cpu) {
        send_here(machine, counts, what, pages);
    }
    if !everywhere {
        counts.elided_grew += 1;
    } else {
        send_remote(table, counts, others, what);
    }
}

/// Invalidates `what` on this CPU, and counts a local flush.
#[cfg_attr(feature = "inline", inline(always))]
fn send_here<M: Machine>(
    machine: &M,
    counts: &mut GatherCounts,
    what: &[Invalidation],
    pages: u64,
) {
    counts.local = counts.local.wrapping_add(1);
    counts.local_pages = counts.local_pages.wrapping_add(pages);
    for what in what {
        machine.invalidate_local(what);
    }
}

#[cold]
fn send_remote<M: Machine>(
    table: &Table<M>,
    counts: &mut GatherCounts,
    others: CpuSet,
    what: &[Invalidation],
) {
    counts.remote += 1;
    counts.interrupted += others.len();
    let machine = table.frames().machine();
    machine.invalidate_remote(others, table.root(), what);
}
