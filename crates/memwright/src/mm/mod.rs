//! The state of the memory manager: one [`Memory`](memory::Memory) per machine, one [`Core`](core::Core) per address
//! space, and the objects that areas map. Also the operations that only read or count this state.

pub(crate) mod account;
pub(crate) mod areas;
#[cfg_attr(not(feature = "objects"), path = "attachment_off.rs")]
pub(crate) mod attachment;
pub(crate) mod check;
pub(crate) mod check_key;
pub(crate) mod check_seal;
pub(crate) mod commit;
pub(crate) mod core;
#[cfg_attr(not(feature = "huge"), path = "cut_off.rs")]
pub(crate) mod cut;
#[cfg(feature = "objects")]
pub(crate) mod device;
pub(crate) mod faulted_in;
#[cfg_attr(not(feature = "huge"), path = "huge_off.rs")]
pub(crate) mod huge;
#[cfg_attr(not(feature = "hugetlb"), path = "huge_file_off.rs")]
pub(crate) mod huge_file;
#[cfg_attr(not(feature = "huge"), path = "largest_folio_off.rs")]
pub(crate) mod largest_folio;
pub(crate) mod mappings;
pub(crate) mod memory;
#[cfg(feature = "merge")]
pub(crate) mod merged_places;
#[cfg_attr(not(feature = "merge"), path = "merging_off.rs")]
pub(crate) mod merging;
pub(crate) mod object;
#[cfg_attr(not(feature = "share"), path = "shared_tables_off.rs")]
mod shared_tables;
pub(crate) mod space;
#[cfg_attr(
    not(any(feature = "huge", feature = "numa", feature = "share")),
    path = "spaces_off.rs"
)]
pub(crate) mod spaces;
#[cfg_attr(not(feature = "hugetlb"), path = "subpool_off.rs")]
pub(crate) mod subpool;
#[cfg(feature = "swap")]
pub(crate) mod swap_folio;
#[cfg_attr(not(feature = "swap"), path = "swapping_off.rs")]
pub(crate) mod swapping;
#[cfg_attr(not(feature = "uffd"), path = "tag_off.rs")]
pub(crate) mod tag;
pub(crate) mod theme;
#[cfg_attr(not(feature = "trace"), path = "tracing_off.rs")]
mod tracing;
