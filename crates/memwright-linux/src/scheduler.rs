//! Who runs and who may run.

use crate::{kernel::Kernel, process::Thread};
use alloc::sync::Arc;

/// Run queues and deadlines.
pub struct Scheduler;

impl Scheduler {
    /// Makes a waiting thread runnable.
    pub fn wake(&self, kernel: &Kernel, thread: &Arc<Thread>) {
        let _ = (kernel, thread);
    }
    /// Gives the CPU away until the thread is woken or the deadline passes.
    pub fn block(&self, kernel: &Kernel, thread: &Arc<Thread>, deadline: Option<u64>) {
        let _ = (kernel, thread, deadline);
    }
}
