//! `/proc/PID/stat` and `/proc/PID/statm`.

use crate::procfs::{
    node::{Line, Subject, Text, stub::stubs},
    process::strings::trimmed,
};
use core::{
    fmt::{self, Write},
    sync::atomic::Ordering,
};
use memwright_linux_tasks::process::{Tasks, ticks};
use memwright_linux_vfs::identity::Resource;

stubs! {
    TERMINAL: "/proc/PID/stat" "7 tty_nr" Number(0), "No process has a controlling terminal.";
    FOREGROUND: "/proc/PID/stat" "8 tpgid" Text("-1"), "No process has a controlling terminal.";
    FLAGS: "/proc/PID/stat" "9 flags" Number(0), "They are internal to Linux.";
    INTERVAL: "/proc/PID/stat" "21 itrealvalue" Number(0), "The number is constant on Linux too.";
    STACK_POINTER: "/proc/PID/stat" "29 kstkesp" Number(0), "Linux reports it only for a process that exits.";
    INSTRUCTION: "/proc/PID/stat" "30 kstkeip" Number(0), "Linux reports it only for a process that exits.";
    WAIT_CHANNEL: "/proc/PID/stat" "35 wchan" Number(0), "The kernel does not record where a thread sleeps.";
    SWAPPED: "/proc/PID/stat" "36 nswap" Number(0), "The number is constant on Linux too.";
    CHILDREN_SWAPPED: "/proc/PID/stat" "37 cnswap" Number(0), "The number is constant on Linux too.";
    REAL_TIME: "/proc/PID/stat" "40 rt_priority" Number(0), "There are no real-time policies.";
    POLICY: "/proc/PID/stat" "41 policy" Number(0), "Every thread has the policy SCHED_OTHER.";
    BLOCK_DELAY: "/proc/PID/stat" "42 delayacct_blkio_ticks" Number(0), "A CPU that waits for a disk polls it.";
    GUEST: "/proc/PID/stat" "43 guest_time" Number(0), "There are no virtual machines.";
    CHILDREN_GUEST: "/proc/PID/stat" "44 cguest_time" Number(0), "There are no virtual machines.";
    EXIT_CODE: "/proc/PID/stat" "52 exit_code" Number(0), "Only wait reports it, to the parent.";
    LIBRARY_PAGES: "/proc/PID/statm" "5 lib" Number(0), "The number is constant on Linux too.";
    DIRTY_PAGES: "/proc/PID/statm" "7 dt" Number(0), "The number is constant on Linux too.";
}

/// Writes `/proc/PID/stat` (`do_task_stat` in `fs/proc/array.c` of Linux 7.2). Fields for features that this kernel
/// lacks (terminals, wait channels, real-time policies) are declared as stubs.
///
/// # Errors
/// The errors of `text`.
pub fn stat(tasks: &Tasks, subject: &Subject, text: &mut Text) -> fmt::Result {
    let process = &subject.process;
    let usage = process.total_usage();
    let children = process.children_usage.snapshot();
    let addresses = process
        .image()
        .map(|image| image.addresses)
        .unwrap_or_default();
    let heap = process
        .image()
        .map(|image| *image.heap.lock())
        .unwrap_or_default();
    let (mapped, resident) = match process.space() {
        Some(space) => {
            let usage = space.usage();
            (usage.totals().mapped * 4096, usage.resident_pages())
        }
        None => (0, 0),
    };
    let limit = process.identity.soft_limit(Resource::Resident);
    let threads = process.thread_count();
    let (state, _) = subject.state(tasks);
    let sets = super::status::signal_sets(subject);
    Line::new()
        .decimal(subject.id.into(), 0)
        .text(" (")
        .write(text)?;
    text.push(trimmed(&subject.name()))?;
    let mut line = Line::new();
    line.text(") ").text(state.encode_utf8(&mut [0; 4]));
    for id in [process.parent(), process.group(), process.session()] {
        line.text(" ").decimal(id.into(), 0);
    }
    line.text(" ").decimal(TERMINAL.number(), 0);
    line.text(" ").text(FOREGROUND.text()).write(text)?;
    let thread = subject.thread.as_ref();
    let processor = thread.map_or(0, |thread| thread.cpu().index());
    let exit_signal = process.exit_signal.load(Ordering::Relaxed);
    // The legacy signal fields contain only signals 1 to 31.
    let old = |set: u64| set & 0x7fff_ffff;
    let nice = thread.map_or(0, |thread| thread.nice().number());
    let fields = [
        FLAGS.number(),
        usage.minor_faults,
        children.minor_faults,
        usage.major_faults,
        children.major_faults,
        ticks(usage.user),
        ticks(usage.system),
        ticks(children.user),
        ticks(children.system),
        (20 + nice).unsigned_abs().into(),
        nice.unsigned_abs().into(),
        threads as u64,
        INTERVAL.number(),
        ticks(process.started),
        mapped,
        resident,
        limit,
        addresses.code_start,
        addresses.code_end,
        addresses.stack_start,
        STACK_POINTER.number(),
        INSTRUCTION.number(),
        old(sets.pending),
        old(sets.blocked),
        old(sets.ignored),
        old(sets.caught),
        WAIT_CHANNEL.number(),
        SWAPPED.number(),
        CHILDREN_SWAPPED.number(),
        exit_signal.into(),
        processor as u64,
        REAL_TIME.number(),
        POLICY.number(),
        BLOCK_DELAY.number(),
        GUEST.number(),
        CHILDREN_GUEST.number(),
        addresses.data_start,
        addresses.data_end,
        heap.start,
        addresses.arguments_start,
        addresses.arguments_end,
        addresses.environment_start,
        addresses.environment_end,
        EXIT_CODE.number(),
    ];
    let (before, after) = fields.split_at(BEFORE_NICE);
    if nice < 0 {
        write_numbers(before, text)?;
        write!(text, " {nice}")?;
        write_numbers(&after[1..], text)?;
    } else {
        write_numbers(&fields, text)?;
    }
    text.push(b"\n")
}

/// The number of fields that are composed in one [`Line`]. They fit even if each field has the maximum number of
/// digits.
const TOGETHER: usize = 8;

/// The number of fields from `flags` on that precede `nice`, the only field that can be negative.
const BEFORE_NICE: usize = 10;

/// Writes the numbers in `fields` in decimal, each after a space.
fn write_numbers(fields: &[u64], text: &mut Text) -> fmt::Result {
    fields
        .chunks(TOGETHER)
        .try_for_each(|some| numbers(some).write(text))
}

/// Returns the numbers in `fields` in decimal, each after a space.
fn numbers(fields: &[u64]) -> Line {
    let mut line = Line::new();
    for &field in fields {
        line.byte(b' ').decimal(field, 0);
    }
    line
}

/// Writes `/proc/PID/statm`.
///
/// # Errors
/// The errors of `text`.
pub fn statm(subject: &Subject, text: &mut Text) -> fmt::Result {
    let process = &subject.process;
    let totals = process
        .space()
        .map(|space| space.usage().totals())
        .unwrap_or_default();
    let addresses = process
        .image()
        .map(|image| image.addresses)
        .unwrap_or_default();
    let code = addresses.code_pages(u64::MAX);
    let shared = totals.resident_file + totals.resident_shared;
    let data = totals.data + totals.stack;
    let fields = [
        totals.resident,
        shared,
        code,
        LIBRARY_PAGES.number(),
        data,
        DIRTY_PAGES.number(),
    ];
    Line::new().decimal(totals.mapped, 0).write(text)?;
    numbers(&fields).text("\n").write(text)
}
