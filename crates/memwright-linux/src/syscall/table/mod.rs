//! The table of system calls: number, name, arguments, handler.
//!
//! The table drives dispatch, `--strace`, the lists of unimplemented calls and of stubs in the report, and the
//! bad-pointer test.

mod flags;
mod numbers;

use super::{Handler, file};
use crate::context::{Handlers, INDEXED};
use numbers::NUMBERS;

/// The type of an argument.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A signed number.
    Int,
    /// An unsigned number.
    Unsigned,
    /// A number that is printed in hexadecimal, or an address that is not accessed.
    Hex,
    /// File permission bits, printed in octal.
    Mode,
    /// A file descriptor.
    Fd,
    /// A directory descriptor or `AT_FDCWD`.
    DirFd,
    /// A NUL-terminated path that is read.
    Path,
    /// A NUL-terminated string that is read.
    Text,
    /// A NULL-terminated array of strings that is read.
    Strings,
    /// A buffer of this many bytes that the call reads.
    In(u16),
    /// A buffer of this many bytes that the call writes.
    Out(u16),
    /// A buffer of this many bytes that the call reads and writes.
    InOut(u16),
    /// A buffer that the call reads. The argument with this index is its length in bytes.
    InBuffer(u8),
    /// A buffer that the call writes. The argument with this index is its length in bytes.
    OutBuffer(u8),
    /// An array of `struct iovec`. The argument with this index is the number of its elements.
    Vectors(u8),
    /// A signal number.
    Signal,
    /// Flags, printed by name.
    Flags(&'static [(u64, &'static str)]),
}

/// How complete the implementation of a call is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// It has the semantics of Linux.
    Real,
    /// It returns success without having an effect. The report lists it.
    Stub,
    /// Only its name is known; it returns `ENOSYS`. The report lists it.
    Missing,
}

/// An entry of the table.
#[derive(Clone, Copy)]
pub struct SystemCall {
    /// The number in RAX.
    pub number: u16,
    /// The name, as in the manual.
    pub name: &'static str,
    /// The arguments.
    pub arguments: &'static [Kind],
    /// How complete the implementation is.
    pub status: Status,
    /// The function that implements it.
    pub handler: Handler,
}

const fn real(
    number: u16,
    name: &'static str,
    arguments: &'static [Kind],
    handler: Handler,
) -> SystemCall {
    SystemCall {
        number,
        name,
        arguments,
        status: Status::Real,
        handler,
    }
}

const fn stub(
    number: u16,
    name: &'static str,
    arguments: &'static [Kind],
    handler: Handler,
) -> SystemCall {
    SystemCall {
        number,
        name,
        arguments,
        status: Status::Stub,
        handler,
    }
}

const fn missing(number: u16, name: &'static str) -> SystemCall {
    let handler = super::missing;
    SystemCall {
        number,
        name,
        arguments: &[],
        status: Status::Missing,
        handler,
    }
}

/// All calls, by number.
pub static CALLS: [SystemCall; NUMBERS.len()] = {
    let mut calls = [NUMBERS[0]; NUMBERS.len()];
    let mut row = 0;
    while row < NUMBERS.len() {
        calls[row] = NUMBERS[row];
        row += 1;
    }
    let mut group = 0;
    while group < file::GROUPS.len() {
        let mut member = 0;
        while member < file::GROUPS[group].len() {
            let call = file::GROUPS[group][member];
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

/// The entry of each number, so that a lookup is a single load.
static BY_NUMBER: [Option<&SystemCall>; INDEXED] = {
    let mut rows = [None; INDEXED];
    let mut row = 0;
    while row < NUMBERS.len() {
        rows[NUMBERS[row].number as usize] = Some(&CALLS[row]);
        row += 1;
    }
    rows
};

/// Handlers for threads without a trace. Calls with the semantics of Linux are dispatched directly; stubs and
/// unimplemented calls pass through the counters.
static DIRECT: Handlers = {
    let mut handlers = OBSERVED;
    let mut row = 0;
    while row < CALLS.len() {
        if let Status::Real = CALLS[row].status {
            handlers[CALLS[row].number as usize] = CALLS[row].handler;
        }
        row += 1;
    }
    handlers
};

/// Handlers for traced threads: every call passes through the counters and the trace.
static TRACED: Handlers = OBSERVED;
const OBSERVED: Handlers = [super::observed; INDEXED];

/// Returns the handlers of a thread's system calls, with or without a trace.
pub(crate) fn handlers(traced: bool) -> &'static Handlers {
    if traced { &TRACED } else { &DIRECT }
}

/// Returns the call with this number.
#[inline]
pub fn find(number: u64) -> Option<&'static SystemCall> {
    *BY_NUMBER.get(usize::try_from(number).ok()?)?
}

/// Writes the table as lines `number name status arguments`, in the format that `docs/` and the bad-pointer test use.
///
/// # Errors
/// Those of `out`.
pub fn write_listing(out: &mut dyn core::fmt::Write) -> core::fmt::Result {
    for call in &CALLS {
        let status = match call.status {
            Status::Real => "real",
            Status::Stub => "stub",
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
    use super::{CALLS, INDEXED, Status, find, write_listing};
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
        assert!(CALLS.iter().any(|call| call.status == Status::Stub));
    }
}
