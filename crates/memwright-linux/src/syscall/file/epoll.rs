//! The `epoll` system calls.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::{
        call::{Kind, SystemCall, handler, int, real},
        file::poll::{milliseconds_argument, timeout_argument},
        process::signal::with_signal_mask,
    },
};
use alloc::{boxed::Box, sync::Arc};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{abi::Plain, errno::Errno};
use memwright_linux_base::sync::PausePoints;
use memwright_linux_vfs::{
    fs::{
        OpenFile,
        abilities::Polling,
        epoll::{Epoll, EpollFile, Event, FoundEvents, Interest},
    },
    user::check_range,
};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_epoll_create,
        "epoll_create",
        &[Kind::Int],
        handler!(epoll_create),
    ),
    real(
        raw::__NR_epoll_create1,
        "epoll_create1",
        &[Kind::Hex],
        handler!(epoll_create1),
    ),
    real(
        raw::__NR_epoll_ctl,
        "epoll_ctl",
        &[Kind::Fd, Kind::Int, Kind::Fd, Kind::In(12)],
        handler!(epoll_ctl),
    ),
    real(
        raw::__NR_epoll_wait,
        "epoll_wait",
        &[Kind::Fd, Kind::Hex, Kind::Int, Kind::Int],
        handler!(epoll_wait),
    ),
    real(
        raw::__NR_epoll_pwait,
        "epoll_pwait",
        &[
            Kind::Fd,
            Kind::Hex,
            Kind::Int,
            Kind::Int,
            Kind::In(8),
            Kind::Unsigned,
        ],
        handler!(epoll_pwait),
    ),
    real(
        raw::__NR_epoll_pwait2,
        "epoll_pwait2",
        &[
            Kind::Fd,
            Kind::Hex,
            Kind::Int,
            Kind::In(16),
            Kind::In(8),
            Kind::Unsigned,
        ],
        handler!(epoll_pwait2),
    ),
];

fn make(current: &Current<'_>, flags: u32) -> CallResult {
    if flags & !raw::EPOLL_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    current.check_heap()?;
    current.caller().check_open_files()?;
    let file = EpollFile {
        epoll: Arc::new(Epoll::new(current.process().identity.user())),
    };
    let vfs = current.vfs();
    let open = vfs
        .mounts
        .open_anonymous(vfs, "[eventpoll]", raw::O_RDWR, Box::new(file));
    current.caller().add_descriptor(open, flags)
}

fn epoll_create(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    // The size has no effect but must be positive.
    if arguments[0] as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    make(current, 0)
}

fn epoll_create1(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    make(current, arguments[0] as u32)
}

fn epoll_ctl(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, operation, target, event, ..] = arguments;
    let operation = operation as u32;
    let mut interest = Interest::default();
    if operation != raw::EPOLL_CTL_DEL {
        let event: Event = current.user.read_value(event)?;
        interest = Interest {
            events: event.events,
            data: event.data,
        };
    }
    let files = current.files();
    let open = files.get_usable(int(number))?;
    let target = int(target);
    let watched = files.get_usable(target)?;
    if watched.file.polling() == Polling::Always {
        return Err(Errno::EPERM);
    }
    let epoll = &open.as_kind::<EpollFile>().ok_or(Errno::EINVAL)?.epoll;
    if Arc::ptr_eq(&open, &watched) {
        return Err(Errno::EINVAL);
    }
    match operation {
        raw::EPOLL_CTL_ADD => {
            let inner = watched.as_kind::<EpollFile>().map(|file| &file.epoll);
            if interest.is_exclusive() && (inner.is_some() || !interest.may_be_exclusive()) {
                return Err(Errno::EINVAL);
            }
            epoll.add(current, target, (&watched, inner), interest)?;
        }
        raw::EPOLL_CTL_MOD if interest.is_exclusive() => return Err(Errno::EINVAL),
        raw::EPOLL_CTL_MOD => epoll.change(current, target, &watched, interest)?,
        raw::EPOLL_CTL_DEL => epoll.remove(target, &watched)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// Number of events that `wait` stores between two scheduling points.
const EVENTS: u32 = 128;

/// Waits for events and stores them at `address`. Returns the number of stored events.
fn wait(
    current: &Current<'_>,
    open: &OpenFile,
    address: u64,
    most: usize,
    deadline: Option<u64>,
) -> CallResult {
    let epoll = &open.as_kind::<EpollFile>().ok_or(Errno::EINVAL)?.epoll;
    let mut found = FoundEvents::new();
    if most > FoundEvents::INLINE {
        // The wait allocates a list for the maximum number of events: fail before the wait if the heap is in its
        // reserve.
        current.check_heap()?;
    }
    epoll.wait(current, most, deadline, &mut found)?;
    let mut points = PausePoints::every(EVENTS);
    for (index, one) in found.iter().enumerate() {
        points.round();
        let place = address + (index * Event::SIZE) as u64;
        if let Err(error) = current.user.write_value(place, &one.event) {
            epoll.return_events(found.iter().skip(index));
            return if index > 0 {
                Ok(index as u64)
            } else {
                Err(error)
            };
        }
    }
    Ok(found.len() as u64)
}

/// Checks the arguments that `epoll_wait`, `epoll_pwait` and `epoll_pwait2` have in common. Returns the open file and
/// the maximum number of events.
fn wait_arguments(
    current: &Current<'_>,
    arguments: &Arguments,
) -> Result<(Arc<OpenFile>, usize), Errno> {
    let &[number, address, most, ..] = arguments;
    let most = usize::try_from(most as i32).map_err(|_| Errno::EINVAL)?;
    if most == 0 || most > i32::MAX as usize / Event::SIZE {
        return Err(Errno::EINVAL);
    }
    check_range(address, most * Event::SIZE)?;
    let open = current.files().get_usable(int(number))?;
    Ok((open, most))
}

fn epoll_wait(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let deadline = milliseconds_argument(current, arguments[3]);
    let (open, most) = wait_arguments(current, arguments)?;
    wait(current, &open, arguments[1], most, deadline)
}

fn epoll_pwait(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let deadline = milliseconds_argument(current, arguments[3]);
    with_signal_mask(current, arguments[4], arguments[5], || {
        let (open, most) = wait_arguments(current, arguments)?;
        wait(current, &open, arguments[1], most, deadline)
    })
}

fn epoll_pwait2(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let deadline = timeout_argument(current, arguments[3])?;
    with_signal_mask(current, arguments[4], arguments[5], || {
        let (open, most) = wait_arguments(current, arguments)?;
        wait(current, &open, arguments[1], most, deadline)
    })
}
