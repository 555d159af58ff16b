//! The storage of an object's pages: the store of pages by index, and, for shared memory, NUMA policies and the limit
//! of a mount. No module here depends on an address space.

pub(crate) mod cluster;
pub(crate) mod leaving;
pub(crate) mod look_up;
pub(crate) mod page_store;
pub(crate) mod pages;
pub(crate) mod placed;
pub(crate) mod room;
pub(crate) mod runs;
