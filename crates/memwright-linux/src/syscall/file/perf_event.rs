//! `perf_event_open` (Linux 7.2 `kernel/events/core.c`). The only supported events are uprobes. They count how often a
//! thread executes an instruction of a file.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use alloc::{boxed::Box, sync::Arc};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{abi_struct, errno::Errno};
use memwright_linux_tasks::{
    perf_event::{EventFile, UPROBE},
    probes::{Probe, Probes, Refused},
    process::{Tasks, Thread},
};
use memwright_linux_vfs::fs::{inode::Body, open::OpenRequest, open_file::OpenFile, vfs::Vfs};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[real(
    raw::__NR_perf_event_open,
    "perf_event_open",
    &[Kind::In(64), Kind::Int, Kind::Int, Kind::Int, Kind::Hex],
    handler!(perf_event_open, tasks, probes),
)];

/// `PERF_FLAG_FD_CLOEXEC` of `linux/perf_event.h`.
const CLOSE_ON_EXEC: u64 = 8;
/// The flag `disabled` of `struct perf_event_attr`.
const DISABLED: u64 = 1;
/// The flags `exclude_kernel`, `exclude_hv` and `exclude_idle`. They have no effect: a uprobe counts no events in the
/// kernel, in a hypervisor or while idle.
const EXCLUSIONS: u64 = 1 << 5 | 1 << 6 | 1 << 7;

abi_struct! {
    /// The first 72 bytes of `struct perf_event_attr` (`linux/perf_event.h`).
    pub struct EventAttributes {
        /// The type of the event (`PERF_TYPE_`).
        pub kind: u32,
        /// Size of the structure in bytes.
        pub size: u32,
        /// The type-specific configuration.
        pub config: u64,
        /// Number of events between two samples.
        pub sample_period: u64,
        /// The values that a sample contains.
        pub sample_type: u64,
        /// Values that a read returns besides the count.
        pub read_format: u64,
        /// Flags.
        pub flags: u64,
        /// The condition under which waiting threads are woken.
        pub wakeup: u32,
        /// The kind of a hardware breakpoint.
        pub breakpoint: u32,
        /// For a uprobe, the address of the path of its file.
        pub path: u64,
        /// For a uprobe, the offset in its file, in bytes.
        pub offset: u64,
    }
}

fn perf_event_open(
    current: &Current<'_>,
    tasks: &'static Tasks,
    probes: &'static Probes,
    arguments: &Arguments,
) -> CallResult {
    let [attributes, id, cpu, group, flags, _] = *arguments;
    current.check_heap()?;
    current.caller().check_open_files()?;
    if flags & !CLOSE_ON_EXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let attributes: EventAttributes = current.user.read_value(attributes)?;
    check(&attributes, int(cpu), int(group))?;
    let thread = counted(current, tasks, int(id))?;
    let path = current.user.read_path(attributes.path)?;
    let start = current.caller().path_start(raw::AT_FDCWD, &path)?;
    let file = current
        .caller()
        .open_path(&start, &path, OpenRequest::new(raw::O_RDONLY, 0)?)?;
    let enabled = attributes.flags & DISABLED == 0;
    let vfs = current.vfs();
    let probe = probe(vfs, file, attributes.offset, &thread, enabled)?;
    let event = Box::new(EventFile::new(probes, tasks, probe)?);
    let open = vfs
        .mounts
        .open_anonymous(vfs, "[perf_event]", raw::O_RDWR, event);
    let close = if flags & CLOSE_ON_EXEC != 0 {
        raw::O_CLOEXEC
    } else {
        0
    };
    current.caller().add_descriptor(open, close)
}

/// Checks the attributes. Accepts only an event that counts the hits of a uprobe by one thread on all CPUs. Returns
/// `ENOENT` for other types, like Linux does for hardware events on a machine without that hardware.
fn check(attributes: &EventAttributes, cpu: i32, group: i32) -> Result<(), Errno> {
    if (attributes.size as usize) < <EventAttributes as memwright_linux_abi::abi::Plain>::SIZE {
        return Err(Errno::E2BIG);
    }
    if attributes.kind != UPROBE {
        return Err(Errno::ENOENT);
    }
    let more = attributes.config | attributes.sample_period | attributes.sample_type;
    let flags = attributes.flags & !(DISABLED | EXCLUSIONS);
    if more | attributes.read_format | flags != 0 || cpu != -1 || group != -1 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}

/// Returns the thread whose events are counted: the thread with this id, or the caller for id 0.
fn counted(current: &Current<'_>, tasks: &Tasks, id: i32) -> Result<Arc<Thread>, Errno> {
    if id == 0 {
        return Ok(current.thread.clone());
    }
    let id = u32::try_from(id).map_err(|_| Errno::EOPNOTSUPP)?;
    let thread = tasks.thread(id).ok_or(Errno::ESRCH)?;
    if current
        .process()
        .identity
        .may_look_into(&thread.process.identity)
    {
        Ok(thread)
    } else {
        Err(Errno::EACCES)
    }
}

fn probe(
    vfs: &Vfs,
    file: Arc<OpenFile>,
    offset: u64,
    thread: &Thread,
    enabled: bool,
) -> Result<Probe, Errno> {
    let mut code = [0; 16];
    let read = match &file.inode().body {
        Body::Regular(regular) if offset < regular.size() => {
            regular.read_at(vfs, offset, &mut code)?
        }
        _ => return Err(Errno::EINVAL),
    };
    Probe::new(file, offset, &code[..read], thread, enabled).map_err(|refused| match refused {
        Refused::Invalid => Errno::EINVAL,
        Refused::Bound => Errno::EOPNOTSUPP,
    })
}

#[cfg(test)]
mod tests {
    use super::{DISABLED, Errno, EventAttributes, UPROBE, check};

    #[test]
    fn only_counts_of_probes() {
        let good = EventAttributes {
            kind: UPROBE,
            size: 72,
            flags: DISABLED,
            ..EventAttributes::default()
        };
        let with = |change: fn(&mut EventAttributes)| {
            let mut attributes = good;
            change(&mut attributes);
            check(&attributes, -1, -1)
        };
        assert_eq!(with(|_| ()), Ok(()));
        assert_eq!(with(|attributes| attributes.size = 64), Err(Errno::E2BIG));
        assert_eq!(with(|attributes| attributes.kind = 0), Err(Errno::ENOENT));
        for refused in [
            (|attributes| attributes.config = 1) as fn(&mut EventAttributes),
            |attributes| attributes.sample_period = 1,
            |attributes| attributes.read_format = 1,
            |attributes| attributes.flags = 2,
        ] {
            assert_eq!(with(refused), Err(Errno::EOPNOTSUPP));
        }
        assert_eq!(check(&good, 0, -1), Err(Errno::EOPNOTSUPP));
        assert_eq!(check(&good, -1, 3), Err(Errno::EOPNOTSUPP));
    }
}
