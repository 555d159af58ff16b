//! Operations on address spaces: one file per operation.

pub(crate) mod access;
pub(crate) mod advise;
#[cfg_attr(not(feature = "huge"), path = "advise_huge_off.rs")]
mod advise_huge;
#[cfg_attr(not(feature = "huge"), path = "align_huge_off.rs")]
mod align_huge;
pub(crate) mod discard;
pub(crate) mod exec_gain;
pub(crate) mod exit;
pub(crate) mod fork;
#[cfg_attr(not(feature = "reclaim"), path = "free_off.rs")]
mod free;
pub(crate) mod keys;
pub(crate) mod lock;
pub(crate) mod map;
pub(crate) mod name;
#[cfg_attr(not(feature = "share"), path = "own_tables_off.rs")]
mod own_tables;
#[cfg_attr(not(feature = "reclaim"), path = "page_out_off.rs")]
mod page_out;
#[cfg_attr(not(feature = "objects"), path = "physical_off.rs")]
pub(crate) mod physical;
#[cfg_attr(not(feature = "hugetlb"), path = "place_hugetlb_off.rs")]
mod place_hugetlb;
pub(crate) mod populate;
pub(crate) mod protect;
pub(crate) mod query;
pub(crate) mod reap;
pub(crate) mod remap;
pub(crate) mod resident;
pub(crate) mod seal;
#[cfg_attr(not(feature = "share"), path = "share_tables_off.rs")]
mod share_tables;
pub(crate) mod survey;
#[cfg_attr(not(feature = "swap"), path = "swap_off.rs")]
pub(crate) mod swap;
pub(crate) mod sync;
pub(crate) mod unmap;
