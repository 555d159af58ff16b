//! System calls that send and receive messages with control messages.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::file::socket::{
        AnySocket,
        control::{self, ControlWriter},
        opened, read_address, read_name, read_netlink_name, socket_of, store_name,
    },
};
use linux_raw_sys::net;
use memwright_linux_abi::{
    abi::{IoVector, Plain, Timespec},
    abi_struct,
    errno::Errno,
};
use memwright_linux_base::sync::PausePoints;
use memwright_linux_vfs::{
    fs::{
        OpenFile,
        inet::{self, Incoming, InetSocket, Name, Outgoing},
        netlink::{NetlinkName, NetlinkReceived, NetlinkSocket},
        socket::{Address, Credentials, Received, Request, SocketKind},
        transfer::{Sink, Source},
    },
    user::UserMemory,
};

/// `NETLINK_PKTINFO`, the type of the control message that contains a multicast group.
const NETLINK_GROUP: u32 = 3;

abi_struct! {
    /// `struct user_msghdr` of `linux/socket.h`.
    pub struct MessageHeader {
        /// User address of the socket name.
        pub name: u64,
        /// Length of the socket name in bytes.
        pub name_length: u32,
        /// Padding.
        pub padding: u32,
        /// User address of the I/O vectors.
        pub vectors: u64,
        /// Number of I/O vectors.
        pub count: u64,
        /// User address of the control messages.
        pub control: u64,
        /// Length of the control messages in bytes.
        pub control_length: u64,
        /// The flags that a receive returns.
        pub flags: u32,
        /// Padding.
        pub padding_behind: u32,
    }
}

/// Reads the destination of a send on a Unix socket. Sequenced-packet sockets ignore it.
fn target(
    user: UserMemory<'_>,
    kind: SocketKind,
    address: u64,
    length: u64,
) -> Result<Option<Address>, Errno> {
    if address == 0 || length as u32 == 0 || kind == SocketKind::Sequence {
        return Ok(None);
    }
    read_address(user, address, length).map(Some)
}

/// Reads the destination of a send on an internet socket. Stream sockets ignore it.
fn receiver(
    user: UserMemory<'_>,
    socket: &InetSocket,
    name: (u64, u64),
) -> Result<Option<Name>, Errno> {
    match socket.protocol {
        inet::Protocol::Udp if name.0 != 0 => read_name(user, socket.family, name, true).map(Some),
        inet::Protocol::Udp | inet::Protocol::Tcp => Ok(None),
    }
}

/// Reads the destination of a send on a netlink socket.
fn netlink_receiver(
    user: UserMemory<'_>,
    address: u64,
    length: u64,
) -> Result<Option<NetlinkName>, Errno> {
    if address == 0 || length as u32 == 0 {
        return Ok(None);
    }
    read_netlink_name(user, address, length).map(Some)
}

/// Implements `sendto`.
pub fn sendto(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, length, flags, name, name_length] = arguments;
    let length = current.user.transfer_length(address, length)? as u64;
    let open = opened(current, number)?;
    let flags = flags as u32;
    let pieces = [IoVector {
        base: address,
        length,
    }];
    let mut source = Source::user(current.user, &pieces);
    let sent = match socket_of(&open)? {
        AnySocket::Unix(socket) => {
            let request = Request {
                address: target(current.user, socket.kind, name, name_length)?,
                flags,
                ..Request::default()
            };
            socket.send(current, &open, request, &mut source)?
        }
        AnySocket::Inet(socket) => {
            let outgoing = Outgoing {
                name: receiver(current.user, socket, (name, name_length))?,
                control: &[],
                flags,
            };
            socket.send(current, &open, outgoing, &mut source)?
        }
        AnySocket::Netlink(socket) => {
            let name = netlink_receiver(current.user, name, name_length)?;
            socket.send(current, name, flags, &mut source)?
        }
    };
    Ok(sent as u64)
}

/// Implements `recvfrom`.
pub fn recvfrom(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, length, flags, name, name_length] = arguments;
    let length = current.user.transfer_length(address, length)? as u64;
    let open = opened(current, number)?;
    let pieces = [IoVector {
        base: address,
        length,
    }];
    let mut sink = Sink::user(current.user, &pieces);
    let flags = flags as u32;
    match socket_of(&open)? {
        AnySocket::Unix(socket) => {
            let received = socket.receive(current, &open, flags, &mut sink)?;
            if name != 0 {
                store_sender(current.user, name, name_length, &received)?;
            }
            Ok(result_of(socket.kind, flags, &received))
        }
        AnySocket::Inet(socket) => {
            let incoming = socket.receive(current, &open, flags, &mut sink)?;
            if name != 0 {
                match incoming.header {
                    Some(header) => {
                        let sender = inet::encode(socket.family, header.from);
                        store_name(current.user, name, name_length, sender.bytes())?;
                    }
                    None => current.user.write_value(name_length, &0u32)?,
                }
            }
            Ok(length_of(flags, &incoming))
        }
        AnySocket::Netlink(socket) => {
            let received = socket.receive(current, &open, flags, &mut sink)?;
            if name != 0 {
                let kernel = NetlinkName::default().to_bytes();
                store_name(current.user, name, name_length, &kernel)?;
            }
            Ok(netlink_length(flags, received))
        }
    }
}

/// Returns the result of a receive from a netlink socket: the number of copied bytes or, with `MSG_TRUNC`, the
/// length of the message.
const fn netlink_length(flags: u32, received: NetlinkReceived) -> u64 {
    if flags & net::MSG_TRUNC != 0 {
        received.length as u64
    } else {
        received.count as u64
    }
}

/// Returns the result of a receive from an internet socket: the number of copied bytes or, with `MSG_TRUNC`, the
/// original length of the datagram.
const fn length_of(flags: u32, incoming: &Incoming) -> u64 {
    if flags & net::MSG_TRUNC != 0 {
        incoming.length as u64
    } else {
        incoming.count as u64
    }
}

/// Returns the result of a receive from a Unix socket: the number of copied bytes or, with `MSG_TRUNC`, the original
/// length of the message. Stream sockets ignore `MSG_TRUNC`.
fn result_of(kind: SocketKind, flags: u32, received: &Received) -> u64 {
    let whole = flags & net::MSG_TRUNC != 0 && kind != SocketKind::Stream;
    let count = if whole {
        received.length
    } else {
        received.count
    };
    count as u64
}

/// Stores the name of the sender. Stores an empty name if the sender is not bound.
fn store_sender(
    user: UserMemory<'_>,
    address: u64,
    room: u64,
    received: &Received,
) -> Result<(), Errno> {
    match &received.address {
        Some(name) => store_name(user, address, room, &Address::to_bytes(Some(name))),
        None => user.write_value(room, &0u32),
    }
}

/// Implements `sendmsg`.
pub fn sendmsg(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, flags, ..] = arguments;
    let open = opened(current, number)?;
    send_message(current, &open, address, flags as u32)
}

/// Sends the message whose header is at `address`.
fn send_message(current: &Current<'_>, open: &OpenFile, address: u64, flags: u32) -> CallResult {
    let socket = socket_of(open)?;
    current.check_heap()?;
    let header: MessageHeader = current.user.read_value(address)?;
    let name = (header.name, header.name_length.into());
    let mut request = Request {
        flags,
        ..Request::default()
    };
    let (mut to, mut to_netlink) = (None, None);
    match socket {
        AnySocket::Unix(socket) => {
            request.address = target(current.user, socket.kind, name.0, name.1)?;
        }
        AnySocket::Inet(socket) => to = receiver(current.user, socket, name)?,
        AnySocket::Netlink(_) => {
            to_netlink = netlink_receiver(current.user, name.0, name.1)?;
        }
    }
    if header.count > 1024 {
        return Err(Errno::EMSGSIZE);
    }
    let pieces = current.user.read_vectors(header.vectors, header.count)?;
    let bytes = control::read(current.user, &header)?;
    let mut source = Source::user(current.user, &pieces);
    let sent = match socket {
        AnySocket::Unix(socket) => {
            control::take(current, &bytes, &mut request)?;
            socket.send(current, open, request, &mut source)?
        }
        AnySocket::Inet(socket) => {
            let outgoing = Outgoing {
                name: to,
                control: &bytes,
                flags,
            };
            socket.send(current, open, outgoing, &mut source)?
        }
        AnySocket::Netlink(socket) => {
            // Decode the control messages only to reject invalid ones: the kernel ignores the open files and
            // credentials in them.
            control::take(current, &bytes, &mut request)?;
            socket.send(current, to_netlink, flags, &mut source)?
        }
    };
    Ok(sent as u64)
}

/// Implements `recvmsg`.
pub fn recvmsg(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, flags, ..] = arguments;
    let open = opened(current, number)?;
    receive_message(current, &open, address, flags as u32)
}

/// Receives a message. `address` is that of its header.
fn receive_message(current: &Current<'_>, open: &OpenFile, address: u64, flags: u32) -> CallResult {
    let socket = socket_of(open)?;
    current.check_heap()?;
    let mut header: MessageHeader = current.user.read_value(address)?;
    if header.count > 1024 {
        return Err(Errno::EMSGSIZE);
    }
    let pieces = current.user.read_vectors(header.vectors, header.count)?;
    let mut sink = Sink::user(current.user, &pieces);
    let socket = match socket {
        AnySocket::Unix(socket) => socket,
        AnySocket::Inet(socket) => {
            let incoming = socket.receive(current, open, flags, &mut sink)?;
            tell_ends(current.user, socket, &mut header, &incoming)?;
            header.flags |= flags & net::MSG_CMSG_CLOEXEC;
            current.user.write_value(address, &header)?;
            return Ok(length_of(flags, &incoming));
        }
        AnySocket::Netlink(socket) => {
            let received = socket.receive(current, open, flags, &mut sink)?;
            tell_kernel(current.user, socket, &mut header, received)?;
            header.flags |= flags & net::MSG_CMSG_CLOEXEC;
            current.user.write_value(address, &header)?;
            return Ok(netlink_length(flags, received));
        }
    };
    let mut received = socket.receive(current, open, flags, &mut sink)?;
    header.flags = flags & net::MSG_CMSG_CLOEXEC;
    if received.count < received.length && socket.kind != SocketKind::Stream {
        header.flags |= net::MSG_TRUNC;
    }
    if socket.kind == SocketKind::Sequence && received.credentials.is_some() {
        header.flags |= net::MSG_EOR;
    }
    if header.name != 0 {
        store_sender_in(current.user, &mut header, &received)?;
    } else {
        header.name_length = 0;
    }
    let passes = socket.passes_credentials();
    control::store(current, &mut header, passes, &mut received, flags)?;
    current.user.write_value(address, &header)?;
    Ok(result_of(socket.kind, flags, &received))
}

/// Maximum number of messages of one call (`UIO_MAXIOV`).
const MOST_MESSAGES: u64 = 1024;
/// Size of `struct mmsghdr` in bytes, and the offset of the length in it.
const ENTRY: u64 = 64;
const ENTRY_LENGTH: u64 = MessageHeader::SIZE as u64;
/// Number of messages that are sent or received between two scheduling points.
const TOGETHER: u32 = 16;
/// `MSG_WAITFORONE` of `linux/socket.h`.
const WAIT_FOR_ONE: u32 = 0x1_0000;

/// Calls `each` with the address of the header of each message in an array, and stores the length that `each` returns.
/// Stops when `each` fails or returns `None`. Returns the number of handled messages.
///
/// # Errors
/// The errors of `each`, if it fails for the first message.
fn each_message(
    user: UserMemory<'_>,
    (array, count): (u64, u64),
    mut each: impl FnMut(u64) -> Result<Option<u64>, Errno>,
) -> CallResult {
    let count = u64::from(count as u32).min(MOST_MESSAGES);
    let mut points = PausePoints::every(TOGETHER);
    for index in 0..count {
        let header = array.wrapping_add(index * ENTRY);
        let moved = each(header).and_then(|length| match length {
            Some(length) => {
                let stored = user.write_value(header.wrapping_add(ENTRY_LENGTH), &(length as u32));
                stored.map(|()| true)
            }
            None => Ok(false),
        });
        match moved {
            Ok(true) => points.round(),
            Ok(false) => return Ok(index),
            Err(_) if index > 0 => return Ok(index),
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Implements `sendmmsg` (Linux 7.2 `net/socket.c`, `__sys_sendmmsg`).
pub fn sendmmsg(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, array, count, flags, ..] = arguments;
    let open = opened(current, number)?;
    socket_of(&open)?;
    each_message(current.user, (array, count), |header| {
        send_message(current, &open, header, flags as u32).map(Some)
    })
}

/// Implements `recvmmsg` (Linux 7.2 `net/socket.c`, `do_recvmmsg`). The timeout is checked after each message.
pub fn recvmmsg(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, array, count, flags, timeout, _] = arguments;
    let flags = flags as u32;
    let open = opened(current, number)?;
    socket_of(&open)?;
    let clock = current.vfs().clock;
    let time: Option<Timespec> = current.user.read_optional(timeout)?;
    let deadline = match time {
        Some(time) => {
            let time = time.to_nanoseconds().ok_or(Errno::EINVAL)?;
            Some(clock.now().saturating_add(time))
        }
        None => None,
    };
    let (mut received, mut late) = (false, false);
    let result = each_message(current.user, (array, count), |header| {
        if late {
            return Ok(None);
        }
        let waits = !received || flags & WAIT_FOR_ONE == 0;
        let flags = if waits {
            flags
        } else {
            flags | net::MSG_DONTWAIT
        };
        let length = receive_message(current, &open, header, flags)?;
        received = true;
        late = deadline.is_some_and(|deadline| clock.now() >= deadline);
        Ok(Some(length))
    })?;
    if let Some(deadline) = deadline {
        let left = Timespec::from_nanoseconds(deadline.saturating_sub(clock.now()));
        current.user.write_value(timeout, &left)?;
    }
    Ok(result)
}

/// Stores the address of the sender of a datagram, and the control messages that the receiver has requested.
fn tell_ends(
    user: UserMemory<'_>,
    socket: &InetSocket,
    header: &mut MessageHeader,
    incoming: &Incoming,
) -> Result<(), Errno> {
    header.flags = 0;
    if incoming.count < incoming.length {
        header.flags = net::MSG_TRUNC;
    }
    if incoming.urgent {
        header.flags |= net::MSG_OOB;
    }
    let mut control = ControlWriter::new(user, header);
    match incoming.header {
        Some(received) => {
            if header.name != 0 {
                let sender = inet::encode(socket.family, received.from);
                store_in_header(user, header, sender.bytes())?;
            }
            if !incoming.told.is_empty() {
                inet::tell(incoming.told, &received, |level, kind, data| {
                    control.put(level, kind, data)
                })?;
            }
        }
        None => header.name_length = 0,
    }
    control.finish(header);
    Ok(())
}

/// Stores the address of the kernel as the sender of a netlink message, and the control messages that the receiver has
/// requested.
fn tell_kernel(
    user: UserMemory<'_>,
    socket: &NetlinkSocket,
    header: &mut MessageHeader,
    received: NetlinkReceived,
) -> Result<(), Errno> {
    header.flags = if received.count < received.length {
        net::MSG_TRUNC
    } else {
        0
    };
    if header.name == 0 {
        header.name_length = 0;
    } else {
        let kernel = NetlinkName::default().to_bytes();
        store_in_header(user, header, &kernel)?;
    }
    let mut control = ControlWriter::new(user, header);
    let (group, credentials) = socket.tells();
    if group {
        // A reply goes to one socket, not to a multicast group: the group number is 0.
        control.put(net::SOL_NETLINK, NETLINK_GROUP, &[0; 4])?;
    }
    if credentials {
        control.put_credentials(&Credentials::default())?;
    }
    control.finish(header);
    Ok(())
}

/// Stores a socket name in the buffer that a message header describes, truncated to the size of the buffer. Stores the
/// full length of the name in the header.
fn store_in_header(
    user: UserMemory<'_>,
    header: &mut MessageHeader,
    name: &[u8],
) -> Result<(), Errno> {
    let room = usize::try_from(header.name_length as i32).map_err(|_| Errno::EINVAL)?;
    user.write_bytes(header.name, &name[..name.len().min(room)])?;
    header.name_length = name.len() as u32;
    Ok(())
}

fn store_sender_in(
    user: UserMemory<'_>,
    header: &mut MessageHeader,
    received: &Received,
) -> Result<(), Errno> {
    let Some(name) = &received.address else {
        header.name_length = 0;
        return Ok(());
    };
    store_in_header(user, header, &Address::to_bytes(Some(name)))
}
