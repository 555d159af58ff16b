//! `/proc/PID/status`.

use crate::procfs::{
    node::{Line, Subject, Text, stub::stubs},
    process::strings::trimmed,
    system::{
        nodes::write_allowed,
        processors::{write_list, write_mask},
    },
};
use core::fmt::{self, Write};
use memwright::{HugeRefusal, Totals};
use memwright_linux_abi::{
    Memory,
    signal::{Handler, Signal},
};
use memwright_linux_memory::numa::MOST_NODES;
use memwright_linux_sched::scheduler::Scheduler;
use memwright_linux_tasks::process::{Tasks, Thread};
use memwright_linux_vfs::identity::{Ids, Resource};

stubs! {
    NUMA_GROUP: "/proc/PID/status" "Ngid" Number(0), "NUMA balancing does not group threads.";
    KERNEL_THREAD: "/proc/PID/status" "Kthread" Number(0), "No process is a kernel thread.";
    SPACE_PROCESS: "/proc/PID/status" "NStgid" Copy("Tgid"), "There is one PID namespace.";
    SPACE_THREAD: "/proc/PID/status" "NSpid" Copy("Pid"), "There is one PID namespace.";
    UNTAG: "/proc/PID/status" "untag_mask" Text("0xffffffffffffffff"), "No bits of an address are masked.";
    SECCOMP: "/proc/PID/status" "Seccomp" Number(0), "There is no seccomp.";
    NODES: "/proc/PID/status" "Mems_allowed" Copy("/sys/devices/system/node/online"), "There are no cpusets.";
}

/// The signal sets that `/proc` reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct SignalSets {
    /// Signals that are pending for the thread.
    pub pending: u64,
    /// Signals that are pending for the process.
    pub shared: u64,
    /// Signals that the thread blocks.
    pub blocked: u64,
    /// Signals that the process ignores.
    pub ignored: u64,
    /// Signals for which the process has a handler.
    pub caught: u64,
    /// The number of queued signals.
    pub queued: usize,
}

/// Returns the signal sets of the process and the thread of `subject`.
#[must_use]
pub fn signal_sets(subject: &Subject) -> SignalSets {
    let mut signals = subject.process.signals.lock();
    let mut sets = SignalSets {
        shared: signals.pending.set().0,
        ..SignalSets::default()
    };
    sets.queued = signals.pending.len();
    for (index, action) in signals.actions.copy().iter().enumerate() {
        match action.handler {
            Handler::Default => {}
            Handler::Ignore => sets.ignored |= 1 << index,
            Handler::Function(_) => sets.caught |= 1 << index,
        }
    }
    if let Some(thread) = &subject.thread
        && signals.threads.contains(thread)
    {
        let state = signals.thread(thread);
        sets.pending = state.pending.set().0;
        sets.blocked = state.blocked.0;
        sets.queued += state.pending.len();
    }
    sets
}

/// Writes the lines of `/proc/PID/status` that precede the lines of [`placement`] (`proc_pid_status` in
/// `fs/proc/array.c` of Linux 7.2).
///
/// # Errors
/// The errors of `text`.
pub fn status(tasks: &Tasks, subject: &Subject, text: &mut Text) -> fmt::Result {
    let process = &subject.process;
    text.write_str("Name:\t")?;
    text.push(trimmed(&subject.name()))?;
    text.write_char('\n')?;
    if let Some(fs) = process.fs() {
        writeln!(text, "Umask:\t{:04o}", fs.mask())?;
    }
    let (letter, word) = subject.state(tasks);
    writeln!(text, "State:\t{letter} ({word})")?;
    let (id, parent) = (process.id, process.parent());
    writeln!(
        text,
        "Tgid:\t{id}\nNgid:\t{NUMA_GROUP}\nPid:\t{}\nPPid:\t{parent}",
        subject.id
    )?;
    let tracer = subject.thread.as_ref().and_then(|thread| thread.tracer());
    writeln!(text, "TracerPid:\t{}", tracer.unwrap_or_default())?;
    let credentials = process.identity.credentials.lock().clone();
    write_ids(text, "Uid", &credentials.user)?;
    write_ids(text, "Gid", &credentials.group)?;
    let descriptors = process.files().map_or(0, |files| files.size());
    write!(text, "FDSize:\t{descriptors}\nGroups:\t")?;
    for group in credentials.groups.blocks().flatten() {
        write!(text, "{group} ")?;
    }
    text.write_str(" \n")?;
    let (thread, group, session) = (subject.id, process.group(), process.session());
    writeln!(
        text,
        "NStgid:\t{id}\nNSpid:\t{thread}\nNSpgid:\t{group}\nNSsid:\t{session}"
    )?;
    writeln!(text, "Kthread:\t{KERNEL_THREAD}")?;
    if let Some(space) = process.space() {
        let addresses = process
            .image()
            .map(|image| image.addresses)
            .unwrap_or_default();
        let totals = space.usage().totals();
        write_memory(text, &totals, addresses.code_pages(totals.executable))?;
        let enabled = space.huge_pages().refusal() != HugeRefusal::Everywhere;
        writeln!(text, "THP_enabled:\t{}", u8::from(enabled))?;
        writeln!(text, "untag_mask:\t{UNTAG}")?;
    }
    writeln!(text, "Threads:\t{}", process.thread_count())?;
    let sets = signal_sets(subject);
    let limit = process.identity.soft_limit(Resource::PendingSignals);
    writeln!(text, "SigQ:\t{}/{limit}", sets.queued)?;
    let capabilities = credentials.capabilities;
    let rows = [
        ("SigPnd", sets.pending),
        ("ShdPnd", sets.shared),
        ("SigBlk", sets.blocked),
        ("SigIgn", sets.ignored),
        ("SigCgt", sets.caught),
        ("CapInh", capabilities.inheritable.bits()),
        ("CapPrm", capabilities.permitted.bits()),
        ("CapEff", capabilities.effective.bits()),
        ("CapBnd", capabilities.bounding.bits()),
        ("CapAmb", capabilities.ambient.bits()),
    ];
    for (name, set) in rows {
        let mut line = Line::new();
        line.text(name).text(":\t").hex(set, 16);
        line.text("\n").write(text)?;
    }
    let gains_none = u8::from(capabilities.gains_none);
    writeln!(text, "NoNewPrivs:\t{gains_none}\nSeccomp:\t{SECCOMP}")
}

/// Writes the last lines of `/proc/PID/status`: the CPUs and nodes that the thread may use, and its context switches.
///
/// # Errors
/// The errors of `text`.
pub fn placement(
    memory: &Memory,
    scheduler: &Scheduler<Thread>,
    subject: &Subject,
    text: &mut Text,
) -> fmt::Result {
    let allowed = match &subject.thread {
        Some(thread) => thread.affinity(),
        None => scheduler.all_cpus(),
    };
    let every = scheduler.all_cpus();
    write_processors(text, allowed.bits() & every.bits(), every.len() as usize)?;
    let nodes = memory.frames().topology().all();
    write_allowed(text, nodes, MOST_NODES)?;
    let usage = match &subject.thread {
        Some(thread) => scheduler.usage_of(thread),
        None => subject.process.usage.snapshot(),
    };
    writeln!(text, "voluntary_ctxt_switches:\t{}", usage.voluntary)?;
    writeln!(text, "nonvoluntary_ctxt_switches:\t{}", usage.involuntary)
}

fn write_ids(text: &mut Text, name: &str, ids: &Ids) -> fmt::Result {
    let Ids {
        real,
        effective,
        saved,
        file,
    } = ids;
    let mut line = Line::new();
    line.text(name).text(":");
    for id in [real, effective, saved, file] {
        line.text("\t").decimal((*id).into(), 0);
    }
    line.text("\n").write(text)
}

/// Writes the rows about memory. `code` is the number of pages that contain code of the executable itself, without
/// libraries.
fn write_memory(text: &mut Text, totals: &Totals, code: u64) -> fmt::Result {
    let library = totals.executable.saturating_sub(code);
    let rows = [
        ("VmPeak", totals.mapped_peak.max(totals.mapped)),
        ("VmSize", totals.mapped),
        ("VmLck", totals.locked),
        ("VmPin", totals.pinned),
        ("VmHWM", totals.resident_peak.max(totals.resident)),
        ("VmRSS", totals.resident),
        ("RssAnon", totals.resident_anonymous),
        ("RssFile", totals.resident_file),
        ("RssShmem", totals.resident_shared),
        ("VmData", totals.data),
        ("VmStk", totals.stack),
        ("VmExe", code),
        ("VmLib", library),
        ("VmPTE", totals.table_frames),
        ("VmSwap", totals.swapped),
        ("HugetlbPages", totals.hugetlb),
    ];
    for (name, pages) in rows {
        let mut line = Line::new();
        line.text(name).text(":\t").decimal(pages * 4, 8);
        line.text(" kB\n").write(text)?;
    }
    Ok(())
}

/// Writes the CPUs on which the thread is allowed to run (`allowed`), as a mask and as a list.
fn write_processors(text: &mut Text, allowed: u64, count: usize) -> fmt::Result {
    text.write_str("Cpus_allowed:\t")?;
    write_mask(text, allowed, count)?;
    text.write_str("\nCpus_allowed_list:\t")?;
    write_list(text, allowed)?;
    text.write_char('\n')
}

const _: () = assert!(Signal::MAX == 64);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn memory_rows_are_those_of_linux() {
        let totals = Totals {
            mapped: 10,
            executable: 7,
            locked: 3,
            ..Totals::default()
        };
        let mut text = Text::new();
        write_memory(&mut text, &totals, 5).unwrap();
        let text = String::from_utf8(text.bytes().to_vec()).unwrap();
        for line in [
            "VmPeak:\t      40 kB",
            "VmLck:\t      12 kB",
            "VmLib:\t       8 kB",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}");
        }
        let mut text = Text::new();
        write_processors(&mut text, 0b1101, 4).unwrap();
        assert_eq!(
            text.bytes(),
            b"Cpus_allowed:\td\nCpus_allowed_list:\t0,2-3\n"
        );
    }
}
