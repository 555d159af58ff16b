//! Tests of the parts together, on a small machine.

mod copy;
mod frame;
mod gather;
mod handle;
pub(crate) mod machine;
mod model;
mod table;
