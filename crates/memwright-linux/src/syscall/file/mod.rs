//! System calls on files: one module per group, each with its table entries.

pub mod cache;
pub mod change;
pub mod control;
pub mod descriptor;
pub mod epoll;
pub mod eventfd;
pub mod io_uring;
pub mod list;
pub mod memory;
pub mod mount;
pub mod name;
pub mod open;
pub mod perf_event;
pub mod pidfd;
pub mod pipe;
pub mod place;
pub mod poll;
pub mod remote;
pub mod select;
pub mod signalfd;
pub mod socket;
mod splice;
pub mod status;
pub mod timerfd;
pub mod transfer;
pub mod userfaultfd;

use super::table::SystemCall;

/// The table entries of all groups.
pub const GROUPS: &[&[SystemCall]] = &[
    cache::CALLS,
    change::CALLS,
    control::CALLS,
    descriptor::CALLS,
    epoll::CALLS,
    eventfd::CALLS,
    io_uring::CALLS,
    list::CALLS,
    memory::CALLS,
    mount::CALLS,
    name::CALLS,
    super::numa::CALLS,
    open::CALLS,
    perf_event::CALLS,
    pidfd::CALLS,
    pipe::CALLS,
    place::CALLS,
    poll::CALLS,
    remote::CALLS,
    select::CALLS,
    signalfd::CALLS,
    socket::CALLS,
    splice::CALLS,
    status::CALLS,
    timerfd::CALLS,
    transfer::CALLS,
    userfaultfd::CALLS,
];

/// Converts an argument to a descriptor.
#[must_use]
pub const fn descriptor(argument: u64) -> i32 {
    argument as i32
}

/// Creates a table entry for a call with the semantics of Linux.
pub(crate) const fn real(
    number: u32,
    name: &'static str,
    arguments: &'static [super::table::Kind],
    handler: super::Handler,
) -> SystemCall {
    let status = super::table::Status::Real;
    SystemCall {
        number: number as u16,
        name,
        arguments,
        status,
        handler,
    }
}
