//! Epolls and their entries, without the operations that need an open file.
//!
//! An open file contains the list of the entries that watch it, and each entry refers to its open file. So that the
//! types here do not depend on the type of open files, they are generic over it (`F`).

pub mod interest;
pub mod item;
pub mod items;
pub mod marks;
mod queue;
pub mod ready;
pub mod set;
pub mod watches;
