//! Chooses the runs of published experiments that are repeated after every change. A seed determines the order of the
//! runs, and a time limit their number.

use anyhow::{Result, ensure};

/// The maximum processor time of a slice, in seconds. The bench uses one processor at a time.
const SECONDS: u32 = 40;

/// A run of an experiment with published figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// The name of the page.
    pub page: &'static str,
    /// The label of the run; empty if the experiment has one run.
    pub label: &'static str,
}

/// All runs, each with the processor time, in seconds, for measuring Memwright's columns once.
#[rustfmt::skip]
const COSTS: &[(Unit, u32)] = &[
    (unit("access-scan", "1 GiB"), 9),
    (unit("access-scan", "64 MiB, a thread on another CPU"), 3),
    (unit("async-scan", ""), 9),
    (unit("autonuma", "numa01"), 6),
    (unit("autonuma", "numa02"), 6),
    (unit("fork-tables", ""), 12),
    (unit("growth", "areas"), 6),
    (unit("growth", "cgroups"), 3),
    (unit("growth", "connections"), 3),
    (unit("growth", "depth"), 3),
    (unit("growth", "descriptors"), 3),
    (unit("growth", "directory"), 3),
    (unit("growth", "levels"), 3),
    (unit("growth", "limit"), 5),
    (unit("growth", "mappers"), 6),
    (unit("growth", "memory"), 36),
    (unit("growth", "merged"), 4),
    (unit("growth", "mounts"), 5),
    (unit("growth", "processes"), 3),
    (unit("growth", "swapped"), 4),
    (unit("growth", "waiters"), 12),
    (unit("linux-options", ""), 3),
    (unit("many-areas", ""), 5),
    (unit("merge", ""), 3),
    (unit("metadata", "area"), 2),
    (unit("metadata", "area of a file"), 2),
    (unit("metadata", "descriptor"), 2),
    (unit("metadata", "file in an epoll"), 2),
    (unit("metadata", "file of a tmpfs"), 2),
    (unit("metadata", "open file"), 2),
    (unit("metadata", "page of shared memory"), 2),
    (unit("metadata", "page table"), 2),
    (unit("metadata", "pipe"), 2),
    (unit("metadata", "process"), 2),
    (unit("metadata", "sockets"), 2),
    (unit("metadata", "thread"), 2),
    (unit("numa-hint", "pages on the own node"), 15),
    (unit("numa-hint", "pages on the other node"), 15),
    (unit("numa-hint", "pages on the other node, and the own is full"), 15),
    (unit("protect-loop", "1 thread"), 2),
    (unit("protect-loop", "2 threads on 2 CPUs, one busy"), 2),
    (unit("releases", ""), 4),
    (unit("snapshot-pause", ""), 14),
    (unit("swapin-reuse", ""), 3),
    (unit("working-set", ""), 4),
    (unit("wp-unpopulated", ""), 8),
    (unit("write-after-clear", ""), 8),
    (unit("write-after-protect", ""), 7),
];

const fn unit(page: &'static str, label: &'static str) -> Unit {
    Unit { page, label }
}

/// Returns the runs of a slice. Goes through the runs in an order that depends on the seed, and takes each that fits in
/// the remaining time.
///
/// # Errors
/// If no run fits.
pub fn choose(seed: u64) -> Result<Vec<Unit>> {
    let mut ranked: Vec<(u64, Unit, u32)> = COSTS
        .iter()
        .map(|(unit, cost)| (rank(unit, seed), *unit, *cost))
        .collect();
    ranked.sort_unstable();
    let (mut chosen, mut left) = (Vec::new(), SECONDS);
    for (_, unit, cost) in ranked {
        if cost <= left {
            left -= cost;
            chosen.push(unit);
        }
    }
    ensure!(!chosen.is_empty(), "no run fits into {SECONDS} seconds");
    Ok(chosen)
}

/// Returns the number by which the runs are ordered for a seed: the FNV-1a hash of the seed and the names, mixed once
/// more.
fn rank(unit: &Unit, seed: u64) -> u64 {
    let names = unit.page.bytes().chain([0]).chain(unit.label.bytes());
    let bytes = seed.to_le_bytes().into_iter().chain(names);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

#[cfg(test)]
mod tests {
    use super::super::page::{self, Page};
    use super::*;

    #[test]
    fn every_published_run_has_a_cost() {
        let mut published = Vec::new();
        for name in page::names().unwrap() {
            let page = Page::read(&name).unwrap();
            let labels = page.labels();
            assert!(!labels.is_empty(), "{name}");
            published.extend(labels.iter().map(|label| format!("{name}/{label}")));
        }
        let mut costs: Vec<String> = COSTS
            .iter()
            .map(|(unit, _)| format!("{}/{}", unit.page, unit.label))
            .collect();
        published.sort();
        costs.sort();
        assert_eq!(costs, published);
    }

    #[test]
    fn a_slice_fits_and_every_run_has_its_turn() {
        let mut seen: Vec<Unit> = Vec::new();
        for seed in 0..200 {
            let chosen = choose(seed).unwrap();
            let cost = |unit: &Unit| COSTS.iter().find(|(one, _)| one == unit).unwrap().1;
            let seconds: u32 = chosen.iter().map(cost).sum();
            assert!(seconds <= SECONDS, "{seed}: {seconds}");
            assert_eq!(choose(seed).unwrap(), chosen);
            seen.extend(chosen);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), COSTS.len());
    }
}
