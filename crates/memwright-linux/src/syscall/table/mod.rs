//! The table of system calls: number, name, arguments, handler.
//!
//! The table determines dispatch, the output of `--strace`, the lists of unimplemented calls and of stubs in the
//! report, and the bad-pointer test.

mod numbers;

use crate::{
    context::INDEXED,
    syscall::{
        call::{Kind, Status, SystemCall},
        file, memory, numa, process, system,
    },
};
use numbers::NUMBERS;

/// The entries that the modules of the groups define.
const GROUPS: &[&[SystemCall]] = &[
    file::cache::CALLS,
    file::change::CALLS,
    file::control::CALLS,
    file::descriptor::CALLS,
    file::epoll::CALLS,
    file::eventfd::CALLS,
    file::io_uring::CALLS,
    file::list::CALLS,
    file::memory::CALLS,
    file::mount::CALLS,
    file::name::CALLS,
    numa::CALLS,
    file::open::CALLS,
    file::perf_event::CALLS,
    file::pidfd::CALLS,
    file::pipe::CALLS,
    file::place::CALLS,
    file::poll::CALLS,
    file::remote::CALLS,
    file::select::CALLS,
    file::signalfd::CALLS,
    file::socket::CALLS,
    file::splice::CALLS,
    file::status::CALLS,
    file::timerfd::CALLS,
    file::transfer::CALLS,
    file::userfaultfd::CALLS,
    file::xattr::CALLS,
    memory::CALLS,
    process::clone::CALLS,
    process::identity::CALLS,
    process::priority::CALLS,
    process::rseq::CALLS,
    system::name::CALLS,
    system::posix_timer::CALLS,
    system::set_time::CALLS,
];

/// All calls, by number.
pub static CALLS: [SystemCall; NUMBERS.len()] = {
    let mut calls = [NUMBERS[0]; NUMBERS.len()];
    let mut row = 0;
    while row < NUMBERS.len() {
        calls[row] = NUMBERS[row];
        row += 1;
    }
    let mut group = 0;
    while group < GROUPS.len() {
        let mut member = 0;
        while member < GROUPS[group].len() {
            let call = GROUPS[group][member];
            calls[INDEX[call.number as usize] as usize - 1] = call;
            member += 1;
        }
        group += 1;
    }
    calls
};

/// The position of each number in [`CALLS`], plus one; 0 for a number without a call.
const INDEX: [u16; INDEXED] = {
    let mut index = [0; INDEXED];
    let mut position = 0;
    while position < NUMBERS.len() {
        index[NUMBERS[position].number as usize] = position as u16 + 1;
        position += 1;
    }
    index
};

/// The entry of each call number, so that a lookup is a single load.
static BY_NUMBER: [Option<&SystemCall>; INDEXED] = {
    let mut rows = [None; INDEXED];
    let mut row = 0;
    while row < NUMBERS.len() {
        rows[NUMBERS[row].number as usize] = Some(&CALLS[row]);
        row += 1;
    }
    rows
};

/// Returns the entry of the call with this number.
#[inline]
pub fn find(number: u64) -> Option<&'static SystemCall> {
    *BY_NUMBER.get(usize::try_from(number).ok()?)?
}

/// Writes the table as lines `number name status arguments`. `docs/` and the bad-pointer test use this format.
///
/// # Errors
/// The errors of writing to `out`.
pub fn write_listing(out: &mut dyn core::fmt::Write) -> core::fmt::Result {
    for call in &CALLS {
        let status = match call.status {
            Status::Real => "real",
            Status::Missing => "missing",
        };
        write!(out, "{} {} {status}", call.number, call.name)?;
        for kind in call.arguments {
            match kind {
                Kind::Int | Kind::Unsigned | Kind::Hex => write!(out, " number")?,
                Kind::Mode => write!(out, " mode")?,
                Kind::Fd => write!(out, " fd")?,
                Kind::DirFd => write!(out, " dirfd")?,
                Kind::Path => write!(out, " path")?,
                Kind::Text => write!(out, " text")?,
                Kind::Strings => write!(out, " strings")?,
                Kind::In(size) => write!(out, " in:{size}")?,
                Kind::Out(size) => write!(out, " out:{size}")?,
                Kind::InOut(size) => write!(out, " inout:{size}")?,
                Kind::InBuffer(length) => write!(out, " inbuffer:{length}")?,
                Kind::OutBuffer(length) => write!(out, " outbuffer:{length}")?,
                Kind::Vectors(count) => write!(out, " vectors:{count}")?,
                Kind::Signal => write!(out, " signal")?,
                Kind::Flags(_) => write!(out, " flags")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{CALLS, INDEXED, find, write_listing};
    use alloc::string::String;

    #[test]
    fn calls_are_found_by_number() {
        for call in &CALLS {
            assert!(usize::from(call.number) < INDEXED);
            let found = find(call.number.into()).expect("indexed");
            assert_eq!(found.name, call.name);
            assert!(call.arguments.len() <= 6, "{}", call.name);
        }
        assert!(find(400).is_none());
        assert!(find(u64::MAX).is_none());
        assert_eq!(find(39).map(|call| call.name), Some("getpid"));
    }

    #[test]
    fn numbers_rise() {
        assert!(CALLS.windows(2).all(|pair| pair[0].number < pair[1].number));
    }

    #[test]
    fn the_listing_has_a_line_per_call() {
        let mut listing = String::new();
        write_listing(&mut listing).expect("a string");
        assert_eq!(listing.lines().count(), CALLS.len());
        assert!(listing.contains("9 mmap real number number flags flags fd number\n"));
    }
}
