//! Where a kernel's instructions go: by function, with what each called.

pub mod difference;
pub mod matching;
pub mod raw;
pub mod symbols;
pub mod table;
pub mod tree;
