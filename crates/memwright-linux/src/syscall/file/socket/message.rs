//! Sending and receiving messages with their ancillary data.

use crate::{
    abi::{IoVector, Plain, Timespec},
    abi_struct,
    context::{Arguments, CallResult, Context},
    errno::Errno,
    fs::{
        OpenFile,
        inet::{self, Incoming, InetSocket, Name, Outgoing},
        socket::{Address, Credentials, Received, Request, SocketKind},
        transfer::{Sink, Source},
    },
    identity::Capabilities,
    sync::PausePoints,
    syscall::file::socket::{AnySocket, opened, read_address, read_name, socket_of, store_name},
    user::UserMemory,
};
use alloc::{sync::Arc, vec::Vec};
use linux_raw_sys::{general as raw, net};
use memwright_table::TryPush;

/// `SCM_RIGHTS` of `linux/socket.h`.
const RIGHTS: u32 = 1;
/// `SCM_CREDENTIALS` of `linux/socket.h`.
const CREDENTIALS: u32 = 2;
/// Most open files in one message (`SCM_MAX_FD` of Linux 7.2, `net/core/scm.c`).
const MOST_RIGHTS: usize = 253;
/// Most bytes of control messages in a send.
const CONTROL_MAX: u64 = 4096;

abi_struct! {
    /// `struct user_msghdr` of `linux/socket.h`.
    pub struct MessageHeader {
        /// Address of the socket name.
        pub name: u64,
        /// Length of the socket name in bytes.
        pub name_length: u32,
        /// Padding.
        pub padding: u32,
        /// Address of the vectors.
        pub vectors: u64,
        /// Number of vectors.
        pub count: u64,
        /// Address of the control messages.
        pub control: u64,
        /// Length of the control messages in bytes.
        pub control_length: u64,
        /// Flags that a receive returns.
        pub flags: u32,
        /// Padding.
        pub padding_behind: u32,
    }
}

abi_struct! {
    /// `struct cmsghdr` of `linux/socket.h`.
    pub struct ControlHeader {
        /// Length in bytes, including this header.
        pub length: u64,
        /// Level: `SOL_SOCKET`.
        pub level: u32,
        /// Type.
        pub kind: u32,
    }
}

/// Reads the destination name of a message. Sequenced-packet sockets ignore it.
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

/// Reads the receiver of what an internet socket sends. Stream sockets ignore it.
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

/// Implements `sendto`.
pub fn sendto(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, length, flags, name, name_length] = arguments;
    let length = context.user.transfer_length(address, length)? as u64;
    let open = opened(context, number)?;
    let flags = flags as u32;
    let pieces = [IoVector {
        base: address,
        length,
    }];
    let mut source = Source::user(context.user, &pieces);
    let sent = match socket_of(&open)? {
        AnySocket::Unix(socket) => {
            let request = Request {
                address: target(context.user, socket.kind, name, name_length)?,
                flags,
                ..Request::default()
            };
            socket.send(context, &open, request, &mut source)?
        }
        AnySocket::Inet(socket) => {
            let outgoing = Outgoing {
                name: receiver(context.user, socket, (name, name_length))?,
                source: None,
                flags,
            };
            socket.send(context, &open, outgoing, &mut source)?
        }
    };
    Ok(sent as u64)
}

/// Implements `recvfrom`.
pub fn recvfrom(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, length, flags, name, name_length] = arguments;
    let length = context.user.transfer_length(address, length)? as u64;
    let open = opened(context, number)?;
    let pieces = [IoVector {
        base: address,
        length,
    }];
    let mut sink = Sink::user(context.user, &pieces);
    let flags = flags as u32;
    match socket_of(&open)? {
        AnySocket::Unix(socket) => {
            let received = socket.receive(context, &open, flags, &mut sink)?;
            if name != 0 {
                store_sender(context.user, name, name_length, &received)?;
            }
            Ok(result_of(socket.kind, flags, &received))
        }
        AnySocket::Inet(socket) => {
            let incoming = socket.receive(context, &open, flags, &mut sink)?;
            if name != 0 {
                match incoming.ends {
                    Some((sender, _)) => {
                        let sender = inet::encode(socket.family, sender);
                        store_name(context.user, name, name_length, sender.bytes())?;
                    }
                    None => context.user.write_value(name_length, &0u32)?,
                }
            }
            Ok(length_of(flags, &incoming))
        }
    }
}

/// Returns the result of a receive from an internet socket: the number of bytes copied, or with `MSG_TRUNC` the original
/// length of the datagram.
const fn length_of(flags: u32, incoming: &Incoming) -> u64 {
    if flags & net::MSG_TRUNC != 0 {
        incoming.length as u64
    } else {
        incoming.count as u64
    }
}

/// Returns the result of a receive call: the number of bytes copied, or with `MSG_TRUNC` the original length of the
/// message.
fn result_of(kind: SocketKind, flags: u32, received: &Received) -> u64 {
    let whole = flags & net::MSG_TRUNC != 0 && kind != SocketKind::Stream;
    let count = if whole {
        received.length
    } else {
        received.count
    };
    count as u64
}

/// Stores the name of the sender, which is empty if the sender has no name.
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
pub fn sendmsg(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, flags, ..] = arguments;
    let open = opened(context, number)?;
    send_message(context, &open, address, flags as u32)
}

/// Sends the message whose header is at `address`.
fn send_message(context: &Context<'_>, open: &OpenFile, address: u64, flags: u32) -> CallResult {
    let socket = socket_of(open)?;
    context.check_heap()?;
    let header: MessageHeader = context.user.read_value(address)?;
    let name = (header.name, header.name_length.into());
    let mut request = Request {
        flags,
        ..Request::default()
    };
    let mut to = None;
    match socket {
        AnySocket::Unix(socket) => {
            request.address = target(context.user, socket.kind, name.0, name.1)?;
        }
        AnySocket::Inet(socket) => to = receiver(context.user, socket, name)?,
    }
    if header.count > 1024 {
        return Err(Errno::EMSGSIZE);
    }
    let pieces = context.user.read_vectors(header.vectors, header.count)?;
    read_control(context, &header, &mut request)?;
    let mut source = Source::user(context.user, &pieces);
    let sent = match socket {
        AnySocket::Unix(socket) => socket.send(context, open, request, &mut source)?,
        AnySocket::Inet(socket) => {
            // Internet sockets do not pass files (`__sock_cmsg_send` of Linux 7.2, `net/core/sock.c`).
            let outgoing = Outgoing {
                name: to,
                source: None,
                flags,
            };
            socket.send(context, open, outgoing, &mut source)?
        }
    };
    Ok(sent as u64)
}

/// Reads the control messages of a send.
fn read_control(
    context: &Context<'_>,
    header: &MessageHeader,
    request: &mut Request,
) -> Result<(), Errno> {
    if header.control_length > CONTROL_MAX {
        return Err(Errno::ENOBUFS);
    }
    let mut at = 0;
    let head = ControlHeader::SIZE as u64;
    while header.control_length.saturating_sub(at) >= head {
        let place = header.control.wrapping_add(at);
        let message: ControlHeader = context.user.read_value(place)?;
        if message.length < head || message.length > header.control_length - at {
            return Err(Errno::EINVAL);
        }
        let (data, length) = (place + head, (message.length - head) as usize);
        match (message.level, message.kind) {
            (net::SOL_SOCKET, RIGHTS) => take_rights(context, data, length / 4, request)?,
            (net::SOL_SOCKET, CREDENTIALS) => {
                if length != Credentials::SIZE {
                    return Err(Errno::EINVAL);
                }
                let given: Credentials = context.user.read_value(data)?;
                check_credentials(context, &given)?;
                request.credentials = Some(given);
            }
            (net::SOL_SOCKET, _) => return Err(Errno::EINVAL),
            // Unix sockets ignore control messages of other levels.
            _ => {}
        }
        at += message.length.next_multiple_of(8);
    }
    Ok(())
}

fn take_rights(
    context: &Context<'_>,
    data: u64,
    count: usize,
    request: &mut Request,
) -> Result<(), Errno> {
    if request.rights.len() + count > MOST_RIGHTS {
        return Err(Errno::EINVAL);
    }
    let files = context.files();
    for index in 0..count {
        let number: i32 = context.user.read_value(data + index as u64 * 4)?;
        request.rights.try_push(files.get(number)?)?;
    }
    Ok(())
}

/// Checks the credentials in a message: a sender may claim an id other than its own only with the capability to change
/// to it (`scm_check_creds` of Linux 7.2).
fn check_credentials(context: &Context<'_>, given: &Credentials) -> Result<(), Errno> {
    let process = context.process();
    let credentials = process.identity.credentials.lock();
    let (user, group) = (credentials.user, credentials.group);
    let allowed = |own: bool, needed: Capabilities| own || credentials.has(needed);
    let process_given = given.process == process.id;
    let user_given = [user.real, user.effective, user.saved].contains(&given.user);
    let group_given = [group.real, group.effective, group.saved].contains(&given.group);
    let granted = allowed(process_given, Capabilities::ADMINISTER)
        && allowed(user_given, Capabilities::SET_USER)
        && allowed(group_given, Capabilities::SET_GROUP);
    if granted { Ok(()) } else { Err(Errno::EPERM) }
}

/// Implements `recvmsg`.
pub fn recvmsg(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, flags, ..] = arguments;
    let open = opened(context, number)?;
    receive_message(context, &open, address, flags as u32)
}

/// Receives a message by the header at `address`.
fn receive_message(context: &Context<'_>, open: &OpenFile, address: u64, flags: u32) -> CallResult {
    let socket = socket_of(open)?;
    context.check_heap()?;
    let mut header: MessageHeader = context.user.read_value(address)?;
    if header.count > 1024 {
        return Err(Errno::EMSGSIZE);
    }
    let pieces = context.user.read_vectors(header.vectors, header.count)?;
    let mut sink = Sink::user(context.user, &pieces);
    let socket = match socket {
        AnySocket::Unix(socket) => socket,
        AnySocket::Inet(socket) => {
            let incoming = socket.receive(context, open, flags, &mut sink)?;
            tell_ends(context, socket, &mut header, &incoming)?;
            header.flags |= flags & net::MSG_CMSG_CLOEXEC;
            context.user.write_value(address, &header)?;
            return Ok(length_of(flags, &incoming));
        }
    };
    let mut received = socket.receive(context, open, flags, &mut sink)?;
    header.flags = flags & net::MSG_CMSG_CLOEXEC;
    if received.count < received.length && socket.kind != SocketKind::Stream {
        header.flags |= net::MSG_TRUNC;
    }
    if socket.kind == SocketKind::Sequence && received.credentials.is_some() {
        header.flags |= net::MSG_EOR;
    }
    if header.name != 0 {
        store_sender_in(context.user, &mut header, &received)?;
    } else {
        header.name_length = 0;
    }
    let passes = socket.passes_credentials();
    store_control(context, &mut header, passes, &mut received, flags)?;
    context.user.write_value(address, &header)?;
    Ok(result_of(socket.kind, flags, &received))
}

/// Most messages of one call (`UIO_MAXIOV`).
const MOST_MESSAGES: u64 = 1024;
/// Size in bytes of `struct mmsghdr`, and the offset in it of the length.
const ENTRY: u64 = 64;
const ENTRY_LENGTH: u64 = MessageHeader::SIZE as u64;
/// Messages that are sent or received between two scheduling points.
const TOGETHER: u32 = 16;
/// `MSG_WAITFORONE` of `linux/socket.h`.
const WAIT_FOR_ONE: u32 = 0x1_0000;

/// Passes the address of the header of each message of an array to `each`, and stores the length that it returns, until
/// it fails or returns `None`. Returns the number of messages.
///
/// # Errors
/// Those of `each` for the first message.
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
pub fn sendmmsg(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, array, count, flags, ..] = arguments;
    let open = opened(context, number)?;
    socket_of(&open)?;
    each_message(context.user, (array, count), |header| {
        send_message(context, &open, header, flags as u32).map(Some)
    })
}

/// Implements `recvmmsg` (Linux 7.2 `net/socket.c`, `do_recvmmsg`). The time is checked after each message.
pub fn recvmmsg(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, array, count, flags, timeout, _] = arguments;
    let flags = flags as u32;
    let open = opened(context, number)?;
    socket_of(&open)?;
    let clock = context.kernel.vfs.clock;
    let time: Option<Timespec> = context.user.read_optional(timeout)?;
    let deadline = match time {
        Some(time) => {
            let time = time.to_nanoseconds().ok_or(Errno::EINVAL)?;
            Some(clock.now().saturating_add(time))
        }
        None => None,
    };
    let (mut received, mut late) = (false, false);
    let result = each_message(context.user, (array, count), |header| {
        if late {
            return Ok(None);
        }
        let waits = !received || flags & WAIT_FOR_ONE == 0;
        let flags = if waits {
            flags
        } else {
            flags | net::MSG_DONTWAIT
        };
        let length = receive_message(context, &open, header, flags)?;
        received = true;
        late = deadline.is_some_and(|deadline| clock.now() >= deadline);
        Ok(Some(length))
    })?;
    if let Some(deadline) = deadline {
        let left = Timespec::from_nanoseconds(deadline.saturating_sub(clock.now()));
        context.user.write_value(timeout, &left)?;
    }
    Ok(result)
}

/// Stores the sender of a datagram, and its receiver if the socket asks for that by a control message.
fn tell_ends(
    context: &Context<'_>,
    socket: &InetSocket,
    header: &mut MessageHeader,
    incoming: &Incoming,
) -> Result<(), Errno> {
    header.flags = 0;
    if incoming.count < incoming.length {
        header.flags = net::MSG_TRUNC;
    }
    let mut control = ControlWriter {
        context,
        at: header.control,
        left: header.control_length as usize,
        cut: false,
    };
    match incoming.ends {
        Some((sender, receiver)) => {
            if header.name != 0 {
                let sender = inet::encode(socket.family, sender);
                store_in_header(context.user, header, sender.bytes())?;
            }
            let (four, six) = socket.tells_address();
            if let (inet::Ip::V4(ip), true) = (receiver.ip, four) {
                let mut info = [0; 12];
                info[0] = INTERFACE;
                info[4..8].copy_from_slice(&ip);
                info[8..].copy_from_slice(&ip);
                control.put(net::IPPROTO_IP as u32, net::IP_PKTINFO, &info)?;
            }
            if six {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&receiver.ip.to_v6());
                info[16] = INTERFACE;
                control.put(net::IPPROTO_IPV6 as u32, net::IPV6_PKTINFO, &info)?;
            }
        }
        None => header.name_length = 0,
    }
    header.control_length = control.at - header.control;
    if control.cut {
        header.flags |= net::MSG_CTRUNC;
    }
    Ok(())
}

/// The number of the loopback interface.
const INTERFACE: u8 = 1;

/// Stores a socket name by a message header, truncated to the available room, and its length.
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

/// Stores the control messages of a receive, as far as they fit into the caller's buffer.
fn store_control(
    context: &Context<'_>,
    header: &mut MessageHeader,
    passes: bool,
    received: &mut Received,
    flags: u32,
) -> Result<(), Errno> {
    let mut control = ControlWriter {
        context,
        at: header.control,
        left: header.control_length as usize,
        cut: false,
    };
    if let Some(credentials) = received.credentials.filter(|_| passes) {
        let mut bytes = [0; Credentials::SIZE];
        credentials.to_bytes(&mut bytes);
        control.put(net::SOL_SOCKET, CREDENTIALS, &bytes)?;
    }
    let rights = core::mem::take(&mut received.rights);
    if !rights.is_empty() {
        let numbers = control.install(rights, flags)?;
        if !numbers.is_empty() {
            control.put(net::SOL_SOCKET, RIGHTS, &numbers)?;
        }
    }
    header.control_length = control.at - header.control;
    if control.cut {
        header.flags |= net::MSG_CTRUNC;
    }
    Ok(())
}

/// Writes control messages one after another.
struct ControlWriter<'a> {
    context: &'a Context<'a>,
    at: u64,
    left: usize,
    /// Some data did not fit.
    cut: bool,
}

impl ControlWriter<'_> {
    fn put(&mut self, level: u32, kind: u32, data: &[u8]) -> Result<(), Errno> {
        let Some(room) = self.left.checked_sub(ControlHeader::SIZE) else {
            self.cut = true;
            return Ok(());
        };
        let count = data.len().min(room);
        self.cut |= count < data.len();
        let length = ControlHeader::SIZE + count;
        let header = ControlHeader {
            length: length as u64,
            level,
            kind,
        };
        self.context.user.write_value(self.at, &header)?;
        self.context
            .user
            .write_bytes(self.at + ControlHeader::SIZE as u64, &data[..count])?;
        let step = length.next_multiple_of(8).min(self.left);
        self.at += step as u64;
        self.left -= step;
        Ok(())
    }

    /// Installs as many of the open files as have room for their descriptors in the control message. Closes the other
    /// files.
    fn install(&mut self, rights: Vec<Arc<OpenFile>>, flags: u32) -> Result<Vec<u8>, Errno> {
        let room = self.left.saturating_sub(ControlHeader::SIZE) / 4;
        let cloexec = if flags & net::MSG_CMSG_CLOEXEC != 0 {
            raw::O_CLOEXEC
        } else {
            0
        };
        let mut numbers: Vec<u8> = Vec::new();
        let told = rights.len().min(room);
        let room = if numbers.try_make_room(4 * told).is_ok() {
            told
        } else {
            0
        };
        self.cut |= rights.len() > room;
        for open in rights.into_iter().take(room) {
            match self.context.caller().add_descriptor(open, cloexec) {
                #[expect(clippy::disallowed_methods, reason = "there is room")]
                Ok(number) => numbers.extend_from_slice(&(number as u32).to_le_bytes()),
                Err(_) => {
                    self.cut = true;
                    break;
                }
            }
        }
        Ok(numbers)
    }
}
