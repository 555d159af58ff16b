//! Sending and receiving messages with their ancillary data.

use crate::{
    abi::{IoVector, Plain},
    abi_struct,
    context::{Arguments, CallResult, Context},
    errno::Errno,
    fs::{
        OpenFile,
        socket::{Address, Credentials, Received, Request, SocketKind},
        transfer::{Sink, Source},
    },
    identity::Capabilities,
    syscall::file::socket::{opened, read_address, socket_of, store_address},
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
    context: &Context<'_>,
    kind: SocketKind,
    address: u64,
    length: u64,
) -> Result<Option<Address>, Errno> {
    if address == 0 || length as u32 == 0 || kind == SocketKind::Sequence {
        return Ok(None);
    }
    read_address(context, address, length).map(Some)
}

/// Implements `sendto`.
pub fn sendto(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, length, flags, name, name_length] = arguments;
    let length = context.user.transfer_length(address, length)? as u64;
    let open = opened(context, number)?;
    let socket = socket_of(&open)?;
    let request = Request {
        address: target(context, socket.kind, name, name_length)?,
        flags: flags as u32,
        ..Request::default()
    };
    let pieces = [IoVector {
        base: address,
        length,
    }];
    let mut source = Source::user(context.user, &pieces);
    let sent = socket.send(context, &open, request, &mut source)?;
    Ok(sent as u64)
}

/// Implements `recvfrom`.
pub fn recvfrom(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, length, flags, name, name_length] = arguments;
    let length = context.user.transfer_length(address, length)? as u64;
    let open = opened(context, number)?;
    let socket = socket_of(&open)?;
    let pieces = [IoVector {
        base: address,
        length,
    }];
    let mut sink = Sink::user(context.user, &pieces);
    let received = socket.receive(context, &open, flags as u32, &mut sink)?;
    if name != 0 {
        store_sender(context, name, name_length, &received)?;
    }
    Ok(result_of(socket.kind, flags as u32, &received))
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
    context: &Context<'_>,
    address: u64,
    room: u64,
    received: &Received,
) -> Result<(), Errno> {
    match &received.address {
        Some(name) => store_address(context, address, room, Some(name)),
        None => context.user.write_value(room, &0u32),
    }
}

/// Implements `sendmsg`.
pub fn sendmsg(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, flags, ..] = arguments;
    let open = opened(context, number)?;
    let socket = socket_of(&open)?;
    context.check_heap()?;
    let header: MessageHeader = context.user.read_value(address)?;
    let mut request = Request {
        address: target(context, socket.kind, header.name, header.name_length.into())?,
        flags: flags as u32,
        ..Request::default()
    };
    if header.count > 1024 {
        return Err(Errno::EMSGSIZE);
    }
    let pieces = context.user.read_vectors(header.vectors, header.count)?;
    read_control(context, &header, &mut request)?;
    let mut source = Source::user(context.user, &pieces);
    let sent = socket.send(context, &open, request, &mut source)?;
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
    let flags = flags as u32;
    let open = opened(context, number)?;
    let socket = socket_of(&open)?;
    context.check_heap()?;
    let mut header: MessageHeader = context.user.read_value(address)?;
    if header.count > 1024 {
        return Err(Errno::EMSGSIZE);
    }
    let pieces = context.user.read_vectors(header.vectors, header.count)?;
    let mut sink = Sink::user(context.user, &pieces);
    let mut received = socket.receive(context, &open, flags, &mut sink)?;
    header.flags = flags & net::MSG_CMSG_CLOEXEC;
    if received.count < received.length && socket.kind != SocketKind::Stream {
        header.flags |= net::MSG_TRUNC;
    }
    if socket.kind == SocketKind::Sequence && received.credentials.is_some() {
        header.flags |= net::MSG_EOR;
    }
    if header.name != 0 {
        store_sender_in(context, &mut header, &received)?;
    } else {
        header.name_length = 0;
    }
    let passes = socket.passes_credentials();
    store_control(context, &mut header, passes, &mut received, flags)?;
    context.user.write_value(address, &header)?;
    Ok(result_of(socket.kind, flags, &received))
}

fn store_sender_in(
    context: &Context<'_>,
    header: &mut MessageHeader,
    received: &Received,
) -> Result<(), Errno> {
    let Some(name) = &received.address else {
        header.name_length = 0;
        return Ok(());
    };
    let bytes = Address::to_bytes(Some(name));
    let room = usize::try_from(header.name_length as i32).map_err(|_| Errno::EINVAL)?;
    context
        .user
        .write_bytes(header.name, &bytes[..bytes.len().min(room)])?;
    header.name_length = bytes.len() as u32;
    Ok(())
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
        control.put(CREDENTIALS, &bytes)?;
    }
    let rights = core::mem::take(&mut received.rights);
    if !rights.is_empty() {
        let numbers = control.install(rights, flags)?;
        if !numbers.is_empty() {
            control.put(RIGHTS, &numbers)?;
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
    fn put(&mut self, kind: u32, data: &[u8]) -> Result<(), Errno> {
        let Some(room) = self.left.checked_sub(ControlHeader::SIZE) else {
            self.cut = true;
            return Ok(());
        };
        let count = data.len().min(room);
        self.cut |= count < data.len();
        let length = ControlHeader::SIZE + count;
        let header = ControlHeader {
            length: length as u64,
            level: net::SOL_SOCKET,
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
