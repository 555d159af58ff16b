//! Collapsing small pages into huge pages, and splitting folios.

pub(crate) mod collapse;
pub(crate) mod collapse_object;
pub(crate) mod split;
