//! Tests of this crate's modules together, on a small machine.

mod copy;
mod folio;
mod frame;
mod gather;
mod handle;
mod invalidation;
pub(crate) mod machine;
mod model;
mod pages;
mod setup;
mod table;
