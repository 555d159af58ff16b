//! The map of areas: which addresses a process may use, with what rights, backed by what.
//!
//! Nothing here knows a page table. An [`Area`] is a run of pages with one set of rights, one set of
//! flags and one backing; the map keeps them sorted and disjoint, splits and merges them, and
//! finds room. The decisions are those of Linux 7.2 `mm/vma.c`.

mod area;
mod bin;
mod lineage;
mod map;
mod room;

pub use area::{Area, AreaFlags, Backed, Rights};
pub(crate) use bin::AreaBin;
pub(crate) use lineage::{Lineage, LineageCell};
pub(crate) use map::{AreaMap, Position};
pub(crate) use room::STACK_GUARD_PAGES;

#[cfg(test)]
mod tests;
