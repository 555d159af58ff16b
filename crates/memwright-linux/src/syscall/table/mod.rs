//! Every system call: number, name, arguments, handler.
//!
//! The table drives dispatch, `--strace`, the lists of missing calls and of stubs in the account,
//! and the bad-pointer test.

mod flags;
mod numbers;

use super::{Handler, file};
use numbers::NUMBERS;

/// What one argument is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A signed number.
    Int,
    /// An unsigned number.
    Unsigned,
    /// A number best read in hexadecimal, or an address that is not accessed.
    Hex,
    /// File-permission bits, octal.
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
    /// This many bytes that are read.
    In(u16),
    /// This many bytes that are written.
    Out(u16),
    /// This many bytes that are read and written.
    InOut(u16),
    /// Bytes that are read; the argument with this index is their number.
    InBuffer(u8),
    /// Bytes that are written; the argument with this index is their number.
    OutBuffer(u8),
    /// `struct iovec`s; the argument with this index is their number.
    Vectors(u8),
    /// A signal number.
    Signal,
    /// Bits with names.
    Flags(&'static [(u64, &'static str)]),
}

/// How honest a call is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// It does what Linux does.
    Real,
    /// It returns success without effect; the account lists it.
    Stub,
    /// It is known by name only and returns `ENOSYS`; the account lists it.
    Missing,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub struct SystemCall {
    /// The number in RAX.
    pub number: u16,
    /// The name in the manual.
    pub name: &'static str,
    /// The arguments, as many as there are.
    pub arguments: &'static [Kind],
    /// How honest it is.
    pub status: Status,
    /// The code.
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

/// Every call, by number.
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

/// Numbers that may be looked up in one step.
const INDEXED: usize = 512;

/// Where each number stands in [`CALLS`], plus one; 0 for a number without a call.
const INDEX: [u16; INDEXED] = {
    let mut index = [0; INDEXED];
    let mut position = 0;
    while position < NUMBERS.len() {
        index[NUMBERS[position].number as usize] = position as u16 + 1;
        position += 1;
    }
    index
};

/// The row of each number, so that a call costs one load.
static BY_NUMBER: [Option<&SystemCall>; INDEXED] = {
    let mut rows = [None; INDEXED];
    let mut row = 0;
    while row < NUMBERS.len() {
        rows[NUMBERS[row].number as usize] = Some(&CALLS[row]);
        row += 1;
    }
    rows
};

/// What serves each number below [`INDEXED`]: an ordinary call costs one load.
pub(crate) type Handlers = [Handler; INDEXED];

/// The calls that do what Linux does go to their handlers at once, the others by way of the account.
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

/// Every call goes by way of the account and the trace.
static TRACED: Handlers = OBSERVED;
const OBSERVED: Handlers = [super::observed; INDEXED];

/// What serves a thread's system calls, with or without a trace of them.
pub(crate) fn handlers(traced: bool) -> &'static Handlers {
    if traced { &TRACED } else { &DIRECT }
}

/// The call with this number.
#[inline]
pub fn find(number: u64) -> Option<&'static SystemCall> {
    *BY_NUMBER.get(usize::try_from(number).ok()?)?
}

/// Writes the table as lines `number name status arguments`, as `docs/` and the bad-pointer test
/// use it.
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
