//! Reclaim: which pages leave memory, and how they are written to swap.

pub(crate) mod effort;
pub(crate) mod lazy;
pub(crate) mod out;
pub(crate) mod out_object;
pub(crate) mod shed;
pub(crate) mod unused;
