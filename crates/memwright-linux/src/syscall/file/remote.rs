//! System calls that give advice about the memory of another process, free it, read it or write it.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::{
        call::{Kind, SystemCall, handler, int, real},
        file::pidfd::named_process,
        memory::{advice, advise},
    },
};
use alloc::{sync::Arc, vec::Vec};
use linux_raw_sys::general as raw;
use memwright::{Access, Advised, Awaited, FaultError};
use memwright_linux_abi::{Space, abi::IoVector, errno::Errno};
use memwright_linux_memory::{memory::unmap_errno, userfault::Userfaults};
use memwright_linux_tasks::{call_counts::CallCounts, process::Tasks};
use memwright_linux_vfs::{
    direct_reclaim::Retry,
    fs::transfer::{Sink, Source},
    identity::Capabilities,
    user::USER_END,
};
use memwright_table::{PAGE_SIZE, VirtAddr};

/// The entries of this module in the system-call table.
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
        handler!(process_madvise, userfaults, calls),
    ),
    real(
        raw::__NR_process_mrelease,
        "process_mrelease",
        &[Kind::Fd, Kind::Hex],
        handler!(process_mrelease, tasks),
    ),
    real(
        raw::__NR_process_vm_readv,
        "process_vm_readv",
        REMOTE_COPY,
        handler!(process_vm_readv, tasks, userfaults),
    ),
    real(
        raw::__NR_process_vm_writev,
        "process_vm_writev",
        REMOTE_COPY,
        handler!(process_vm_writev, tasks, userfaults),
    ),
];

/// The argument types of copies between processes. The second array of vectors refers to the other process's memory.
const REMOTE_COPY: &[Kind] = &[
    Kind::Int,
    Kind::Vectors(2),
    Kind::Unsigned,
    Kind::Hex,
    Kind::Unsigned,
    Kind::Hex,
];

/// Returns whether the advice is permitted for the memory of another process. Only advice that does not change the
/// contents of the memory is permitted.
fn is_for_others(advice: u64) -> bool {
    matches!(
        advice as u32,
        raw::MADV_COLD | raw::MADV_PAGEOUT | raw::MADV_WILLNEED | raw::MADV_COLLAPSE
    )
}

/// Implements `process_madvise` (Linux 7.2 `mm/madvise.c`). Returns the number of bytes to which the advice was
/// applied.
fn process_madvise(
    current: &Current<'_>,
    userfaults: &Userfaults,
    calls: &CallCounts,
    arguments: &Arguments,
) -> CallResult {
    let &[number, vectors, count, wanted, flags, _] = arguments;
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let pieces = current.user.read_vectors(vectors, count)?;
    let process = named_process(current, int(number))?;
    let own = Arc::ptr_eq(&process, current.process());
    if !own && !current.process().identity.may_look_into(&process.identity) {
        return Err(Errno::EACCES);
    }
    let space = process.space().ok_or(Errno::ESRCH)?;
    if !own {
        if !is_for_others(wanted) {
            return Err(Errno::EINVAL);
        }
        if !current
            .process()
            .identity
            .credentials
            .lock()
            .has(Capabilities::NICE)
        {
            return Err(Errno::EPERM);
        }
    }
    let (advice, name) = advice(wanted).ok_or(Errno::EINVAL)?;
    let mut done = 0;
    for piece in &pieces {
        let pages = (VirtAddr::new(piece.base), piece.length);
        match advise(current, userfaults, &space, pages, advice) {
            Ok(Advised::Done) => {}
            Ok(Advised::AdvisedOnly) => calls.count_stub(name),
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        done += piece.length;
    }
    Ok(done)
}

/// Implements `process_mrelease` (Linux 7.2 `mm/oom_kill.c`): frees the memory of a killed process before the process
/// has exited.
fn process_mrelease(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    if arguments[1] as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let process = named_process(current, int(arguments[0]))?;
    let space = process.space().ok_or(Errno::ESRCH)?;
    if !will_free(tasks, &space) {
        return Err(Errno::EINVAL);
    }
    space.reap().map_err(unmap_errno)?;
    Ok(0)
}

/// Returns whether all processes that use the address space are exiting (`task_will_free_mem`).
fn will_free(tasks: &Tasks, space: &Arc<Space>) -> bool {
    let mut processes = tasks.processes();
    processes
        .by_ref()
        .filter(|process| process.space().is_some_and(|own| Arc::ptr_eq(&own, space)))
        .all(|process| process.signals.lock().group_exit.is_some())
}

/// The decoded arguments of a copy between processes.
struct RemoteCopy {
    own: Vec<IoVector>,
    others: Vec<IoVector>,
    space: Arc<Space>,
    /// Whether the other process has the caller's address space.
    is_own: bool,
}

/// Number of bytes that are copied through the kernel stack at a time.
const CHUNK: usize = 1024;

impl RemoteCopy {
    /// Decodes the arguments (Linux 7.2 `mm/process_vm_access.c`). Returns `None` if there is nothing to copy.
    fn new(
        current: &Current<'_>,
        tasks: &Tasks,
        arguments: &Arguments,
    ) -> Result<Option<Self>, Errno> {
        let &[id, own, own_count, others, others_count, flags] = arguments;
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let own = current.user.read_vectors(own, own_count)?;
        if own.iter().all(|piece| piece.length == 0) {
            return Ok(None);
        }
        let others = current.user.read_vectors_of_other(others, others_count)?;
        if others.iter().all(|piece| piece.length == 0) {
            return Ok(None);
        }
        let process = match tasks.thread(id as u32) {
            Some(thread) => thread.process.clone(),
            None => tasks.process(id as u32).ok_or(Errno::ESRCH)?,
        };
        if !Arc::ptr_eq(&process, current.process())
            && !current.process().identity.may_look_into(&process.identity)
        {
            return Err(Errno::EPERM);
        }
        let space = process.space().ok_or(Errno::ESRCH)?;
        let caller = current.process().space();
        let is_own = caller.is_some_and(|caller| Arc::ptr_eq(&caller, &space));
        Ok(Some(Self {
            own,
            others,
            space,
            is_own,
        }))
    }

    /// Calls `copy` with the address and length in bytes of each range of the other process's memory, in order, until a
    /// call copies fewer bytes than it should. Returns the total number of copied bytes.
    fn each(&self, mut copy: impl FnMut(VirtAddr, usize) -> Result<Copied, Errno>) -> CallResult {
        let mut done = 0;
        for piece in &self.others {
            let mut at = 0;
            while at < piece.length {
                let address = piece.base.saturating_add(at);
                let room = USER_END.saturating_sub(address);
                let step = (piece.length - at).min(CHUNK as u64).min(room) as usize;
                let copied = match step {
                    0 => Err(Errno::EFAULT),
                    _ => copy(VirtAddr::new(address), step),
                };
                match copied {
                    Ok(Copied { wanted, count }) => {
                        done += count as u64;
                        at += count as u64;
                        if count < wanted || wanted == 0 {
                            return Ok(done);
                        }
                    }
                    Err(error) if done == 0 => return Err(error),
                    Err(_) => return Ok(done),
                }
            }
        }
        Ok(done)
    }
}

/// The result of copying one part.
struct Copied {
    /// Number of bytes that were to be copied.
    wanted: usize,
    /// Number of bytes that were copied.
    count: usize,
}

/// Returns the number of bytes, at most `step`, from `at` to the end of its page.
fn within_page(at: VirtAddr, step: usize) -> usize {
    step.min(PAGE_SIZE - at.offset())
}

/// Returns the number of bytes, at most `step`, to copy at once between two addresses in the caller's own memory. If
/// the ranges overlap, the result is at most their distance, so that later parts copy what earlier parts have written.
/// For a distance of less than a word, the result is a word, because user copies on Linux copy words.
fn apart(from: u64, to: u64, step: usize) -> usize {
    const WORD: usize = size_of::<u64>();
    match to.checked_sub(from) {
        None | Some(0) => step,
        Some(distance) if distance >= step as u64 => step,
        Some(distance) if distance >= WORD as u64 => distance as usize,
        Some(_) if step >= WORD => WORD,
        Some(_) => 1,
    }
}

/// Reads or writes `length` bytes of another process's memory. Waits for that process's userfaultfd context if
/// necessary. Returns the number of copied bytes. `part` gets an address and the number of bytes that were already
/// copied, and copies the rest. If `part` fails, it returns the error and the number of bytes that it copied.
fn moved(
    current: &Current<'_>,
    userfaults: &Userfaults,
    space: &Arc<Space>,
    (address, length): (VirtAddr, usize),
    access: Access,
    mut part: impl FnMut(VirtAddr, usize) -> Result<(), (FaultError, usize)>,
) -> Result<usize, Errno> {
    let mut done = 0;
    let result = userfaults.awaiting(current.thread, space, || {
        let at = VirtAddr::new(address.as_u64() + done as u64);
        match current.reclaim().retry(|| part(at, done)) {
            Ok(()) => done = length,
            Err((error, count)) => {
                done += count;
                let at = VirtAddr::new(at.as_u64() + count as u64);
                if let FaultError::Watched(fault) = error {
                    return Err(Awaited { at, access, fault });
                }
            }
        }
        Ok(())
    });
    match (result, done) {
        (_, 0) => Err(Errno::EFAULT),
        (Ok(()) | Err(_), done) => Ok(done),
    }
}

fn process_vm_readv(
    current: &Current<'_>,
    tasks: &Tasks,
    userfaults: &Userfaults,
    arguments: &Arguments,
) -> CallResult {
    let Some(wanted) = RemoteCopy::new(current, tasks, arguments)? else {
        return Ok(0);
    };
    let mut sink = Sink::user(current.user, &wanted.own);
    wanted.each(|from, step| {
        let mut buffer = [0; CHUNK];
        let mut step = step.min(sink.left());
        if let Some((to, room)) = sink.front().filter(|_| wanted.is_own) {
            step = apart(from.as_u64(), to, within_page(from, step.min(room)));
        }
        let bytes = &mut buffer[..step];
        let (space, pages) = (&wanted.space, (from, step));
        let read = moved(
            current,
            userfaults,
            space,
            pages,
            Access::READ,
            |at, done| space.read(at, &mut bytes[done..]),
        )?;
        let count = sink.put(&buffer[..read])?;
        Ok(Copied {
            wanted: step,
            count,
        })
    })
}

fn process_vm_writev(
    current: &Current<'_>,
    tasks: &Tasks,
    userfaults: &Userfaults,
    arguments: &Arguments,
) -> CallResult {
    let Some(wanted) = RemoteCopy::new(current, tasks, arguments)? else {
        return Ok(0);
    };
    let mut source = Source::user(current.user, &wanted.own);
    wanted.each(|to, step| {
        let mut buffer = [0; CHUNK];
        let mut step = step.min(source.left());
        if let Some((from, room)) = source.front().filter(|_| wanted.is_own) {
            step = apart(from, to.as_u64(), within_page(to, step.min(room)));
        }
        let taken = source.take(&mut buffer[..step])?;
        let bytes = &buffer[..taken];
        let (space, pages) = (&wanted.space, (to, taken));
        let count = moved(
            current,
            userfaults,
            space,
            pages,
            Access::WRITE,
            |at, done| space.write(at, &bytes[done..]),
        )?;
        Ok(Copied {
            wanted: step,
            count,
        })
    })
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

    #[test]
    fn what_overlaps_is_copied_in_parts() {
        for (from, to, step, part) in [
            (100, 100, 64, 64),
            (100, 50, 64, 64),
            (100, 164, 64, 64),
            (100, 163, 64, 63),
            (100, 108, 64, 8),
            (100, 101, 64, 8),
            (100, 101, 7, 1),
        ] {
            assert_eq!(apart(from, to, step), part, "{from} {to} {step}");
        }
    }
}
