//! Tests of operations on the memory of programs, on the simulated machine. Its CPUs keep stale translations, so a
//! missing flush leads to a wrong byte. Every scenario ends with an audit and a check that all frames are free.

// The tests run on a host, where allocations of the heap do not fail.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![cfg_attr(
    not(all(feature = "swap", feature = "uffd")),
    allow(dead_code, reason = "helpers of the tests that need these features")
)]

mod advise;
#[cfg(feature = "trace")]
mod cpus;
#[cfg(all(
    feature = "merge",
    feature = "numa",
    feature = "swap",
    feature = "uffd"
))]
mod failures;
mod faults;
mod folios;
mod fork;
mod huge;
mod hugetlb;
mod limits;
mod locks;
#[cfg(all(feature = "merge", feature = "swap", feature = "uffd"))]
mod merge;
mod names;
mod objects;
#[cfg(all(feature = "swap", feature = "uffd"))]
mod overlooked;
#[cfg(feature = "uffd")]
mod physical;
mod protect;
#[cfg(feature = "uffd")]
mod remap;
#[cfg(all(feature = "swap", feature = "uffd"))]
mod room;
#[cfg(all(
    feature = "merge",
    feature = "numa",
    feature = "swap",
    feature = "uffd"
))]
mod rows;
#[cfg(feature = "uffd")]
mod scan_room;
mod setup;
#[cfg(all(feature = "swap", feature = "uffd"))]
// Its forks copy all entries.
#[cfg(not(any(simulated = "aarch64", simulated = "riscv64")))]
mod share;
#[cfg(all(feature = "swap", feature = "uffd"))]
mod shared_folio;
mod shared_huge;
mod split;
#[cfg(all(feature = "swap", feature = "uffd"))]
mod swap;
#[cfg(all(feature = "swap", feature = "uffd"))]
mod swap_folio;
#[cfg(all(feature = "swap", feature = "uffd"))]
mod swap_objects;
#[cfg(all(feature = "swap", feature = "uffd"))]
mod swap_shared;
mod track;
#[cfg(feature = "uffd")]
mod uffd;
#[cfg(feature = "uffd")]
mod uffd_events;
#[cfg(feature = "uffd")]
mod uffd_huge;
#[cfg(all(feature = "swap", feature = "uffd"))]
mod uffd_rwp;
mod world;
#[cfg(all(feature = "swap", feature = "uffd"))]
mod written_back;
