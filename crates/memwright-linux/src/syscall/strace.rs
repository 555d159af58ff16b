//! The trace of system calls (`--strace`), with one line of text per call.

use crate::{
    context::{Arguments, CallResult},
    syscall::call::{Kind, SystemCall},
};
use alloc::{format, string::String};
use core::fmt::Write;
use memwright_linux_abi::{
    Space,
    errno::Errno,
    host::{Channel, Channels},
};
use memwright_table::VirtAddr;

/// Maximum number of bytes of a string that are printed.
const SHOWN: usize = 64;

/// Formats the name and the arguments of a call. Must run before the call is executed, because the call can change the
/// memory to which the arguments point.
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "of each argument a line shows a part of fixed size"
)]
pub(super) fn describe(
    thread: u32,
    space: &Space,
    number: u64,
    call: Option<&'static SystemCall>,
    arguments: &Arguments,
) -> String {
    let mut text = format!("[{thread}] ");
    match call {
        Some(call) => {
            text.push_str(call.name);
            text.push('(');
            for (index, kind) in call.arguments.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                argument(space, &mut text, *kind, index, arguments);
            }
            if call.arguments.is_empty() && call.status == super::Status::Missing {
                text.push_str("...");
            }
            text.push(')');
        }
        None => text = format!("{text}syscall_{number}(...)"),
    }
    text
}

/// Appends the result to the line and writes the line.
pub(super) fn finish(
    channels: &dyn Channels,
    mut text: String,
    call: Option<&'static SystemCall>,
    result: &CallResult,
) {
    // Writing to a `String` cannot fail.
    let _ = match result {
        Ok(_) if call.is_some_and(|call| call.name.starts_with("exit")) => writeln!(text, " = ?"),
        Ok(value) if *value > 0xffff_ffff => writeln!(text, " = {value:#x}"),
        Ok(value) => writeln!(text, " = {value}"),
        Err(errno) if *errno >= Errno::ERESTARTSYS => writeln!(text, " = ? {errno:?}"),
        Err(errno) => writeln!(text, " = -1 {errno:?}"),
    };
    channels.output(Channel::SystemCalls, text.as_bytes());
}

fn argument(space: &Space, text: &mut String, kind: Kind, index: usize, arguments: &Arguments) {
    let value = arguments[index];
    let _ = match kind {
        Kind::DirFd if value as i32 == linux_raw_sys::general::AT_FDCWD => {
            write!(text, "AT_FDCWD")
        }
        Kind::Int | Kind::Fd | Kind::DirFd => write!(text, "{}", value as i32),
        Kind::Unsigned => write!(text, "{value}"),
        Kind::Mode => write!(text, "{:#o}", value as u32),
        Kind::Signal => match memwright_linux_abi::signal::Signal::new(value) {
            Some(signal) => write!(text, "{signal}"),
            None => write!(text, "{value}"),
        },
        Kind::Path | Kind::Text => string(space, text, value, SHOWN, true),
        Kind::InBuffer(length) => {
            let shown = (arguments[usize::from(length)] as usize).min(SHOWN);
            string(space, text, value, shown, false)
        }
        Kind::Flags(names) => write!(text, "{}", flags(value, names)),
        Kind::Strings
        | Kind::In(_)
        | Kind::Out(_)
        | Kind::InOut(_)
        | Kind::OutBuffer(_)
        | Kind::Vectors(_)
            if value == 0 =>
        {
            write!(text, "NULL")
        }
        Kind::Hex
        | Kind::Strings
        | Kind::In(_)
        | Kind::Out(_)
        | Kind::InOut(_)
        | Kind::OutBuffer(_)
        | Kind::Vectors(_) => write!(text, "{value:#x}"),
    };
}

fn string(
    space: &Space,
    text: &mut String,
    address: u64,
    limit: usize,
    terminated: bool,
) -> core::fmt::Result {
    if address == 0 {
        return write!(text, "NULL");
    }
    let mut bytes = alloc::vec::Vec::new();
    let mut ended = false;
    let mut byte = [0];
    while bytes.len() < limit && !ended {
        let at = VirtAddr::new(address.wrapping_add(bytes.len() as u64));
        if space.read(at, &mut byte).is_err() {
            break;
        }
        ended = terminated && byte[0] == 0;
        if !ended {
            #[expect(clippy::disallowed_methods, reason = "as many as are shown")]
            bytes.push(byte[0]);
        }
    }
    if bytes.is_empty() && !ended && limit > 0 {
        return write!(text, "{address:#x}");
    }
    let dots = if bytes.len() == SHOWN && !ended {
        "..."
    } else {
        ""
    };
    write!(text, "\"{}\"{dots}", bytes.escape_ascii())
}

/// Returns the names of the set bits, separated by `|`.
#[expect(clippy::disallowed_methods, reason = "there are 64 bits")]
fn flags(value: u64, names: &[(u64, &str)]) -> String {
    let mut text = String::new();
    let mut rest = value;
    for (bits, name) in names {
        let set = if *bits == 0 {
            value == 0
        } else {
            rest & bits == *bits
        };
        if set {
            if !text.is_empty() {
                text.push('|');
            }
            text.push_str(name);
            rest &= !bits;
        }
    }
    if rest != 0 || text.is_empty() {
        let separator = if text.is_empty() { "" } else { "|" };
        let _ = write!(text, "{separator}{rest:#x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::flags;

    #[test]
    fn flags_are_named_and_the_rest_is_hexadecimal() {
        let names = [(0, "NONE"), (1, "READ"), (2, "WRITE")];
        assert_eq!(flags(0, &names), "NONE");
        assert_eq!(flags(3, &names), "READ|WRITE");
        assert_eq!(flags(0x12, &names), "WRITE|0x10");
        assert_eq!(flags(0x10, &names), "0x10");
        assert_eq!(flags(0, &names[1..]), "0x0");
    }
}
