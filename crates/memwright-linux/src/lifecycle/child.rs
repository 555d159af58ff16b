//! Starts a new thread or process.

use crate::{
    lifecycle::{CloneFlags, CloneRequest},
    ptrace::{Event, Traced, attach_child},
};
use alloc::sync::Arc;
use memwright_linux_memory::oom::OomKiller;
use memwright_linux_sched::wait::Interest;
use memwright_linux_tasks::process::{Process, Thread};

/// A new thread, or a new process with its first thread, which does not run yet.
#[must_use]
pub struct Child<'a> {
    pub(super) request: &'a CloneRequest,
    pub(super) thread: Arc<Thread>,
    /// The new process; `None` for a thread of the caller's process.
    pub(super) process: Option<Arc<Process>>,
}

impl Child<'_> {
    /// Starts the child, reports it to the tracer of the calling thread, and, for `vfork`, waits until the child
    /// releases the address space. Returns the child's id.
    pub(crate) fn start(self, traced: &Traced<'_>, oom: &OomKiller) -> u64 {
        let Self {
            request,
            thread,
            process,
        } = self;
        let (caller, id) = (traced.current.thread, thread.id());
        let event = request.event().filter(|event| traced.stops_at(*event));
        if event.is_some() || request.flags.contains(CloneFlags::PTRACE) {
            attach_child(caller, &thread);
        }
        caller.process.tasks.scheduler.start(&thread);
        drop(thread);
        if let Some(event) = event {
            traced.event(event, id.into());
        }
        if let Some(child) = process.filter(|_| request.flags.contains(CloneFlags::VFORK)) {
            let returned = || (!child.borrows_space()).then_some(());
            // The wait ends early only if the caller is killed.
            let queues = [&child.space_returned];
            let _ = oom.wait(caller, &queues, None, Interest::Fatal, returned);
            traced.event(Event::VforkDone, id.into());
        }
        id.into()
    }
}
