//! What the pages of an object are stored in: pages by index, the placement and the size limit of shared memory.
//! Nothing here knows an address space.

pub(crate) mod cluster;
pub(crate) mod leaving;
pub(crate) mod page_store;
pub(crate) mod pages;
pub(crate) mod placed;
pub(crate) mod room;
pub(crate) mod runs;
