//! `rseq`: restartable sequences (Linux 6.18 `kernel/rseq.c`).

use crate::{
    context::{Arguments, CallResult},
    restartable::{Place, register, unregister},
    syscall::call::{Kind, SystemCall, real},
};
use linux_raw_sys::general as raw;
use memwright_linux_tasks::process::{Registration, RegistrationChange, Thread};
use memwright_linux_vfs::user::UserMemory;

/// The entry of `rseq` in the system-call table.
pub const CALLS: &[SystemCall] = &[real(
    raw::__NR_rseq,
    "rseq",
    &[Kind::Hex, Kind::Unsigned, Kind::Hex, Kind::Hex],
    |context, arguments| {
        let place = Place::of(context.memory());
        rseq(
            context.current.user,
            context.current.thread,
            place,
            arguments,
        )
    },
)];

/// Implements `rseq`. `place` contains the CPU and the node on which the thread runs.
fn rseq(user: UserMemory<'_>, thread: &Thread, place: Place, arguments: &Arguments) -> CallResult {
    let &[address, length, flags, signature, ..] = arguments;
    let wanted = Registration {
        address,
        length: length as u32,
        signature: signature as u32,
    };
    let present = *thread.registration.lock();
    match present.change(wanted, flags as u32)? {
        RegistrationChange::Register => register(user, thread, wanted, place)?,
        RegistrationChange::Unregister => unregister(user, thread)?,
    }
    Ok(0)
}
