//! Epolls and their entries, without the operations that need an open file.
//!
//! An open file has the list of the entries that watch it, and each of these entries refers to the open file. The types
//! here are therefore generic over the type of open files, `F`.

pub mod interest;
pub mod item;
pub mod items;
pub mod marks;
mod queue;
pub mod ready;
pub mod set;
pub mod watches;
