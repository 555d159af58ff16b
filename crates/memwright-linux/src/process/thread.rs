//! One thread.

use super::Process;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU8, Ordering};

/// Whether a thread runs or waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum RunState {
    /// It runs or stands in a run queue.
    Running,
    /// It waits in a queue or for a deadline.
    Blocked,
}

/// A thread.
pub struct Thread {
    /// The thread id.
    pub id: u32,
    /// The process it belongs to.
    pub process: Arc<Process>,
    run: AtomicU8,
}

impl Thread {
    /// A thread of `process`.
    pub fn new(id: u32, process: Arc<Process>) -> Self {
        Self {
            id,
            process,
            run: AtomicU8::new(RunState::Running as u8),
        }
    }
    /// A signal waits that the thread does not block.
    pub fn signal_pending(&self) -> bool {
        false
    }
    pub(crate) fn prepare_to_block(&self) {
        self.run.store(RunState::Blocked as u8, Ordering::SeqCst);
    }
    pub(crate) fn stay_running(&self) {
        self.run.store(RunState::Running as u8, Ordering::SeqCst);
    }
}
