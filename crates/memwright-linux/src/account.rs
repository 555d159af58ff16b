//! The report at the end of a run: counters, system-call counts and the outcome.

use crate::{
    audit::Baseline,
    kernel::Kernel,
    syscall::{described::LongestStretch, table},
};
use alloc::{format, string::String};
use core::{fmt::Write, sync::atomic::Ordering};
use memwright_linux_abi::{
    Memory,
    channel::{Channel, NO_ROOM, Outcome},
    host::{Host, Instruments},
};
use memwright_linux_tasks::call_counts::{CallCounts, Listed};
use memwright_table::{
    Machine as _,
    sync::stat::{self, Waits},
};

/// Writes the counts of the system calls that the report lists.
fn write_calls(calls: &CallCounts, out: &mut String) {
    calls.each(|call, count| match call {
        Listed::Stub(name) => line(out, format_args!("stub {name}"), count),
        Listed::Missing(number) => match table::find(number) {
            Some(call) => line(out, format_args!("unknown {}", call.name), count),
            None => line(out, format_args!("unknown syscall_{number}"), count),
        },
        Listed::Others => line(out, "unknown syscall_others", count),
    });
}

fn line(out: &mut String, name: impl core::fmt::Display, value: impl core::fmt::Display) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(out, "{name} {value}");
}

/// The values of the report that the caller passes to [`lines`].
struct Figures {
    /// Instructions that the kernel executed before the program started.
    boot_instructions: u64,
    /// Number of processes created.
    processes: u64,
    /// Number of processes that the OOM killer has killed.
    oom_kills: u64,
}

/// Returns the lines of the report with their current values.
fn lines(
    memory: &Memory,
    instruments: &dyn Instruments,
    calls: &CallCounts,
    figures: &Figures,
) -> String {
    let mut out = String::new();
    for (definition, value) in memory.account().iter() {
        match value {
            memwright::Value::Count(count) => line(&mut out, definition.name, count),
            memwright::Value::NotObservable => line(&mut out, definition.name, "not_observable"),
        }
    }
    line(
        &mut out,
        "instructions_user",
        instruments.user_instructions(),
    );
    line(
        &mut out,
        "instructions_kernel",
        kernel_instructions(instruments, figures.boot_instructions),
    );
    line(
        &mut out,
        "instructions_interrupts",
        instruments.interrupt_instructions(),
    );
    line(&mut out, "processes", figures.processes);
    line(&mut out, "oom_kills", figures.oom_kills);
    line(
        &mut out,
        "instructions_stretch",
        instruments.longest_stretch().instructions,
    );
    if memory.frames().machine().cpu_count() > 1 {
        for (name, waits) in WAITS {
            line(&mut out, name, stat::waits(waits));
        }
    }
    write_calls(calls, &mut out);
    out
}

/// The rows of the report that count how often a CPU waited for another: name of the row, and kind of the wait.
const WAITS: [(&str, Waits); 3] = [
    ("locks_contended", Waits::Contended),
    ("locks_halted", Waits::Halted),
    ("flush_waits_halted", Waits::FlushHalted),
];

/// Writes the present counters to a failure report. Waits for no lock and allocates nothing.
pub(crate) fn report(
    memory: &Memory,
    instruments: &dyn Instruments,
    boot_instructions: u64,
    out: &mut dyn Write,
) -> core::fmt::Result {
    let Some(account) = memory.try_account() else {
        return writeln!(out, "account: not readable, the frames are locked");
    };
    writeln!(out, "account, rows that are not 0:")?;
    for (definition, value) in account.iter() {
        match value {
            memwright::Value::Count(0) | memwright::Value::NotObservable => {}
            memwright::Value::Count(count) => writeln!(out, "  {} {count}", definition.name)?,
        }
    }
    let user = instruments.user_instructions();
    writeln!(out, "  instructions_user {user}")?;
    writeln!(
        out,
        "  instructions_kernel {}",
        kernel_instructions(instruments, boot_instructions)
    )?;
    let interrupts = instruments.interrupt_instructions();
    writeln!(out, "  instructions_interrupts {interrupts}")
}

/// Returns the number of instructions that the kernel executed on the calling CPU since the program started, except
/// those in interrupt handlers. `boot` is the number of instructions that the kernel executed before the program
/// started. With several CPUs, the calling CPU can differ from the one on which the program started.
fn kernel_instructions(instruments: &dyn Instruments, boot: u64) -> u64 {
    let interrupts = instruments.interrupt_instructions();
    instruments
        .kernel_instructions()
        .saturating_sub(boot + interrupts)
}

/// Powers the machine off because it has too little memory for the requested run. No program has started, and no report
/// is written.
#[expect(clippy::disallowed_methods, reason = "no program runs")]
pub fn refuse(host: &dyn Host, text: &str) -> ! {
    let mut result = Outcome::NotStarted(NO_ROOM).encode().to_vec();
    result.extend_from_slice(text.as_bytes());
    host.output(Channel::Result, &result);
    host.power_off(0)
}

impl Kernel {
    /// Finishes the run: writes the report, audits for leaks, sends the result and powers off.
    #[expect(
        clippy::disallowed_methods,
        clippy::disallowed_macros,
        reason = "no program runs any more"
    )]
    pub(crate) fn finish(&'static self, before: &Baseline) -> ! {
        let host = self.host;
        host.pause_clock();
        if self.memory.policy().count_locks() {
            // Stop the lock statistics here, because they describe the run, but neither the report nor the audit.
            self.memory.set_lock_statistics(false);
        }
        let figures = Figures {
            boot_instructions: self.boot_instructions.load(Ordering::Relaxed),
            processes: self.tasks.made.load(Ordering::Relaxed),
            oom_kills: self.oom.kills(),
        };
        let mut text = lines(&self.memory, host, &self.calls, &figures);
        let stretch = host.longest_stretch();
        if stretch.is_critical() {
            self.log(&format!("{}", LongestStretch(stretch)));
        }
        let ended = self.ended.lock().take();
        let (outcome, message, killed) = match ended {
            Some(ended) => (ended.outcome, ended.text, ended.killed),
            None => {
                let never = memwright_linux_abi::errno::Errno::EIO.number().into();
                (Outcome::NotStarted(never), String::new(), 0)
            }
        };
        line(&mut text, "processes_killed", killed);
        let findings = self.audit(before);
        line(&mut text, "audit_findings", findings.len());
        for finding in &findings {
            let log = format!("audit: {finding}\n");
            host.output(Channel::Log, log.as_bytes());
            host.output(Channel::Panic, log.as_bytes());
        }
        host.output(Channel::Account, text.as_bytes());
        let mut result = outcome.encode().to_vec();
        result.extend_from_slice(message.as_bytes());
        host.output(Channel::Result, &result);
        host.power_off(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{CallCounts, write_calls};
    use alloc::string::String;

    #[test]
    fn a_program_may_try_any_number_of_calls() {
        let counts = CallCounts::default();
        for number in 0..5000 {
            counts.count_missing(10_000 + number, false);
        }
        counts.count_missing(10_000, false);
        counts.count_missing(101, true);
        let mut out = String::new();
        write_calls(&counts, &mut out);
        assert!(out.starts_with("unknown ptrace 1\nunknown syscall_10000 2\n"));
        assert!(out.ends_with("unknown syscall_others 3976\n"), "{out}");
        assert_eq!(out.lines().count(), 1026);
    }

    #[test]
    fn stubs_and_missing_calls_are_listed_by_name() {
        let counts = CallCounts::default();
        counts.count_stub("setpriority");
        counts.count_missing(101, true);
        counts.count_missing(101, true);
        counts.count_missing(9999, false);
        counts.count_stub("MADV_COLD");
        let mut out = String::new();
        write_calls(&counts, &mut out);
        let expected = "stub MADV_COLD 1\nstub setpriority 1\nunknown ptrace 2\n\
                        unknown syscall_9999 1\n";
        assert_eq!(out, expected);
    }
}
