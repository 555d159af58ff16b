//! `/proc/PID/stat` and `/proc/PID/statm`.

use super::{Subject, strings::trimmed};
use crate::{
    context::Context,
    fs::procfs::Text,
    process::{Resource, ticks},
};
use core::{
    fmt::{self, Write},
    sync::atomic::Ordering,
};

/// `/proc/PID/stat` (`do_task_stat` in `fs/proc/array.c` of Linux 7.2). Fields about what does not
/// exist here (terminals, wait channels, real-time policies) are what Linux writes without them.
///
/// # Errors
/// Those of the text.
pub fn stat(context: &Context<'_>, subject: &Subject, text: &mut Text) -> fmt::Result {
    let process = &subject.process;
    let usage = process.total_usage(context.kernel);
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
        Some(space) => (space.totals().mapped * 4096, space.resident_pages()),
        None => (0, 0),
    };
    let limit = process.limits.lock().get(Resource::Resident).current;
    let threads = process.thread_count();
    let (state, _) = subject.state(context);
    let sets = super::status::signal_sets(subject);
    write!(text, "{} (", subject.id)?;
    text.push(trimmed(&subject.name()))?;
    write!(
        text,
        ") {state} {} {} {} 0 -1 0",
        process.parent(),
        process.group(),
        process.session()
    )?;
    write!(
        text,
        " {} {} {} {}",
        usage.minor_faults, children.minor_faults, usage.major_faults, children.major_faults
    )?;
    write!(
        text,
        " {} {} {} {}",
        ticks(usage.user),
        ticks(usage.system),
        ticks(children.user),
        ticks(children.system)
    )?;
    write!(
        text,
        " 20 0 {threads} 0 {} {mapped} {resident} {limit}",
        ticks(process.started)
    )?;
    write!(
        text,
        " {} {} {} 0 0",
        addresses.code_start, addresses.code_end, addresses.stack_start
    )?;
    // Old fields hold the first 31 signals only.
    let old = |set: u64| set & 0x7fff_ffff;
    write!(
        text,
        " {} {} {} {}",
        old(sets.pending),
        old(sets.blocked),
        old(sets.ignored),
        old(sets.caught)
    )?;
    let exit_signal = process.exit_signal.load(Ordering::Relaxed);
    write!(text, " 0 0 0 {exit_signal} 0 0 0 0 0 0")?;
    writeln!(
        text,
        " 0 0 {} {} {} {} {} 0",
        heap.start,
        addresses.arguments_start,
        addresses.arguments_end,
        addresses.environment_start,
        addresses.environment_end
    )
}

/// `/proc/PID/statm`.
///
/// # Errors
/// Those of the text.
pub fn statm(_context: &Context<'_>, subject: &Subject, text: &mut Text) -> fmt::Result {
    let process = &subject.process;
    let totals = process
        .space()
        .map(|space| space.totals())
        .unwrap_or_default();
    let addresses = process
        .image()
        .map(|image| image.addresses)
        .unwrap_or_default();
    let code = (addresses.code_end.next_multiple_of(4096) - (addresses.code_start & !4095)) / 4096;
    let shared = totals.resident_file + totals.resident_shared;
    let data = totals.data + totals.stack;
    writeln!(
        text,
        "{} {} {shared} {code} 0 {data} 0",
        totals.mapped, totals.resident
    )
}
