//! Tests of operations on the memory of programs, on the simulated machine. Its CPUs keep stale translations, so a
//! missing flush leads to a wrong byte. Every scenario ends with an audit and a check that all frames are free.

// The tests run on a host, where allocations of the heap do not fail.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod advise;
mod cpus;
#[cfg(all(feature = "merge", feature = "numa", feature = "uffd"))]
mod failures;
mod faults;
mod folios;
mod fork;
mod huge;
mod hugetlb;
mod limits;
mod locks;
#[cfg(all(feature = "merge", feature = "uffd"))]
mod merge;
mod names;
mod objects;
#[cfg(feature = "uffd")]
mod overlooked;
#[cfg(feature = "uffd")]
mod physical;
mod protect;
#[cfg(feature = "uffd")]
mod remap;
#[cfg(feature = "uffd")]
mod room;
#[cfg(all(feature = "merge", feature = "numa", feature = "uffd"))]
mod rows;
#[cfg(feature = "uffd")]
mod scan_room;
mod setup;
#[cfg(feature = "uffd")]
mod share;
#[cfg(feature = "uffd")]
mod shared_folio;
mod shared_huge;
mod split;
#[cfg(feature = "uffd")]
mod swap;
#[cfg(feature = "uffd")]
mod swap_folio;
#[cfg(feature = "uffd")]
mod swap_objects;
#[cfg(feature = "uffd")]
mod swap_shared;
mod track;
#[cfg(feature = "uffd")]
mod uffd;
#[cfg(feature = "uffd")]
mod uffd_events;
#[cfg(feature = "uffd")]
mod uffd_huge;
#[cfg(feature = "uffd")]
mod uffd_rwp;
mod world;
#[cfg(feature = "uffd")]
mod written_back;
