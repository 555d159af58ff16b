//! The map of areas, which records the addresses that a process may use, with their rights and backing.
//!
//! This module is independent of page tables. An [`Area`](area::Area) is a run of pages with one set of rights, one
//! set of flags and one backing. The map keeps areas sorted and disjoint, splits and merges them, and finds free
//! ranges. The rules are those of Linux 7.2 `mm/vma.c`.

pub(crate) mod anon_vma;
pub(crate) mod area;
pub(crate) mod bin;
pub(crate) mod huge;
pub(crate) mod idle;
pub(crate) mod map;
pub(crate) mod moved;
mod order;
pub(crate) mod room;
#[cfg(test)]
mod tests;
pub(crate) mod writable;
pub(crate) mod written;
