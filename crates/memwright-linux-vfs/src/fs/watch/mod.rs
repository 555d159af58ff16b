//! Epolls and their entries, without the operations that need an open file.
//!
//! An open file contains the list of the entries that watch it, and an entry refers to its open file. The types here
//! are generic over the type `F` of open files, so that they do not depend on it.

pub mod interest;
pub mod item;
pub mod items;
pub mod marks;
mod queue;
pub mod ready;
pub mod set;
pub mod watches;
