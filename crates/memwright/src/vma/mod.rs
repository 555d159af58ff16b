//! The map of areas: the addresses that a process may use, with their rights and backing.
//!
//! This module is independent of page tables. An [`Area`] is a run of pages with one set of rights, one set of flags
//! and one backing. The map keeps areas sorted and disjoint, splits and merges them, and finds free ranges. The rules
//! are those of Linux 7.2 `mm/vma.c`.

mod anon_vma;
mod area;
mod bin;
mod map;
mod room;

pub(crate) use anon_vma::{AnonVma, AnonVmaCell};
pub use area::{Area, AreaFlags, Backed, Rights};
pub(crate) use bin::AreaBin;
pub(crate) use map::{AreaMap, Position};
pub(crate) use room::STACK_GUARD_PAGES;

#[cfg(test)]
mod tests;
