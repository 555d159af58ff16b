//! Files.

/// Placeholder of the descriptor table.
#[derive(Default)]
pub struct FileTable;

/// Placeholder of root, working directory and mask.
#[derive(Default)]
pub struct FsContext;
