//! The reports of the calling thread to its tracer, and the ptrace stops in which it makes them.

use crate::{current::Current, ptrace::stand::Ended, thread_registers::ThreadRegisters};
use core::sync::atomic::Ordering;
use linux_raw_sys::ptrace as raw;
use memwright_linux_abi::{
    arch::x86_64::regs::TRAP_FLAG,
    errno::Errno,
    signal::{Detail, Signal, SignalInfo, code},
};
use memwright_linux_memory::oom::OomKiller;
use memwright_linux_sched::scheduler::Work;
use memwright_linux_tasks::process::{
    AtCalls, Change, ExitStatus, Report, Tasks, TraceOptions, force_fault, send_to_thread,
};

/// An event that a tracer can select by an option of `PTRACE_SETOPTIONS` or `PTRACE_SEIZE`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    /// The thread has created a process that sends SIGCHLD when it exits.
    Fork,
    /// The thread has created a process, and waits until that process releases the address space.
    Vfork,
    /// The thread has created a thread, or a process with another exit signal than SIGCHLD.
    Clone,
    /// The thread executes another program.
    Exec,
    /// The process that the thread created with [`Vfork`](Self::Vfork) has released the address space.
    VforkDone,
    /// The thread is about to exit.
    Exit,
}

impl Event {
    /// Returns the number of the event, and the option that selects it.
    fn number(self) -> (u32, TraceOptions) {
        match self {
            Self::Fork => (raw::PTRACE_EVENT_FORK, TraceOptions::FORK),
            Self::Vfork => (raw::PTRACE_EVENT_VFORK, TraceOptions::VFORK),
            Self::Clone => (raw::PTRACE_EVENT_CLONE, TraceOptions::CLONE),
            Self::Exec => (raw::PTRACE_EVENT_EXEC, TraceOptions::EXEC),
            Self::VforkDone => (raw::PTRACE_EVENT_VFORK_DONE, TraceOptions::VFORK_DONE),
            Self::Exit => (raw::PTRACE_EVENT_EXIT, TraceOptions::EXIT),
        }
    }
}

/// The wait status and the `si_code` of a stop at a system call, without [`CALL_MARK`].
const TRAP: u32 = Signal::SIGTRAP.number() as u32;
/// The bit that marks stops at system calls (`PTRACE_O_TRACESYSGOOD`).
const CALL_MARK: u32 = 0x80;

/// The calling thread, whether it is traced or not.
pub(crate) struct Traced<'a> {
    /// The thread.
    pub(crate) current: &'a Current<'a>,
    /// Its user registers.
    pub(crate) registers: &'a ThreadRegisters<'a>,
    /// The process table, which contains the tracer.
    pub(crate) tasks: &'a Tasks,
    /// The OOM killer, which can kill the thread during a stop.
    pub(crate) oom: &'a OomKiller,
}

impl<'a> Traced<'a> {
    /// Creates the view of the calling thread.
    pub(crate) fn new(
        current: &'a Current<'a>,
        registers: &'a ThreadRegisters<'a>,
        oom: &'a OomKiller,
    ) -> Self {
        Self {
            current,
            registers,
            tasks: current.process().tasks,
            oom,
        }
    }

    fn is_traced(&self) -> bool {
        self.current.thread.traced.load(Ordering::Relaxed)
    }

    fn notice(&self, code: u32, message: u64) -> Report {
        Report::notice(Signal::SIGTRAP, code, message, self.current.process().id)
    }

    /// Enters a ptrace stop before the thread takes a signal. Returns the signal that the thread takes, which the
    /// tracer chooses (Linux 7.2 `kernel/signal.c`, `ptrace_signal`).
    pub(crate) fn take_signal(&self, info: SignalInfo) -> Option<SignalInfo> {
        let Some(Ended {
            signal,
            info,
            tracer,
        }) = self.stand_still(Report::signal(info))
        else {
            // The tracer has detached: the thread takes the signal as it is.
            return Some(info);
        };
        // A killed thread takes no other signal.
        let signal = signal?;
        let unchanged = info.filter(|info| info.signal == signal);
        Some(unchanged.unwrap_or(SignalInfo {
            signal,
            code: code::SI_USER,
            errno: 0,
            detail: Detail::Sender {
                process: tracer,
                user: 0,
            },
        }))
    }

    /// Enters a ptrace stop because `signal` has stopped the process, or, for `None`, because the tracer requested the
    /// stop (`do_jobctl_trap` of Linux 7.2, `kernel/signal.c`).
    pub(crate) fn stop(&self, signal: Option<Signal>, seized: bool) {
        let shown = signal.unwrap_or(Signal::SIGTRAP);
        let number = u32::from(shown.number());
        let report = if seized {
            let code = number | raw::PTRACE_EVENT_STOP << 8;
            let process = self.current.process().id;
            Report::notice(shown, code, 0, process)
        } else {
            Report {
                code: number,
                info: None,
                message: 0,
                takes_signal: false,
                by_stop: true,
            }
        };
        let by_stop = true;
        let _ = self.stand_still(Report { by_stop, ..report });
    }

    /// Enters a ptrace stop for an event if the tracer has selected that event.
    pub(crate) fn event(&self, event: Event, message: u64) {
        if self.stops_at(event) {
            let code = TRAP | event.number().0 << 8;
            let result = self.registers.state().regs.rax;
            if event != Event::Exit {
                self.registers.state().regs.rax = Errno::ENOSYS.as_result();
            }
            if self.stand_still(self.notice(code, message)).is_none() {
                self.registers.state().regs.rax = result;
            }
        }
    }

    /// Enters a ptrace stop before the thread exits with this status, if the tracer has selected [`Event::Exit`]. A
    /// thread that is killed by SIGKILL does not stop.
    pub(crate) fn exit(&self, status: ExitStatus) {
        if status != ExitStatus::Killed(Signal::SIGKILL) && self.stops_at(Event::Exit) {
            self.current.thread.set_work(Work::FATAL, false);
            let status = Change::Ended(status).wait_status();
            self.event(Event::Exit, status as u64);
        }
    }

    /// Returns whether the tracer has selected this event.
    pub(crate) fn stops_at(&self, event: Event) -> bool {
        self.is_traced() && self.options().contains(event.number().1)
    }

    fn options(&self) -> TraceOptions {
        let mut signals = self.current.process().signals.lock();
        let tracing = signals.tracing(self.current.thread);
        tracing.map_or(TraceOptions::empty(), |tracing| tracing.options)
    }

    /// Reports that the thread has executed another program. `id` is the id that the thread had before. If the tracer
    /// has neither seized the thread nor selected [`Event::Exec`], the thread gets SIGTRAP instead.
    pub(crate) fn executed(&self, id: u32) {
        if !self.is_traced() {
            return;
        }
        let (thread, process) = (self.current.thread, self.current.process());
        let old_style = {
            let mut signals = process.signals.lock();
            let tracing = signals.tracing(thread);
            tracing.is_some_and(|tracing| {
                !tracing.seized && !tracing.options.contains(TraceOptions::EXEC)
            })
        };
        if old_style {
            let detail = Detail::Sender {
                process: process.id,
                user: 0,
            };
            let info = SignalInfo {
                signal: Signal::SIGTRAP,
                code: code::SI_USER,
                errno: 0,
                detail,
            };
            send_to_thread(thread, info);
        }
        self.event(Event::Exec, id.into());
    }

    /// Enters a ptrace stop at the start of a system call, if the tracer requested that. Returns whether the thread
    /// executes the call (`syscall_trace_enter` of Linux 7.2, `kernel/entry/common.c`).
    #[cold]
    pub(crate) fn begin_call(&self) -> bool {
        let (calls, steps) = self.mode();
        if steps {
            // Clear the trap flag: the end of the call ends a single step over the call.
            let mut regs = self.registers.state().regs;
            regs.rflags &= !TRAP_FLAG;
            self.registers.replace_registers(regs);
        }
        if calls == AtCalls::Pass {
            self.registers.stop_at_calls(steps);
            return true;
        }
        self.registers.state().regs.rax = Errno::ENOSYS.as_result();
        self.report_call(raw::PTRACE_EVENTMSG_SYSCALL_ENTRY);
        let number = self.registers.state().regs.orig_rax as u32;
        calls != AtCalls::Emulate && number != u32::MAX && !self.current.thread.fatal_pending()
    }

    /// Records the end of a system call. The thread reports it before it handles signals.
    #[cold]
    pub(crate) fn end_call(&self) {
        let thread = self.current.thread;
        let mut signals = thread.process.signals.lock();
        if let Some(tracing) = signals.tracing(thread) {
            tracing.call_ended = tracing.steps || tracing.calls == AtCalls::Stop;
            thread.set_work(Work::SIGNAL, true);
        }
    }

    /// Reports the end of a system call: enters a ptrace stop, or raises SIGTRAP after a single step.
    pub(crate) fn report_end_of_call(&self) {
        let (calls, steps) = self.mode();
        if steps {
            let at = self.registers.state().regs.rip;
            let info = SignalInfo::fault(Signal::SIGTRAP, code::TRAP_BRKPT, at);
            force_fault(self.current.thread, info);
        } else if calls == AtCalls::Stop {
            self.report_call(raw::PTRACE_EVENTMSG_SYSCALL_EXIT);
        }
    }

    fn report_call(&self, message: u32) {
        let marked = self.options().contains(TraceOptions::CALLS_MARKED);
        let code = if marked { TRAP | CALL_MARK } else { TRAP };
        let ended = self.stand_still(self.notice(code, message.into()));
        if let Some(signal) = ended.and_then(|ended| ended.signal) {
            send_to_thread(self.current.thread, SignalInfo::kernel(signal));
        }
    }

    fn mode(&self) -> (AtCalls, bool) {
        let mut signals = self.current.process().signals.lock();
        let tracing = signals.tracing(self.current.thread);
        tracing.map_or((AtCalls::Pass, false), |tracing| {
            (tracing.calls, tracing.steps)
        })
    }

    /// Clears the trap flag before the thread enters a signal handler, if the tracer set the flag. Returns whether the
    /// tracer had set it.
    pub(crate) fn before_handler(&self) -> bool {
        let stepping = self.is_traced() && self.mode().1;
        if stepping {
            let mut regs = self.registers.state().regs;
            regs.rflags &= !TRAP_FLAG;
            self.registers.replace_registers(regs);
        }
        stepping
    }

    /// Enters a ptrace stop at the first instruction of a signal handler. The stop ends a single step
    /// (`signal_delivered` of Linux 7.2).
    pub(crate) fn entered_handler(&self) {
        let _ = self.stand_still(self.notice(TRAP, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Report, Signal, SignalInfo, TRAP};

    #[test]
    fn events_have_the_numbers_of_their_options() {
        for event in [
            Event::Fork,
            Event::Vfork,
            Event::Clone,
            Event::Exec,
            Event::VforkDone,
            Event::Exit,
        ] {
            let (number, option) = event.number();
            assert_eq!(option.bits(), 1 << number, "{event:?}");
        }
    }

    #[test]
    fn events_in_a_call_are_followed_by_its_end() {
        let notice = |code| Report::notice(Signal::SIGTRAP, code, 0, 1);
        assert!(notice(TRAP | 1 << 8).is_in_call());
        assert!(!notice(TRAP | 6 << 8).is_in_call());
        assert!(!notice(TRAP | 0x80).is_in_call());
        assert!(!Report::signal(SignalInfo::kernel(Signal::SIGTRAP)).is_in_call());
    }
}
