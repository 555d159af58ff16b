//! System calls: one module per group, one table for all.

pub mod described;
pub mod file;
pub(crate) mod futex;
pub(crate) mod hugetlb;
pub(crate) mod identity;
mod ipc;
pub(crate) mod keys;
pub(crate) mod membarrier;
pub(crate) mod memory;
pub(crate) mod numa;
pub(crate) mod process;
pub(crate) mod protect;
pub(crate) mod ptrace;
pub(crate) mod remap_pages;
pub(crate) mod scheduling;
pub(crate) mod semaphores;
pub(crate) mod shared_memory;
pub(crate) mod signal;
mod strace;
pub(crate) mod swap;
pub(crate) mod system;
pub mod table;
pub(crate) mod time;

pub use crate::context::{Arguments, CallResult, Handler};
use crate::{context::Context, errno::Errno, scheduler::Work};
use table::Status;

/// Serves the system call in the user registers. Returns true if the thread can return to user mode at once, with no
/// register changed other than RAX. Returns false if the thread has work flags to handle.
#[inline]
pub fn serve(context: &Context<'_>) -> bool {
    let (number, arguments) = {
        let regs = &context.state().regs;
        (
            regs.orig_rax,
            [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9],
        )
    };
    let handler = usize::try_from(number)
        .ok()
        .and_then(|number| context.handlers.get(number))
        .unwrap_or(&(observed as Handler));
    let result = handler(context, &arguments);
    let rax = match result {
        Ok(value) => value,
        Err(errno) => {
            if errno >= Errno::ERESTARTSYS {
                // Signal handling turns this into a restart or EINTR.
                context.thread.set_work(Work::SIGNAL, true);
            }
            errno.as_result()
        }
    };
    context.state().regs.rax = rax;
    context.thread.work().is_empty()
}

/// Executes a call that is counted or traced: one that the report lists, or any call under `--strace`.
#[cold]
fn observed(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let kernel = context.kernel;
    let number = context.state().regs.orig_rax;
    let call = table::find(number);
    match call.map_or(Status::Missing, |call| call.status) {
        Status::Real => {}
        Status::Stub => {
            let name = call.map_or("unknown", |call| call.name);
            kernel.calls.count_stub(name);
        }
        Status::Missing => kernel.calls.count_missing(number, call.is_some()),
    }
    if !kernel.manifest.system_calls {
        return call.map_or(Err(Errno::ENOSYS), |call| {
            (call.handler)(context, arguments)
        });
    }
    let before = strace::describe(context, number, call, arguments);
    let result = call.map_or(Err(Errno::ENOSYS), |call| {
        (call.handler)(context, arguments)
    });
    strace::finish(context, before, call, &result);
    result
}

/// The handler of all calls that are not implemented.
pub(crate) fn missing(_context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    Err(Errno::ENOSYS)
}

/// Converts an argument to a signed 32-bit number.
pub(crate) const fn int(argument: u64) -> i32 {
    argument as i32
}
