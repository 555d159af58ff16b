//! Epolls and their entries, without the operations that need an open file.
//!
//! An open file has the list of the entries that watch it, and an entry refers to the open file. So the types here have
//! the type of open files, `F`, as a parameter.

pub mod interest;
pub mod item;
pub mod items;
pub mod marks;
mod queue;
pub mod ready;
pub mod set;
pub mod watches;
