//! Reclaim: selecting pages, writing them to swap or back to their files, and freeing their frames.

pub(crate) mod effort;
pub(crate) mod lazy;
pub(crate) mod out;
pub(crate) mod out_object;
#[cfg(feature = "swap")]
pub(crate) mod shed;
pub(crate) mod unused;
