//! Memory of processes that a descriptor names: `process_madvise` and `process_mrelease`.

use super::{descriptor, pidfd::named_process, real};
use crate::{
    Space,
    context::Context,
    errno::Errno,
    memory::{advise_errno, unmap_errno},
    process::Capabilities,
    syscall::{
        Arguments, CallResult,
        memory::advice,
        table::{Kind, SystemCall},
    },
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright::Advised;
use memwright_table::VirtAddr;

/// The rows of this group.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_process_madvise,
        "process_madvise",
        &[
            Kind::Fd,
            Kind::Vectors(2),
            Kind::Unsigned,
            Kind::Int,
            Kind::Hex,
        ],
        process_madvise,
    ),
    real(
        raw::__NR_process_mrelease,
        "process_mrelease",
        &[Kind::Fd, Kind::Hex],
        process_mrelease,
    ),
];

/// Advice that may be given for another's memory: it changes no contents.
fn is_for_others(advice: u64) -> bool {
    matches!(
        advice as u32,
        raw::MADV_COLD | raw::MADV_PAGEOUT | raw::MADV_WILLNEED | raw::MADV_COLLAPSE
    )
}

/// `process_madvise` (Linux 7.2 `mm/madvise.c`): returns how many bytes were advised on.
fn process_madvise(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, vectors, count, wanted, flags, _] = arguments;
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let pieces = context.read_vectors(vectors, count)?;
    let process = named_process(context, descriptor(number))?;
    let own = Arc::ptr_eq(&process, context.process());
    if !own {
        let other = process.credentials.lock().clone();
        if !context.process().credentials.lock().may_look_into(&other) {
            return Err(Errno::EACCES);
        }
    }
    let space = process.space().ok_or(Errno::ESRCH)?;
    if !own {
        if !is_for_others(wanted) {
            return Err(Errno::EINVAL);
        }
        if !context.process().credentials.lock().has(Capabilities::NICE) {
            return Err(Errno::EPERM);
        }
    }
    let (advice, name) = advice(wanted).ok_or(Errno::EINVAL)?;
    let mut done = 0;
    for piece in &pieces {
        let advised = space.advise(VirtAddr::new(piece.base), piece.length, advice);
        match advised.map_err(advise_errno) {
            Ok(Advised::Done) => {}
            Ok(Advised::AdvisedOnly) => context.kernel.calls.count_stub(name),
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        done += piece.length;
    }
    Ok(done)
}

/// `process_mrelease` (Linux 7.2 `mm/oom_kill.c`): the memory of a process that was killed goes at once.
fn process_mrelease(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    if arguments[1] as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let process = named_process(context, descriptor(arguments[0]))?;
    let space = process.space().ok_or(Errno::ESRCH)?;
    if !will_free(context, &space) {
        return Err(Errno::EINVAL);
    }
    space.reap().map_err(unmap_errno)?;
    Ok(0)
}

/// Whether every process that runs in the address space is ending (`task_will_free_mem`).
fn will_free(context: &Context<'_>, space: &Arc<Space>) -> bool {
    let processes = context.kernel.tasks.processes();
    processes
        .iter()
        .filter(|process| process.space().is_some_and(|own| Arc::ptr_eq(&own, space)))
        .all(|process| process.signals.lock().group_exit.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_no_contents_is_for_others() {
        for (advice, allowed) in [(3, true), (4, false), (8, false), (20, true), (21, true)] {
            assert_eq!(is_for_others(advice), allowed, "{advice}");
        }
    }
}
