//! System calls that create, bind, connect and shut down sockets.
//!
//! Unix sockets, TCP and UDP between addresses of this machine, and netlink sockets are supported. For all other
//! families, `socket` returns `EAFNOSUPPORT`, as a Linux kernel without these families does, so that libraries detect
//! at once that a family is missing.

mod control;
mod message;
mod option;

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use alloc::sync::Arc;
use linux_raw_sys::{general as raw, net};
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::{
    fs::{
        OpenFile,
        inet::{self, Family, InetFile, InetSocket, NAME_MAX, Name, Network, Protocol},
        netlink::{self, NAME_SIZE, NetlinkFile, NetlinkName, NetlinkSocket, Ports},
        socket::{ADDRESS_MAX, Address, Registry, Socket, SocketFile, SocketKind, open, pair},
    },
    identity::Capabilities,
    user::UserMemory,
};

use Kind::{Fd, Hex, InOut, Int, Unsigned};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_socket,
        "socket",
        &[Int, Hex, Int],
        |context, arguments| {
            let (current, number) = (&context.current, arguments[0] as u32);
            if let Some(family) = Family::from_number(number) {
                inet_socket(current, context.network(), family, arguments)
            } else if number == net::AF_NETLINK {
                netlink_socket(current, context.netlink(), arguments)
            } else {
                unix_socket(current, context.sockets(), arguments)
            }
        },
    ),
    real(
        raw::__NR_socketpair,
        "socketpair",
        &[Int, Hex, Int, Kind::Out(8)],
        handler!(socketpair, sockets),
    ),
    real(
        raw::__NR_bind,
        "bind",
        &[Fd, Kind::InBuffer(2), Int],
        handler!(bind),
    ),
    real(
        raw::__NR_connect,
        "connect",
        &[Fd, Kind::InBuffer(2), Int],
        handler!(connect),
    ),
    real(raw::__NR_listen, "listen", &[Fd, Int], handler!(listen)),
    real(
        raw::__NR_accept,
        "accept",
        &[Fd, Hex, InOut(4)],
        handler!(accept),
    ),
    real(
        raw::__NR_accept4,
        "accept4",
        &[Fd, Hex, InOut(4), Hex],
        handler!(accept4),
    ),
    real(
        raw::__NR_getsockname,
        "getsockname",
        &[Fd, Hex, InOut(4)],
        handler!(getsockname),
    ),
    real(
        raw::__NR_getpeername,
        "getpeername",
        &[Fd, Hex, InOut(4)],
        handler!(getpeername),
    ),
    real(
        raw::__NR_shutdown,
        "shutdown",
        &[Fd, Int],
        handler!(shutdown),
    ),
    real(
        raw::__NR_sendto,
        "sendto",
        &[Fd, Kind::InBuffer(2), Unsigned, Hex, Kind::InBuffer(5), Int],
        handler!(message::sendto),
    ),
    real(
        raw::__NR_recvfrom,
        "recvfrom",
        &[Fd, Kind::OutBuffer(2), Unsigned, Hex, Hex, InOut(4)],
        handler!(message::recvfrom),
    ),
    real(
        raw::__NR_sendmsg,
        "sendmsg",
        &[Fd, Kind::In(56), Hex],
        handler!(message::sendmsg),
    ),
    real(
        raw::__NR_recvmsg,
        "recvmsg",
        &[Fd, InOut(56), Hex],
        handler!(message::recvmsg),
    ),
    real(
        raw::__NR_sendmmsg,
        "sendmmsg",
        &[Fd, Hex, Unsigned, Hex],
        handler!(message::sendmmsg),
    ),
    real(
        raw::__NR_recvmmsg,
        "recvmmsg",
        &[Fd, Hex, Unsigned, Hex, Hex],
        handler!(message::recvmmsg),
    ),
    real(
        raw::__NR_getsockopt,
        "getsockopt",
        &[Fd, Int, Int, Hex, InOut(4)],
        handler!(option::getsockopt),
    ),
    real(
        raw::__NR_setsockopt,
        "setsockopt",
        &[Fd, Int, Int, Kind::InBuffer(4), Int],
        handler!(option::setsockopt),
    ),
];

/// The flags that can be combined with the type of a socket (`SOCK_CLOEXEC`, `SOCK_NONBLOCK`). They are equal to those
/// of `open`.
const FLAGS: u32 = raw::O_CLOEXEC | raw::O_NONBLOCK;

/// Decodes the arguments of `socket` and `socketpair`. Returns the kind of the socket and its flags.
fn kind(family: u64, kind: u64, protocol: u64) -> Result<(SocketKind, u32), Errno> {
    let kind = kind as u32;
    if kind & !(FLAGS | 0xf) != 0 {
        return Err(Errno::EINVAL);
    }
    if family as u32 != net::AF_UNIX {
        return Err(Errno::EAFNOSUPPORT);
    }
    let found = SocketKind::from_number(kind & 0xf).ok_or(Errno::ESOCKTNOSUPPORT)?;
    if protocol as u32 != 0 && protocol as u32 != net::AF_UNIX {
        return Err(Errno::EPROTONOSUPPORT);
    }
    Ok((found, kind & FLAGS))
}

/// Returns the protocol of an internet socket with type `kind` and protocol number `number` (Linux 7.2
/// `net/ipv4/af_inet.c`, `inet_create`).
///
/// # Errors
/// `EINVAL` for numbers beyond the defined ones; `EPROTONOSUPPORT` for a protocol that the type does not support;
/// `EPERM` for raw sockets unless the caller has `CAP_NET_RAW` (`may_be_raw`); `ESOCKTNOSUPPORT` for types that are not
/// supported.
fn protocol(kind: u32, number: u32, may_be_raw: bool) -> Result<Protocol, Errno> {
    /// The first number after the protocol numbers (`IPPROTO_MAX`).
    const PROTOCOLS: u32 = 263;
    /// The first number after the socket types (`SOCK_MAX`).
    const KINDS: u32 = 11;
    if kind >= KINDS || number >= PROTOCOLS {
        return Err(Errno::EINVAL);
    }
    match (kind, number) {
        (net::SOCK_STREAM, 0 | 6) => Ok(Protocol::Tcp),
        (net::SOCK_DGRAM, 0 | 17) => Ok(Protocol::Udp),
        (net::SOCK_STREAM | net::SOCK_DGRAM, _) | (net::SOCK_RAW, 0) => Err(Errno::EPROTONOSUPPORT),
        (net::SOCK_RAW, _) if !may_be_raw => Err(Errno::EPERM),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// Creates an internet socket of this family.
fn inet_socket(
    current: &Current<'_>,
    network: &'static Network,
    family: Family,
    arguments: &Arguments,
) -> CallResult {
    let kind = arguments[1] as u32;
    if kind & !(FLAGS | 0xf) != 0 {
        return Err(Errno::EINVAL);
    }
    let may_be_raw = current.caller().has_any(Capabilities::RAW_SOCKETS);
    let protocol = protocol(kind & 0xf, arguments[2] as u32, may_be_raw)?;
    current.check_heap()?;
    current.caller().check_open_files()?;
    let socket = InetSocket::new(current, network, family, protocol);
    let flags = kind & FLAGS;
    let file = inet::open(current, Arc::new(socket), flags);
    current.caller().add_descriptor(file, flags)
}

/// Creates a Unix socket.
fn unix_socket(
    current: &Current<'_>,
    sockets: &'static Registry,
    arguments: &Arguments,
) -> CallResult {
    let (kind, flags) = kind(arguments[0], arguments[1], arguments[2])?;
    current.check_heap()?;
    current.caller().check_open_files()?;
    let socket = sockets.create(kind)?;
    let file = open(current, socket, flags);
    current.caller().add_descriptor(file, flags)
}

/// Creates a netlink socket.
fn netlink_socket(
    current: &Current<'_>,
    netlink: &'static Ports,
    arguments: &Arguments,
) -> CallResult {
    let kind = netlink_kind(arguments[1] as u32, arguments[2] as u32)?;
    let flags = arguments[1] as u32 & FLAGS;
    current.check_heap()?;
    current.caller().check_open_files()?;
    let socket = NetlinkSocket::new(netlink, kind);
    let file = netlink::open(current, socket, flags);
    current.caller().add_descriptor(file, flags)
}

/// Returns the type of a netlink socket. `kind` is the type, possibly with flags (Linux 7.2 `net/netlink/af_netlink.c`,
/// `netlink_create`).
///
/// # Errors
/// `EINVAL` for unknown flags, `ESOCKTNOSUPPORT` for another type, and `EPROTONOSUPPORT` for a protocol other than
/// `NETLINK_ROUTE`, like on a kernel without the other protocols.
const fn netlink_kind(kind: u32, protocol: u32) -> Result<u32, Errno> {
    if kind & !(FLAGS | 0xf) != 0 {
        return Err(Errno::EINVAL);
    }
    match (kind & 0xf, protocol) {
        (kind @ (net::SOCK_RAW | net::SOCK_DGRAM), 0) => Ok(kind),
        (net::SOCK_RAW | net::SOCK_DGRAM, _) => Err(Errno::EPROTONOSUPPORT),
        (11.., _) => Err(Errno::EINVAL),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

fn socketpair(
    current: &Current<'_>,
    sockets: &'static Registry,
    arguments: &Arguments,
) -> CallResult {
    if Family::from_number(arguments[0] as u32).is_some() {
        protocol(arguments[1] as u32 & 0xf, arguments[2] as u32, true)?;
        return Err(Errno::EOPNOTSUPP);
    }
    if arguments[0] as u32 == net::AF_NETLINK {
        netlink_kind(arguments[1] as u32, arguments[2] as u32)?;
        return Err(Errno::EOPNOTSUPP);
    }
    let (kind, flags) = kind(arguments[0], arguments[1], arguments[2])?;
    current.check_heap()?;
    current.caller().check_open_files()?;
    let (one, other) = pair(current, sockets, kind)?;
    let (one, other) = (open(current, one, flags), open(current, other, flags));
    let files = current.files();
    let close = |number: u64| files.close(current.process().id, number as i32);
    let first = current.caller().add_descriptor(one, flags)?;
    let second = match current.caller().add_descriptor(other, flags) {
        Ok(second) => second,
        Err(error) => {
            close(first)?;
            return Err(error);
        }
    };
    let stored = current
        .user
        .write_value(arguments[3], &[first as i32, second as i32]);
    if let Err(error) = stored {
        close(first)?;
        close(second)?;
        return Err(error);
    }
    Ok(0)
}

/// Returns the open file of a descriptor.
fn opened(current: &Current<'_>, number: u64) -> Result<Arc<OpenFile>, Errno> {
    current.files().get_usable(int(number))
}

/// A socket of any kind.
#[derive(Clone, Copy)]
enum AnySocket<'a> {
    Unix(&'a Arc<Socket>),
    Inet(&'a Arc<InetSocket>),
    Netlink(&'a NetlinkSocket),
}

/// Returns the socket of an open file.
fn socket_of(open: &OpenFile) -> Result<AnySocket<'_>, Errno> {
    if let Some(file) = open.as_kind::<SocketFile>() {
        return Ok(AnySocket::Unix(&file.socket));
    }
    if let Some(file) = open.as_kind::<InetFile>() {
        return Ok(AnySocket::Inet(&file.socket));
    }
    let file = open.as_kind::<NetlinkFile>().ok_or(Errno::ENOTSOCK)?;
    Ok(AnySocket::Netlink(&file.socket))
}

/// Reads a Unix socket name of `length` bytes.
fn read_address(user: UserMemory<'_>, address: u64, length: u64) -> Result<Address, Errno> {
    let length = length as u32 as usize;
    if length > ADDRESS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; ADDRESS_MAX];
    user.read_bytes(address, &mut bytes[..length])?;
    Address::from_bytes(&bytes[..length])
}

/// Reads an internet socket address of `length` bytes for a socket of `family`. If `either` is true, an IPv4 address is
/// also valid for an IPv6 socket.
fn read_name(
    user: UserMemory<'_>,
    family: Family,
    (address, length): (u64, u64),
    either: bool,
) -> Result<Name, Errno> {
    let length = length as u32 as usize;
    if length > NAME_MAX {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; NAME_MAX];
    user.read_bytes(address, &mut bytes[..length])?;
    inet::decode(family, &bytes[..length], either)
}

/// Reads a netlink socket name of `length` bytes.
fn read_netlink_name(
    user: UserMemory<'_>,
    address: u64,
    length: u64,
) -> Result<NetlinkName, Errno> {
    let length = length as u32 as usize;
    if length > NAME_MAX {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; NAME_SIZE];
    let bytes = &mut bytes[..length.min(NAME_SIZE)];
    user.read_bytes(address, bytes)?;
    NetlinkName::from_bytes(bytes)
}

/// Stores an encoded socket name in the caller's buffer at `address`. `room` is the address of the size of the buffer:
/// truncates the name to that size, and replaces the size by the full length of the name.
fn store_name(user: UserMemory<'_>, address: u64, room: u64, name: &[u8]) -> Result<(), Errno> {
    let limit: i32 = user.read_value(room)?;
    let limit = usize::try_from(limit).map_err(|_| Errno::EINVAL)?;
    user.write_bytes(address, &name[..name.len().min(limit)])?;
    user.write_value(room, &(name.len() as u32))
}

fn bind(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, length, ..] = arguments;
    let open = opened(current, number)?;
    let socket = socket_of(&open)?;
    current.check_heap()?;
    match socket {
        AnySocket::Unix(socket) => {
            let address = read_address(current.user, address, length)?;
            socket.bind(current, address)?;
        }
        AnySocket::Inet(socket) => {
            let name = read_name(current.user, socket.family, (address, length), false)?;
            socket.bind(current, name)?;
        }
        AnySocket::Netlink(socket) => {
            let name = read_netlink_name(current.user, address, length)?;
            socket.bind(current, name)?;
        }
    }
    Ok(0)
}

fn connect(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, length, ..] = arguments;
    let open = opened(current, number)?;
    let socket = socket_of(&open)?;
    current.check_heap()?;
    match socket {
        AnySocket::Unix(socket) => {
            let address = read_address(current.user, address, length)?;
            socket.connect(current, &open, &address)?;
        }
        AnySocket::Inet(socket) => {
            let name = read_name(current.user, socket.family, (address, length), false)?;
            socket.connect(current, &open, name)?;
        }
        AnySocket::Netlink(socket) => {
            let family: u16 = match length as u32 {
                0 | 1 => return Err(Errno::EINVAL),
                _ => current.user.read_value(address)?,
            };
            let name = match family {
                0 => None,
                _ => Some(read_netlink_name(current.user, address, length)?),
            };
            socket.connect(current, name)?;
        }
    }
    Ok(0)
}

fn listen(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let open = opened(current, arguments[0])?;
    let limit = arguments[1] as i32;
    match socket_of(&open)? {
        AnySocket::Unix(socket) => socket.listen(current, limit)?,
        AnySocket::Inet(socket) => {
            current.check_heap()?;
            socket.listen(limit)?;
        }
        AnySocket::Netlink(_) => return Err(Errno::EOPNOTSUPP),
    }
    Ok(0)
}

fn accept_with(current: &Current<'_>, arguments: &Arguments, flags: u32) -> CallResult {
    let &[number, address, length, ..] = arguments;
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let listener = opened(current, number)?;
    current.check_heap()?;
    current.caller().check_open_files()?;
    let file = match socket_of(&listener)? {
        AnySocket::Unix(listening) => {
            let socket = listening.accept(current, &listener)?;
            let name = socket.address(true).unwrap_or(None);
            let file = open(current, socket, flags);
            if address != 0 {
                let name = Address::to_bytes(name.as_ref());
                store_name(current.user, address, length, &name)?;
            }
            file
        }
        AnySocket::Inet(listening) => {
            let socket = listening.accept(current, &listener)?;
            let name = socket.accepted_from();
            let file = inet::open(current, socket, flags);
            if let (Some(name), true) = (name, address != 0) {
                let name = inet::encode(listening.family, name);
                store_name(current.user, address, length, name.bytes())?;
            }
            file
        }
        AnySocket::Netlink(_) => return Err(Errno::EOPNOTSUPP),
    };
    current.caller().add_descriptor(file, flags)
}

fn accept(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    accept_with(current, arguments, 0)
}

fn accept4(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    accept_with(current, arguments, arguments[3] as u32)
}

/// Stores the name of a socket or of its peer.
fn name_of(
    user: UserMemory<'_>,
    open: &OpenFile,
    (address, room): (u64, u64),
    peer: bool,
) -> CallResult {
    match socket_of(open)? {
        AnySocket::Unix(socket) => {
            let name = Address::to_bytes(socket.address(peer)?.as_ref());
            store_name(user, address, room, &name)?;
        }
        AnySocket::Inet(socket) => {
            let name = if peer {
                socket.peer_name()?
            } else {
                socket.name()
            };
            let name = inet::encode(socket.family, name);
            store_name(user, address, room, name.bytes())?;
        }
        AnySocket::Netlink(socket) => {
            let name = if peer {
                socket.peer_name()
            } else {
                socket.name()
            };
            store_name(user, address, room, &name.to_bytes())?;
        }
    }
    Ok(0)
}

fn getsockname(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let open = opened(current, arguments[0])?;
    name_of(current.user, &open, (arguments[1], arguments[2]), false)
}

fn getpeername(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let open = opened(current, arguments[0])?;
    name_of(current.user, &open, (arguments[1], arguments[2]), true)
}

fn shutdown(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let open = opened(current, arguments[0])?;
    let how = arguments[1] as u32;
    match socket_of(&open)? {
        AnySocket::Unix(socket) => socket.shut(how)?,
        AnySocket::Inet(socket) => socket.shut(how)?,
        AnySocket::Netlink(_) => return Err(Errno::EOPNOTSUPP),
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netlink_sockets_are_raw_or_datagram_sockets() {
        for (kind, protocol, expected) in [
            (net::SOCK_RAW, 0, Ok(net::SOCK_RAW)),
            (net::SOCK_DGRAM | raw::O_CLOEXEC, 0, Ok(net::SOCK_DGRAM)),
            (net::SOCK_RAW, 15, Err(Errno::EPROTONOSUPPORT)),
            (net::SOCK_RAW, u32::MAX, Err(Errno::EPROTONOSUPPORT)),
            (net::SOCK_STREAM, 0, Err(Errno::ESOCKTNOSUPPORT)),
            (net::SOCK_STREAM, 40, Err(Errno::ESOCKTNOSUPPORT)),
            (12, 0, Err(Errno::EINVAL)),
            (0x13, 0, Err(Errno::EINVAL)),
        ] {
            assert_eq!(netlink_kind(kind, protocol), expected, "{kind} {protocol}");
        }
    }

    #[test]
    fn protocols_follow_from_types() {
        for (kind, number, raw, expected) in [
            (net::SOCK_STREAM, 0, false, Ok(Protocol::Tcp)),
            (net::SOCK_STREAM, 6, false, Ok(Protocol::Tcp)),
            (net::SOCK_STREAM, 17, false, Err(Errno::EPROTONOSUPPORT)),
            (net::SOCK_DGRAM, 17, false, Ok(Protocol::Udp)),
            (net::SOCK_DGRAM, 6, false, Err(Errno::EPROTONOSUPPORT)),
            (net::SOCK_RAW, 1, false, Err(Errno::EPERM)),
            (net::SOCK_RAW, 1, true, Err(Errno::ESOCKTNOSUPPORT)),
            (net::SOCK_SEQPACKET, 0, true, Err(Errno::ESOCKTNOSUPPORT)),
            (net::SOCK_STREAM, 300, true, Err(Errno::EINVAL)),
            (12, 0, true, Err(Errno::EINVAL)),
        ] {
            assert_eq!(protocol(kind, number, raw), expected, "{kind} {number}");
        }
    }
}
