//! Operations on the entries of a range, or on every entry that maps a page: reverse mapping, zapping, removal, flags.

pub(crate) mod flags;
pub(crate) mod mappings;
pub(crate) mod remove;
pub(crate) mod rmap;
pub(crate) mod zap;
