//! System calls: dispatch by one table, and one module per group of calls.
//!
//! ```text
//! call/     an entry of the table, and types of arguments
//! memory/ process/ ipc/ file/ numa/ system/   the calls by group
//! table/    the entries of all calls
//! ```
//!
//! A group refers only to `call` and to the groups before it.

pub mod call;
pub mod described;
pub mod file;
mod ipc;
pub(crate) mod memory;
pub(crate) mod numa;
pub(crate) mod process;
mod strace;
pub(crate) mod system;
pub mod table;

use crate::{
    context::{Arguments, CallResult, CallTables, Context, Handler, Handlers, INDEXED},
    errno::Errno,
    ptrace::Traced,
    scheduler::Work,
};
use call::Status;

/// Serves the system call in the user registers. Returns true if the thread can return to user mode at once, with no
/// register changed other than RAX. Returns false if the thread has work flags to handle.
#[inline]
pub fn serve(context: &Context<'_>) -> bool {
    let (number, arguments) = {
        let regs = &context.registers.state().regs;
        (
            regs.orig_rax,
            [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9],
        )
    };
    let handler = usize::try_from(number)
        .ok()
        .and_then(|number| context.handlers.get().get(number))
        .unwrap_or(&(unknown as Handler));
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
    context.registers.state().regs.rax = rax;
    context.thread.work().is_empty()
}

/// Executes a call that is counted or traced: one that the report lists, or any call under `--strace`.
#[cold]
fn observed(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let kernel = context.kernel;
    let number = context.registers.state().regs.orig_rax;
    let call = table::find(number);
    match call.map_or(Status::Missing, |call| call.status) {
        Status::Real => {}
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

/// Handlers for threads without a trace. Calls with the semantics of Linux are dispatched directly; missing
/// calls pass through the counters.
static DIRECT: Handlers = {
    let mut handlers = OBSERVED;
    let mut row = 0;
    while row < table::CALLS.len() {
        let call = &table::CALLS[row];
        if let Status::Real = call.status {
            handlers[call.number as usize] = call.handler;
        }
        row += 1;
    }
    handlers
};

/// Handlers under `--strace`: every call passes through the counters and the trace.
static TRACED: Handlers = OBSERVED;
const OBSERVED: Handlers = [observed; INDEXED];

/// Handlers for threads whose tracers let them stop at system calls.
static STOPPING: Handlers = [stopping; INDEXED];

/// Executes a call with a number beyond the tables.
#[cold]
fn unknown(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    if core::ptr::eq(context.handlers.get(), context.tables.stopping) {
        stopping(context, arguments)
    } else {
        observed(context, arguments)
    }
}

/// Executes a call of a thread that stops at its calls. At the first stop, the tracer can replace the call and its
/// arguments, or set a result without a call.
#[cold]
fn stopping(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    let traced = Traced::new(
        &context.current,
        &context.registers,
        context.tasks(),
        context.oom(),
    );
    let runs = traced.begin_call();
    let regs = context.registers.state().regs;
    let result = if runs {
        let arguments = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
        let number = usize::try_from(regs.orig_rax).ok();
        let handler = number.and_then(|number| context.tables.usual.get(number));
        handler.unwrap_or(&(observed as Handler))(context, &arguments)
    } else {
        Ok(regs.rax)
    };
    traced.end_call();
    result
}

/// Returns the handlers of a thread's system calls, with or without the trace of `--strace`.
pub(crate) fn handlers(traced: bool) -> &'static CallTables {
    const DIRECT_TABLES: &CallTables = &CallTables {
        usual: &DIRECT,
        stopping: &STOPPING,
    };
    const TRACED_TABLES: &CallTables = &CallTables {
        usual: &TRACED,
        stopping: &STOPPING,
    };
    if traced { TRACED_TABLES } else { DIRECT_TABLES }
}
