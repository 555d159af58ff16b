//! The system calls of io_uring.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    io_uring::{
        Buffers, Ring,
        layout::{
            COMPLETE_ENTRIES, COMPLETE_FLAGS, COMPLETE_HEAD, COMPLETE_MASK, COMPLETE_TAIL,
            COMPLETIONS, DROPPED, OVERFLOW, SUBMIT_ENTRIES, SUBMIT_FLAGS, SUBMIT_HEAD, SUBMIT_MASK,
            SUBMIT_TAIL, Sizes,
        },
    },
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use alloc::{boxed::Box, sync::Arc};
use linux_raw_sys::{general as raw, io_uring as uapi};
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_memory::userfault::Userfaults;
use memwright_linux_vfs::{
    fs::OpenFile,
    identity::{Capabilities, Resource},
};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_io_uring_setup,
        "io_uring_setup",
        &[Kind::Unsigned, Kind::InOut(120)],
        handler!(io_uring_setup, memory),
    ),
    real(
        raw::__NR_io_uring_enter,
        "io_uring_enter",
        &[
            Kind::Fd,
            Kind::Unsigned,
            Kind::Unsigned,
            Kind::Hex,
            Kind::Hex,
            Kind::Unsigned,
        ],
        handler!(io_uring_enter),
    ),
    real(
        raw::__NR_io_uring_register,
        "io_uring_register",
        &[Kind::Fd, Kind::Unsigned, Kind::Hex, Kind::Unsigned],
        handler!(io_uring_register, memory, userfaults),
    ),
];

/// The words of `struct io_uring_params`: sizes, flags and features, followed by the offsets of the fields of both
/// rings.
type Parameters = [u32; 30];

/// Implements `io_uring_setup`.
fn io_uring_setup(
    current: &Current<'_>,
    memory: &Arc<Memory>,
    arguments: &Arguments,
) -> CallResult {
    let &[entries, address, ..] = arguments;
    let mut words: Parameters = current.user.read_value(address)?;
    let [_, completions, flags, _, _, _, _, reserved @ ..] = words;
    if reserved[..3] != [0; 3] {
        return Err(Errno::EINVAL);
    }
    if flags & !(uapi::IORING_SETUP_CQSIZE | uapi::IORING_SETUP_CLAMP) != 0 {
        return Err(Errno::EINVAL);
    }
    let completions = (flags & uapi::IORING_SETUP_CQSIZE != 0).then_some(completions);
    let clamped = flags & uapi::IORING_SETUP_CLAMP != 0;
    let sizes = Sizes::new(entries as u32, completions, clamped).ok_or(Errno::EINVAL)?;
    current.check_heap()?;
    current.caller().check_open_files()?;
    let ring = Ring::new(memory, current.reclaim(), sizes)?;
    words[0] = sizes.submissions;
    words[1] = sizes.completions;
    words[5] = uapi::IORING_FEAT_SINGLE_MMAP | uapi::IORING_FEAT_SUBMIT_STABLE;
    words[10..20].copy_from_slice(&[
        SUBMIT_HEAD,
        SUBMIT_TAIL,
        SUBMIT_MASK,
        SUBMIT_ENTRIES,
        SUBMIT_FLAGS,
        DROPPED,
        sizes.array(),
        0,
        0,
        0,
    ]);
    words[20..].copy_from_slice(&[
        COMPLETE_HEAD,
        COMPLETE_TAIL,
        COMPLETE_MASK,
        COMPLETE_ENTRIES,
        OVERFLOW,
        COMPLETIONS,
        COMPLETE_FLAGS,
        0,
        0,
        0,
    ]);
    current.user.write_value(address, &words)?;
    let vfs = current.vfs();
    let open = vfs
        .mounts
        .open_anonymous(vfs, "[io_uring]", raw::O_RDWR, Box::new(ring));
    current.caller().add_descriptor(open, raw::O_CLOEXEC)
}

/// Returns the open file of a descriptor. Checks that the file is a ring.
fn opened(current: &Current<'_>, number: u64) -> Result<Arc<OpenFile>, Errno> {
    let open = current.files().get_usable(int(number))?;
    match open.as_kind::<Ring>() {
        Some(_) => Ok(open),
        None => Err(Errno::EOPNOTSUPP),
    }
}

/// Implements `io_uring_enter`. The flags for signal masks and timeouts are not supported.
fn io_uring_enter(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, submissions, completions, flags, ..] = arguments;
    if flags as u32 & !uapi::IORING_ENTER_GETEVENTS != 0 {
        return Err(Errno::EINVAL);
    }
    let open = opened(current, number)?;
    let ring = open.as_kind::<Ring>().ok_or(Errno::EOPNOTSUPP)?;
    let done = match submissions as u32 {
        0 => 0,
        most => ring.submit(current, most)?,
    };
    if flags as u32 & uapi::IORING_ENTER_GETEVENTS != 0 {
        match ring.wait(current, completions as u32) {
            Err(error) if done == 0 => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(done.into())
}

/// Implements `io_uring_register` for buffers. Other resources are not supported.
fn io_uring_register(
    current: &Current<'_>,
    memory: &Arc<Memory>,
    userfaults: &Userfaults,
    arguments: &Arguments,
) -> CallResult {
    let &[number, what, address, count, ..] = arguments;
    let open = opened(current, number)?;
    let ring = open.as_kind::<Ring>().ok_or(Errno::EOPNOTSUPP)?;
    let is = |known: uapi::io_uring_register_op| what as u32 == known as u32;
    if is(uapi::io_uring_register_op::IORING_UNREGISTER_BUFFERS) {
        if address != 0 || count as u32 != 0 {
            return Err(Errno::EINVAL);
        }
        return ring.unregister(current).map(|()| 0);
    }
    if !is(uapi::io_uring_register_op::IORING_REGISTER_BUFFERS) || count as u32 == 0 {
        return Err(Errno::EINVAL);
    }
    let pieces = current.user.read_vectors(address, count)?;
    let process = current.process();
    let space = process.space().ok_or(Errno::EFAULT)?;
    let free = process
        .identity
        .credentials
        .lock()
        .has(Capabilities::LOCK_MEMORY);
    let limit = (!free).then(|| process.identity.soft_limit(Resource::Locked) / 4096);
    ring.register(current, || {
        Buffers::pin(current, memory, userfaults, &space, &pieces, limit)
    })?;
    Ok(0)
}
