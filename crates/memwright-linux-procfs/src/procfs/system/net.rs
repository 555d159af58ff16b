//! `/proc/net`: the sockets and addresses of the loopback interface.

use crate::procfs::{
    node::view::shows,
    node::{FixedDirectory, Line, ProcNode, Text, stub::stubs},
    system::unix_sockets::unix_sockets,
};
use core::fmt;
use memwright_linux_abi::host::Clock;
use memwright_linux_base::{batch::Batch, sync::PausePoints};
use memwright_linux_vfs::fs::{
    inet::{Endpoint, Family, Found, Ip, Network, Protocol, Row, Spot, TcpState},
    interface,
};

stubs! {
    NOT_SENT: "/proc/net/tcp" "tx_queue" Number(0), "What a program sends is in the inbox of the receiver at once.";
    RETRANSMITS: "/proc/net/tcp" "retrnsmt" Number(0), "Nothing is lost, so nothing is sent again.";
    PROBES: "/proc/net/tcp" "timeout" Number(0), "No packets probe the other end.";
    REFERENCES: "/proc/net/tcp" "ref" Number(1), "The descriptors of a socket share one reference.";
    POINTER: "/proc/net/tcp" "pointer" Number(0), "Linux shows zeros to programs without privileges.";
    DROPS: "/proc/net/udp" "drops" Number(0), "Datagrams for which an inbox has no room are not counted.";
    COUNT: "/proc/net/dev" "bytes, packets and errors" Number(0), "No packets pass through the interface.";
    CONGESTION_OF_LISTENER: "/proc/net/tcp" "numbers behind the pointer of a listening socket" Text("100 0 0 10 0"), "The numbers are constant on Linux too.";
    CONGESTION: "/proc/net/tcp" "numbers behind the pointer" Text("20 4 0 10 -1"), "There are no packets, thus no congestion.";
}

/// The prefix length of the loopback interface's IPv6 address, in bits.
const PREFIX: u64 = 128;
/// `IFA_HOST`, the scope of an address that is valid on this machine only, and `IFA_F_PERMANENT`.
const SCOPE_OF_HOST: u64 = 0x10;
const PERMANENT: u64 = 0x80;

/// `/proc/PID/net`, which is the same directory for all processes.
pub static NET: FixedDirectory = FixedDirectory {
    first: 0x680,
    entries: &[
        ("dev", 0o444, ProcNode::SystemText(shows!(counts))),
        ("if_inet6", 0o444, ProcNode::SystemText(shows!(interfaces))),
        (
            "tcp",
            0o444,
            ProcNode::SystemText(shows!(tcp, network, clock)),
        ),
        (
            "tcp6",
            0o444,
            ProcNode::SystemText(shows!(tcp6, network, clock)),
        ),
        (
            "udp",
            0o444,
            ProcNode::SystemText(shows!(udp, network, clock)),
        ),
        (
            "udp6",
            0o444,
            ProcNode::SystemText(shows!(udp6, network, clock)),
        ),
        (
            "unix",
            0o444,
            ProcNode::SystemText(shows!(unix_sockets, sockets)),
        ),
    ],
};

/// Number of sockets that are collected in one batch.
const TOGETHER: usize = 64;
/// The length to which a line of an IPv4 file is padded, without its newline (`TMPSZ` in `net/ipv4/tcp_ipv4.c` and
/// `seq_setwidth` in `net/ipv4/udp.c` of Linux 7.2).
const TCP_WIDTH: usize = 149;
const UDP_WIDTH: usize = 127;
/// The number of the state `TIME_WAIT`. A connection in this state has no socket (`include/net/tcp_states.h`).
const TIME_WAIT: u64 = 6;
/// Nanoseconds per tick of the clock in the rows (`USER_HZ`).
const TICK: u64 = 10_000_000;

const TCP_V4: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
const TCP_V6: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr \
    tm->when retrnsmt   uid  timeout inode\n";
const UDP_V4: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref \
    pointer drops";
const UDP_V6: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr \
    tm->when retrnsmt   uid  timeout inode ref pointer drops\n";

const COUNTS: &str = "Inter-|   Receive                                                |  Transmit\n \
    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n";

/// Writes `/proc/net/tcp`.
///
/// # Errors
/// The errors of `text`.
pub fn tcp(network: &Network, clock: &dyn Clock, text: &mut Text) -> fmt::Result {
    sockets(network, clock, text, Protocol::Tcp, Family::V4)
}

/// Writes `/proc/net/tcp6`.
///
/// # Errors
/// The errors of `text`.
pub fn tcp6(network: &Network, clock: &dyn Clock, text: &mut Text) -> fmt::Result {
    sockets(network, clock, text, Protocol::Tcp, Family::V6)
}

/// Writes `/proc/net/udp`.
///
/// # Errors
/// The errors of `text`.
pub fn udp(network: &Network, clock: &dyn Clock, text: &mut Text) -> fmt::Result {
    sockets(network, clock, text, Protocol::Udp, Family::V4)
}

/// Writes `/proc/net/udp6`.
///
/// # Errors
/// The errors of `text`.
pub fn udp6(network: &Network, clock: &dyn Clock, text: &mut Text) -> fmt::Result {
    sockets(network, clock, text, Protocol::Udp, Family::V6)
}

/// Writes `/proc/net/if_inet6`: address, index, length of the prefix, scope, flags and name of each interface. The only
/// address is that of the loopback interface. The scope of this address is the host, and its flag is "permanent".
///
/// # Errors
/// The errors of `text`.
pub fn interfaces(text: &mut Text) -> fmt::Result {
    let Ip::V6(address) = Ip::LOCAL_V6 else {
        return Ok(());
    };
    let mut line = Line::new();
    for byte in address {
        line.hex(byte.into(), 2);
    }
    for number in [interface::NUMBER.into(), PREFIX, SCOPE_OF_HOST, PERMANENT] {
        line.text(" ").hex(number, 2);
    }
    line.text("       lo\n").write(text)
}

/// Writes `/proc/net/dev`: the traffic counters of each interface (`dev_seq_printf_stats` of Linux 7.2,
/// `net/core/net-procfs.c`).
///
/// # Errors
/// The errors of `text`.
pub fn counts(text: &mut Text) -> fmt::Result {
    /// The widths of the columns in characters.
    const WIDTHS: [usize; 16] = [7, 7, 4, 4, 4, 5, 10, 9, 8, 7, 4, 4, 4, 5, 7, 10];
    text.push(COUNTS.as_bytes())?;
    text.push(b"    ")?;
    text.push(interface::LOOPBACK)?;
    let mut line = Line::new();
    line.text(":");
    for width in WIDTHS {
        line.text(" ").decimal(COUNT.number(), width);
    }
    line.text("\n").write(text)
}

/// Writes the rows of the sockets of `protocol` whose family is `family`.
fn sockets(
    network: &Network,
    clock: &dyn Clock,
    text: &mut Text,
    protocol: Protocol,
    family: Family,
) -> fmt::Result {
    if text.is_first() {
        write_header(text, protocol, family)?;
    }
    let first = Spot::first(protocol);
    // A scheduling point for each batch: sockets of the other family have no row, so the kernel can skip any number of
    // sockets before it has filled a piece of the text.
    let mut points = PausePoints::every(1);
    let note = |(spot, _), batch: &mut Batch<Found>| {
        points.round();
        network.note(protocol, spot, batch);
    };
    text.sockets(first, TOGETHER, note, |text, before, found| {
        let row = found.row(clock.now());
        match row.filter(|row| row.family == family) {
            Some(row) => {
                write_row(text, protocol, before, &row)?;
                Ok((found.next, before + 1))
            }
            None => Ok((found.next, before)),
        }
    })
}

fn write_header(text: &mut Text, protocol: Protocol, family: Family) -> fmt::Result {
    let (header, width) = match (protocol, family) {
        (Protocol::Tcp, Family::V4) => (TCP_V4, TCP_WIDTH),
        (Protocol::Udp, Family::V4) => (UDP_V4, UDP_WIDTH),
        (Protocol::Tcp, Family::V6) => return text.push(TCP_V6.as_bytes()),
        (Protocol::Udp, Family::V6) => return text.push(UDP_V6.as_bytes()),
    };
    let mut line = Line::new();
    line.text(header).spaces(width - header.len());
    line.text("\n").write(text)
}

/// Appends the address and the port of `endpoint`. The address is in network byte order. Each group of four bytes is
/// written as the hexadecimal word that the CPU would load from it.
fn endpoint(line: &mut Line, family: Family, endpoint: Endpoint) {
    let words = |line: &mut Line, bytes: &[u8]| {
        for word in bytes.chunks_exact(4) {
            let word = word
                .iter()
                .rev()
                .fold(0, |value, byte| value << 8 | u64::from(*byte));
            line.capital_hex(word, 8);
        }
    };
    match (family, endpoint.ip) {
        (Family::V4, Ip::V4(bytes)) => words(line, &bytes),
        (Family::V4 | Family::V6, ip) => words(line, &ip.to_v6()),
    }
    line.text(":").capital_hex(endpoint.port.into(), 4);
}

/// Writes the row of a socket. `before` is the number of rows before it (`get_tcp4_sock`, `get_openreq4` and
/// `get_timewait4_sock` in `net/ipv4/tcp_ipv4.c`, `udp4_format_sock` in `net/ipv4/udp.c` of Linux 7.2).
fn write_row(text: &mut Text, protocol: Protocol, before: u64, row: &Row) -> fmt::Result {
    let mut names = Line::new();
    let columns = match protocol {
        Protocol::Tcp => 4,
        Protocol::Udp => 5,
    };
    names.decimal(before, columns).text(": ");
    endpoint(&mut names, row.family, row.local);
    endpoint(names.text(" "), row.family, row.remote);
    let state = match row.waits {
        Some(_) => TIME_WAIT,
        None => row.state as u64,
    };
    names.text(" ").capital_hex(state, 2).write(text)?;

    let mut line = Line::new();
    let (timer, ticks) = row.waits.map_or((0, 0), |left| (3, left / TICK));
    line.text(" ").capital_hex(NOT_SENT.number(), 8);
    line.text(":").capital_hex(row.received as u64, 8);
    line.text(" ").hex(timer, 2).text(":").capital_hex(ticks, 8);
    line.text(" ").capital_hex(RETRANSMITS.number(), 8);
    line.text(" ").decimal(row.user.into(), 5);
    line.text(" ").decimal(PROBES.number(), 8);
    line.text(" ").decimal(row.inode, 0);
    line.text(" ").decimal(REFERENCES.number(), 0);
    line.text(" ").hex(POINTER.number(), 16);
    match (protocol, row.state, row.waits) {
        (Protocol::Udp, _, _) => {
            line.text(" ").decimal(DROPS.number(), 0);
        }
        (Protocol::Tcp, _, Some(_)) => {}
        (Protocol::Tcp, TcpState::Listen, None) => {
            line.text(" ").text(CONGESTION_OF_LISTENER.text());
        }
        (
            Protocol::Tcp,
            TcpState::Established
            | TcpState::SynSent
            | TcpState::FinWait
            | TcpState::Close
            | TcpState::CloseWait,
            None,
        ) => {
            line.text(" ").text(CONGESTION.text());
        }
    }
    let width = match (protocol, row.family) {
        (Protocol::Tcp, Family::V4) => TCP_WIDTH,
        (Protocol::Udp, Family::V4) => UDP_WIDTH,
        (_, Family::V6) => 0,
    };
    line.spaces(width.saturating_sub(names.len() + line.len()));
    line.text("\n").write(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::node::text::written;

    const fn at(ip: Ip, port: u16) -> Endpoint {
        Endpoint { ip, port }
    }

    fn row(family: Family, state: TcpState) -> Row {
        Row {
            family,
            local: at(Ip::LOCAL_V4, 8080),
            remote: at(family.any(), 0),
            state,
            received: 0,
            waits: None,
            user: 1000,
            inode: 4711,
        }
    }

    #[test]
    fn rows_have_the_format_of_linux() {
        let listening = row(Family::V4, TcpState::Listen);
        let connected = Row {
            local: at(Ip::LOCAL_V6, 8080),
            remote: at(Ip::V4([127, 0, 0, 2]), 0xfffe),
            received: 300,
            ..row(Family::V6, TcpState::Established)
        };
        let waits = Row {
            waits: Some(59 * 1_000_000_000),
            user: 0,
            inode: 0,
            ..row(Family::V4, TcpState::Close)
        };
        let datagrams = row(Family::V4, TcpState::Close);
        for (protocol, before, row, expected) in [
            (
                Protocol::Tcp,
                0,
                listening,
                "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 \
                 0000000000000000 100 0 0 10 0",
            ),
            (
                Protocol::Tcp,
                12_345,
                connected,
                "12345: 00000000000000000000000001000000:1F90 0000000000000000FFFF00000200007F:FFFE 01 00000000:0000012C \
                 00:00000000 00000000  1000        0 4711 1 0000000000000000 20 4 0 10 -1",
            ),
            (
                Protocol::Tcp,
                3,
                waits,
                "   3: 0100007F:1F90 00000000:0000 06 00000000:00000000 03:0000170C 00000000     0        0 0 1 \
                 0000000000000000",
            ),
            (
                Protocol::Udp,
                3,
                datagrams,
                "    3: 0100007F:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4711 1 \
                 0000000000000000 0",
            ),
        ] {
            let line = written(|text| write_row(text, protocol, before, &row));
            assert_eq!(line.trim_end(), expected);
            let width = match (protocol, row.family) {
                (_, Family::V6) => expected.len(),
                (Protocol::Tcp, Family::V4) => TCP_WIDTH,
                (Protocol::Udp, Family::V4) => UDP_WIDTH,
            };
            assert_eq!(line.len(), width + 1);
        }
    }

    #[test]
    fn the_longest_row_fits() {
        let row = Row {
            local: at(Ip::LOCAL_V6, u16::MAX),
            remote: at(Ip::LOCAL_V6, u16::MAX),
            received: u32::MAX as usize,
            user: u32::MAX,
            inode: u64::MAX,
            ..row(Family::V6, TcpState::Established)
        };
        let line = written(|text| write_row(text, Protocol::Tcp, u32::MAX.into(), &row));
        assert!(line.ends_with("-1\n"), "{line}");
    }
}
