//! Every system call: number, name, arguments, handler.
//!
//! The table drives dispatch, `--strace`, the lists of missing calls and of stubs in the account,
//! and the bad-pointer test.

use super::Handler;

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
