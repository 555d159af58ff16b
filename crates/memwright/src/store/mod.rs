//! The storage of the pages of an object: the pages by index, and the NUMA policies and the size limit of shared
//! memory. Nothing here depends on an address space.

pub(crate) mod cluster;
pub(crate) mod leaving;
pub(crate) mod page_store;
pub(crate) mod pages;
pub(crate) mod placed;
pub(crate) mod room;
pub(crate) mod runs;
