//! Processes and threads.

mod thread;

pub use thread::{RunState, Thread};

use crate::{
    Space,
    fs::{FileTable, FsContext},
    sync::{Lock, Rank},
};
use alloc::sync::Arc;

/// A process: what its threads share.
pub struct Process {
    /// The process id; that of its first thread.
    pub id: u32,
    space: Lock<Arc<Space>>,
    files: Lock<Arc<FileTable>>,
    fs: Lock<Arc<FsContext>>,
}

impl Process {
    /// A process with these parts.
    pub fn new(id: u32, space: Arc<Space>, files: Arc<FileTable>, fs: Arc<FsContext>) -> Self {
        Self {
            id,
            space: Lock::new(Rank::Leaf, space),
            files: Lock::new(Rank::Leaf, files),
            fs: Lock::new(Rank::Leaf, fs),
        }
    }
    /// The address space.
    pub fn space(&self) -> Arc<Space> {
        self.space.lock().clone()
    }
    /// The descriptor table.
    pub fn files(&self) -> Arc<FileTable> {
        self.files.lock().clone()
    }
    /// Root, working directory and mask.
    pub fn fs(&self) -> Arc<FsContext> {
        self.fs.lock().clone()
    }
}
