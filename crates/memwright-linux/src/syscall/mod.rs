//! System calls: one table for dispatch, and one module for each group of calls.
//!
//! ```text
//! call/     an entry of the table, and types of arguments
//! memory/ process/ ipc/ file/ numa/ system/   the calls by group
//! table/    the entries of all calls
//! ```
//!
//! A group uses only `call` and the groups that precede it in this list.

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
    ptrace::Traced,
};
use call::Status;
use memwright_linux_abi::errno::Errno;
use memwright_linux_sched::scheduler::Work;

impl Context<'_> {
    /// Executes the system call that the user registers contain. Returns true if the thread can return to user mode at
    /// once; only RAX has changed in this case. Returns false if the thread has to handle a [`Work`] flag first.
    #[inline]
    pub(crate) fn serve(&self) -> bool {
        let (number, arguments) = {
            let regs = &self.registers.state().regs;
            (
                regs.orig_rax,
                [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9],
            )
        };
        let handler = usize::try_from(number)
            .ok()
            .and_then(|number| self.handlers.get().get(number))
            .unwrap_or(&UNKNOWN);
        let result = handler(self, &arguments);
        let rax = match result {
            Ok(value) => value,
            Err(errno) => {
                if errno >= Errno::ERESTARTSYS {
                    // Signal handling restarts the call, or replaces this error by EINTR.
                    self.current.thread.set_work(Work::SIGNAL, true);
                }
                errno.as_result()
            }
        };
        self.registers.state().regs.rax = rax;
        self.current.thread.work().is_empty()
    }

    /// Executes a call that is counted or traced: a call that the report lists, or any call with `--strace`.
    #[cold]
    fn observe(&self, arguments: &Arguments) -> CallResult {
        let kernel = self.kernel;
        let number = self.registers.state().regs.orig_rax;
        let call = table::find(number);
        match call.map_or(Status::Missing, |call| call.status) {
            Status::Real => {}
            Status::Missing => kernel.calls.count_missing(number, call.is_some()),
        }
        let execute = || call.map_or(Err(Errno::ENOSYS), |call| (call.handler)(self, arguments));
        if !kernel.manifest.system_calls {
            return execute();
        }
        kernel.host.pause_clock();
        let before = self.current.with_space(|space| {
            strace::describe(self.current.thread.id(), space, number, call, arguments)
        });
        kernel.host.resume_clock();
        let result = execute();
        kernel.host.pause_clock();
        strace::finish(kernel.host, before, call, &result);
        kernel.host.resume_clock();
        result
    }

    /// Executes a call whose number is beyond the handler tables.
    #[cold]
    fn execute_unknown(&self, arguments: &Arguments) -> CallResult {
        if core::ptr::eq(self.handlers.get(), self.tables.stopping) {
            self.stop_around()
        } else {
            self.observe(arguments)
        }
    }

    /// Executes a call of a thread that stops at its system calls. At the first stop, the tracer can change the call
    /// and its arguments, or set a result so that no call is executed.
    #[cold]
    fn stop_around(&self) -> CallResult {
        let traced = Traced::new(&self.current, &self.registers, self.oom());
        let runs = traced.begin_call();
        let regs = self.registers.state().regs;
        let result = if runs {
            let arguments = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
            let number = usize::try_from(regs.orig_rax).ok();
            let handler = number.and_then(|number| self.tables.usual.get(number));
            handler.unwrap_or(&OBSERVED)(self, &arguments)
        } else {
            Ok(regs.rax)
        };
        traced.end_call();
        result
    }
}

/// The handler of calls that are counted or traced.
const OBSERVED: Handler = |context, arguments| context.observe(arguments);

/// The handler of calls whose numbers are beyond the handler tables.
const UNKNOWN: Handler = |context, arguments| context.execute_unknown(arguments);

/// Handlers without `--strace`. Implemented calls are dispatched directly; missing calls are counted first.
static DIRECT: Handlers = {
    let mut handlers = [OBSERVED; INDEXED];
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

/// Handlers with `--strace`: every call is traced.
static TRACED: Handlers = [OBSERVED; INDEXED];

/// Handlers for a thread that its tracer has resumed so that it stops at system calls.
static STOPPING: Handlers = [|context, _| context.stop_around(); INDEXED];

/// Returns the tables of handlers for a thread. If `traced` is true, returns the tables for `--strace`.
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
