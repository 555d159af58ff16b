//! Regular files: the file operations, and changes of the contents.

mod contents;
mod file;
mod seals;

pub use crate::fs::{body::regular::Regular, node::describe::describe_object, types::seals::Seals};
pub use file::RegularFile;
pub use seals::WritableMapping;
