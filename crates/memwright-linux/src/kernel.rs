//! The kernel object: everything the personality knows about one machine.

use crate::{
    Memory,
    cpio::CpioArchive,
    host::Host,
    manifest::Manifest,
    process::Thread,
    scheduler::Scheduler,
    wait::{WaitError, WaitQueue},
};
use alloc::sync::Arc;

/// One machine with its processes and files.
pub struct Kernel {
    /// The machine.
    pub host: &'static dyn Host,
    /// Physical memory and the memory manager's account.
    pub memory: Arc<Memory>,
    /// What the run was asked to do.
    pub manifest: Manifest,
    /// The tree of files.
    pub mounts: crate::fs::Mounts,
    /// The source of every random number.
    pub random: crate::sync::Lock<crate::random::Random>,
    /// Who runs and who may run.
    pub scheduler: Scheduler,
}

impl Kernel {
    /// Runs the program of the manifest and powers the machine off when it has ended.
    pub fn start(
        host: &'static dyn Host,
        memory: Arc<Memory>,
        manifest: Manifest,
        files: CpioArchive<'static>,
    ) -> ! {
        let _ = (memory, manifest, files);
        host.power_off(0)
    }

    /// Waits as [`Context::wait_until`](crate::context::Context::wait_until) says.
    pub(crate) fn wait<T>(
        &self,
        thread: &Arc<Thread>,
        queues: &[&WaitQueue],
        deadline: Option<u64>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        crate::sync::assert_none_held();
        loop {
            for queue in queues {
                queue.add(thread);
            }
            thread.prepare_to_block();
            let outcome = if let Some(value) = ready() {
                Some(Ok(value))
            } else if thread.signal_pending() {
                Some(Err(WaitError::Interrupted))
            } else if deadline.is_some_and(|deadline| self.host.now() >= deadline) {
                Some(Err(WaitError::TimedOut))
            } else {
                self.scheduler.block(self, thread, deadline);
                None
            };
            thread.stay_running();
            for queue in queues {
                queue.remove(thread);
            }
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }
}
