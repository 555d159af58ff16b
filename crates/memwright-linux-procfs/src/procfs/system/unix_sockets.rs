//! `/proc/net/unix`: the Unix sockets.

use crate::procfs::node::{Line, Text, stub::stubs};
use core::fmt;
use memwright_linux_base::{batch::Batch, sync::PausePoints};
use memwright_linux_vfs::fs::socket::{Address, FoundSocket, Registry, SocketRow};

stubs! {
    POINTER: "/proc/net/unix" "Num" Number(0), "The address of a structure of the kernel.";
    PROTOCOL: "/proc/net/unix" "Protocol" Number(0), "The number is constant on Linux too.";
}

/// Number of sockets that are collected in one batch.
const TOGETHER: usize = 64;
/// The flag of a listening socket (`__SO_ACCEPTCON`).
const ACCEPTS: u64 = 0x1_0000;
/// Number of references to a socket that is not connected: one by its open file, and one by the table of sockets.
const REFERENCES: u64 = 2;

const HEADER: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n";

/// Writes `/proc/net/unix`.
///
/// # Errors
/// The errors of `text`.
pub fn unix_sockets(sockets: &Registry, text: &mut Text) -> fmt::Result {
    if text.is_first() {
        text.push(HEADER.as_bytes())?;
    }
    // A scheduling point for each batch: closed sockets have no row, so the kernel can skip any number of them before
    // it has filled a piece of the text.
    let mut points = PausePoints::every(1);
    let note = |first, batch: &mut Batch<FoundSocket>| {
        points.round();
        sockets.note(first, batch);
    };
    text.records(TOGETHER, note, |text, found| {
        if let Some(row) = found.row() {
            write_row(text, &row)?;
        }
        Ok(found.next)
    })
}

/// Returns the number of the state of a socket (`socket_state` of Linux 7.2, `include/uapi/linux/net.h`).
const fn state(row: &SocketRow) -> u64 {
    match (row.inode != 0, row.connected) {
        (true, false) => 1,
        (false, true) => 2,
        (true, true) => 3,
        (false, false) => 4,
    }
}

/// Writes the row of a socket (`unix_seq_show` of Linux 7.2, `net/unix/af_unix.c`).
fn write_row(text: &mut Text, row: &SocketRow) -> fmt::Result {
    let mut line = Line::new();
    let references = REFERENCES + u64::from(row.connected);
    let flags = if row.listens { ACCEPTS } else { 0 };
    line.hex(POINTER.number(), 16);
    line.text(": ").capital_hex(references, 8);
    line.text(" ").capital_hex(PROTOCOL.number(), 8);
    line.text(" ").capital_hex(flags, 8);
    line.text(" ").capital_hex(row.kind.number().into(), 4);
    line.text(" ").capital_hex(state(row), 2);
    line.text(" ").decimal(row.inode, 5).write(text)?;
    match &row.address {
        Some(Address::Path(path)) => {
            text.push(b" ")?;
            text.push(path)?;
        }
        Some(Address::Abstract(name)) => {
            text.push(b" @")?;
            for part in name.split_inclusive(|byte| *byte == 0) {
                match part.strip_suffix(b"\0") {
                    Some(part) => {
                        text.push(part)?;
                        text.push(b"@")?;
                    }
                    None => text.push(part)?,
                }
            }
        }
        Some(Address::Automatic) | None => {}
    }
    text.push(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::node::text::written;
    use memwright_linux_vfs::fs::socket::SocketKind;

    #[test]
    fn rows_have_the_format_of_linux() {
        let plain = SocketRow {
            kind: SocketKind::Stream,
            listens: false,
            connected: true,
            inode: 376,
            address: None,
        };
        let hidden = Some(Address::Abstract(b"a\0b\0".to_vec()));
        let rows = [
            (
                plain.clone(),
                "0000000000000000: 00000003 00000000 00000000 0001 03   376\n",
            ),
            (
                SocketRow {
                    kind: SocketKind::Datagram,
                    connected: false,
                    address: Some(Address::Path(b"/tmp/x".to_vec())),
                    ..plain.clone()
                },
                "0000000000000000: 00000002 00000000 00000000 0002 01   376 /tmp/x\n",
            ),
            (
                SocketRow {
                    inode: 0,
                    address: hidden.clone(),
                    ..plain.clone()
                },
                "0000000000000000: 00000003 00000000 00000000 0001 02     0 @a@b@\n",
            ),
            (
                SocketRow {
                    kind: SocketKind::Sequence,
                    listens: true,
                    connected: false,
                    inode: 1_234_567,
                    address: hidden,
                },
                "0000000000000000: 00000002 00000000 00010000 0005 01 1234567 @a@b@\n",
            ),
        ];
        for (row, expected) in rows {
            assert_eq!(written(|text| write_row(text, &row)), expected);
        }
    }
}
