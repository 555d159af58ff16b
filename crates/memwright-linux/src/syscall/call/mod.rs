//! The entry of a system call in the system-call table, and the types of its arguments.

pub(crate) mod flags;

use crate::context::Handler;
use memwright_linux_abi::errno::Errno;

/// The type of a system call's argument.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A signed number.
    Int,
    /// An unsigned number.
    Unsigned,
    /// A number that is printed in hexadecimal, or an address that the call does not access.
    Hex,
    /// File permission bits, printed in octal.
    Mode,
    /// A file descriptor.
    Fd,
    /// A directory descriptor or `AT_FDCWD`.
    DirFd,
    /// The address of a NUL-terminated path that the call reads.
    Path,
    /// The address of a NUL-terminated string that the call reads.
    Text,
    /// The address of a NULL-terminated array of strings that the call reads.
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
    /// The call has the semantics of Linux.
    Real,
    /// The call is not implemented and returns `ENOSYS`; the table contains only its name. The report lists the call if
    /// a program uses it.
    Missing,
}

/// The entry of a system call in the table.
#[derive(Clone, Copy)]
pub struct SystemCall {
    /// The number in RAX.
    pub number: u16,
    /// The name, as in the manual pages.
    pub name: &'static str,
    /// The types of the arguments.
    pub arguments: &'static [Kind],
    /// How complete the implementation is.
    pub status: Status,
    /// The function that implements the call.
    pub handler: Handler,
}

/// Returns the handler of a system call: `handler!(function, port, ...)` calls `function` with the running thread, the
/// parts of the kernel that the methods `port` of [`Context`](crate::context::Context) return, and the arguments.
/// Profiles print the handler under the name of the function.
macro_rules! handler {
    (@path [] $name:ident $(, $port:ident)*) => {
        handler!(@named $name, [self::$name] $(, $port)*)
    };
    (@path [$($path:tt)+] $name:ident $(, $port:ident)*) => {
        handler!(@named $name, [$($path)+ $name] $(, $port)*)
    };
    (@path [$($path:tt)*] $module:ident :: $($rest:tt)+) => {
        handler!(@path [$($path)* $module ::] $($rest)+)
    };
    (@named $name:ident, [$($path:tt)+] $(, $port:ident)*) => {{
        fn $name(
            context: &$crate::context::Context<'_>,
            arguments: &$crate::context::Arguments,
        ) -> $crate::context::CallResult {
            $($path)+(&context.current, $(context.$port(),)* arguments)
        }
        $name
    }};
    ($($path:tt)+) => {
        handler!(@path [] $($path)+)
    };
}
pub(in crate::syscall) use handler;

/// Creates the entry of a call with the semantics of Linux.
pub(crate) const fn real(
    number: u32,
    name: &'static str,
    arguments: &'static [Kind],
    handler: Handler,
) -> SystemCall {
    SystemCall {
        number: number as u16,
        name,
        arguments,
        status: Status::Real,
        handler,
    }
}

/// Creates the entry of a call that is not implemented.
pub(crate) const fn missing(number: u32, name: &'static str) -> SystemCall {
    SystemCall {
        number: number as u16,
        name,
        arguments: &[],
        status: Status::Missing,
        handler: |_, _| Err(Errno::ENOSYS),
    }
}

/// Converts an argument to a signed 32-bit number, such as a descriptor.
#[must_use]
pub const fn int(argument: u64) -> i32 {
    argument as i32
}
