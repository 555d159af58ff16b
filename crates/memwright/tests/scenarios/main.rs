//! Tests of operations on the memory of programs, on the simulated machine. Its CPUs keep stale translations, so a
//! missing flush leads to a wrong byte. Every scenario ends with an audit and a check that all frames are free.

// The tests run on a host, where allocations of the heap do not fail.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![cfg_attr(
    not(all(
        feature = "huge",
        feature = "objects",
        feature = "swap",
        feature = "tracking",
        feature = "uffd"
    )),
    allow(dead_code, reason = "helpers of the tests that need these features")
)]

mod absent;
#[cfg(feature = "objects")]
mod advise;
#[cfg(all(feature = "objects", feature = "trace"))]
mod cpus;
#[cfg(all(feature = "objects", feature = "swap"))]
mod cut;
#[cfg(all(
    feature = "merge",
    feature = "numa",
    feature = "objects",
    feature = "swap",
    feature = "uffd"
))]
mod failures;
mod faults;
#[cfg(feature = "huge")]
mod folios;
#[cfg(feature = "objects")]
mod fork;
#[cfg(feature = "huge")]
mod huge;
#[cfg(feature = "hugetlb")]
mod hugetlb;
mod limits;
#[cfg(feature = "objects")]
mod locks;
#[cfg(all(
    feature = "huge",
    feature = "merge",
    feature = "objects",
    feature = "swap",
    feature = "tracking",
    feature = "uffd"
))]
mod merge;
mod names;
#[cfg(feature = "objects")]
mod objects;
#[cfg(all(
    feature = "huge",
    feature = "swap",
    feature = "tracking",
    feature = "uffd"
))]
mod overlooked;
#[cfg(all(
    feature = "huge",
    feature = "objects",
    feature = "tracking",
    feature = "uffd"
))]
mod physical;
#[cfg(feature = "objects")]
mod protect;
#[cfg(all(feature = "objects", feature = "uffd"))]
mod remap;
#[cfg(all(
    feature = "huge",
    feature = "objects",
    feature = "swap",
    feature = "uffd"
))]
mod room;
#[cfg(all(
    feature = "huge",
    feature = "hugetlb",
    feature = "merge",
    feature = "numa",
    feature = "share",
    feature = "swap",
    feature = "tracking",
    feature = "uffd"
))]
mod rows;
#[cfg(all(feature = "tracking", feature = "uffd"))]
mod scan_room;
mod setup;
#[cfg(all(
    feature = "objects",
    feature = "share",
    feature = "swap",
    feature = "uffd"
))]
// On the other architectures, forks copy all entries.
#[cfg(not(any(simulated = "aarch64", simulated = "riscv64")))]
mod share;
#[cfg(all(
    feature = "huge",
    feature = "objects",
    feature = "swap",
    feature = "uffd"
))]
mod shared_folio;
#[cfg(all(feature = "huge", feature = "objects"))]
mod shared_huge;
#[cfg(all(feature = "huge", feature = "objects"))]
mod split;
#[cfg(all(feature = "swap", feature = "uffd"))]
mod swap;
#[cfg(all(
    feature = "huge",
    feature = "objects",
    feature = "swap",
    feature = "uffd"
))]
mod swap_folio;
#[cfg(all(
    feature = "huge",
    feature = "objects",
    feature = "swap",
    feature = "uffd"
))]
mod swap_objects;
#[cfg(all(
    feature = "huge",
    feature = "objects",
    feature = "swap",
    feature = "uffd"
))]
mod swap_shared;
#[cfg(all(feature = "objects", feature = "tracking"))]
mod track;
#[cfg(all(feature = "objects", feature = "tracking", feature = "uffd"))]
mod uffd;
#[cfg(feature = "uffd")]
mod uffd_events;
#[cfg(all(feature = "huge", feature = "tracking", feature = "uffd"))]
mod uffd_huge;
#[cfg(all(
    feature = "huge",
    feature = "objects",
    feature = "swap",
    feature = "tracking",
    feature = "uffd"
))]
mod uffd_rwp;
mod world;
#[cfg(all(feature = "objects", feature = "swap", feature = "uffd"))]
mod written_back;
