//! Tests of operations on the memory of programs, on the simulated machine. Its CPUs keep stale translations, so a
//! missing flush leads to a wrong byte. Every scenario ends with an audit and a check that all frames are free.

// The tests run on a host, where allocations of the heap do not fail.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod advise;
mod cpus;
#[cfg(feature = "merge")]
mod failures;
mod faults;
mod folios;
mod fork;
mod huge;
mod hugetlb;
mod limits;
mod locks;
#[cfg(feature = "merge")]
mod merge;
mod names;
mod objects;
mod overlooked;
mod physical;
mod protect;
mod remap;
mod room;
#[cfg(feature = "merge")]
mod rows;
mod scan_room;
mod setup;
mod share;
mod shared_folio;
mod shared_huge;
mod split;
mod swap;
mod swap_folio;
mod swap_objects;
mod swap_shared;
mod track;
mod uffd;
mod uffd_events;
mod uffd_huge;
mod uffd_rwp;
mod world;
mod written_back;
