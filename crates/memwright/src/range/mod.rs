//! Operations on the entries of a range, or on every entry that maps a page: reverse mapping, zapping, removal, change
//! of flags, and merging of pages with equal contents.

pub(crate) mod alike;
pub(crate) mod flags;
pub(crate) mod mappings;
pub(crate) mod remove;
#[cfg(any(feature = "huge", feature = "numa"))]
pub(crate) mod rmap;
pub(crate) mod zap;
