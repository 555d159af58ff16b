//! Types and settings that the layers above share: errors, rows of the account, trace events, policies, and the small
//! values in areas and address spaces. No module here depends on an address space.

pub(crate) mod access;
pub(crate) mod advice;
pub(crate) mod area_name;
pub(crate) mod blocks;
#[cfg(feature = "merge")]
pub(crate) mod chains;
#[cfg(feature = "merge")]
pub(crate) mod digest_index;
pub(crate) mod error;
pub(crate) mod error_text;
pub(crate) mod faulted_in;
pub(crate) mod folio_orders;
pub(crate) mod folio_split;
pub(crate) mod folio_use;
pub(crate) mod huge;
#[cfg_attr(not(feature = "huge"), path = "huge_choice_off.rs")]
mod huge_choice;
pub(crate) mod huge_settings;
pub(crate) mod interval_tree;
pub(crate) mod layout;
pub(crate) mod mdwe;
pub(crate) mod memcg;
pub(crate) mod merge;
pub(crate) mod migration;
#[cfg_attr(not(feature = "uffd"), path = "notices_off.rs")]
pub(crate) mod notices;
#[cfg_attr(not(feature = "numa"), path = "numa_pace_off.rs")]
pub(crate) mod numa_pace;
#[cfg_attr(not(feature = "numa"), path = "numa_policies_off.rs")]
pub(crate) mod numa_policies;
pub(crate) mod numa_policy;
pub(crate) mod policy;
pub(crate) mod protection_keys;
pub(crate) mod purpose;
pub(crate) mod rights;
pub(crate) mod scan;
pub(crate) mod settled;
pub(crate) mod size_settings;
pub(crate) mod stats;
#[cfg_attr(not(feature = "swap"), path = "swap_window_off.rs")]
pub(crate) mod swap_window;
pub(crate) mod trace;
pub(crate) mod uffd;
