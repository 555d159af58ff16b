//! Boot: from the entry by the virtual machine monitor to the personality.

pub mod entry;
pub mod memory_map;
pub mod pvh;
pub mod secondary;
mod start;

pub use start::{memory_contains, setup_processor};
