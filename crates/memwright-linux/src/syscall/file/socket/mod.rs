//! System calls on sockets: creating, naming, connecting, shutting down.
//!
//! Only Unix sockets are supported. `socket` returns `EAFNOSUPPORT` for all other families, like a Linux kernel without
//! networking, so libraries find out at once.

mod message;
mod option;

use crate::{
    context::{Arguments, CallResult, Context},
    errno::Errno,
    fs::{
        OpenFile,
        socket::{ADDRESS_MAX, Address, Socket, SocketFile, SocketKind, open, pair},
    },
    syscall::call::{Kind, SystemCall, int, real},
};
use alloc::sync::Arc;
use linux_raw_sys::{general as raw, net};

use Kind::{Fd, Hex, InOut, Int, Unsigned};

/// The table entries of this group.
pub const CALLS: &[SystemCall] = &[
    real(raw::__NR_socket, "socket", &[Int, Hex, Int], socket),
    real(
        raw::__NR_socketpair,
        "socketpair",
        &[Int, Hex, Int, Kind::Out(8)],
        socketpair,
    ),
    real(raw::__NR_bind, "bind", &[Fd, Kind::InBuffer(2), Int], bind),
    real(
        raw::__NR_connect,
        "connect",
        &[Fd, Kind::InBuffer(2), Int],
        connect,
    ),
    real(raw::__NR_listen, "listen", &[Fd, Int], listen),
    real(raw::__NR_accept, "accept", &[Fd, Hex, InOut(4)], accept),
    real(
        raw::__NR_accept4,
        "accept4",
        &[Fd, Hex, InOut(4), Hex],
        accept4,
    ),
    real(
        raw::__NR_getsockname,
        "getsockname",
        &[Fd, Hex, InOut(4)],
        getsockname,
    ),
    real(
        raw::__NR_getpeername,
        "getpeername",
        &[Fd, Hex, InOut(4)],
        getpeername,
    ),
    real(raw::__NR_shutdown, "shutdown", &[Fd, Int], shutdown),
    real(
        raw::__NR_sendto,
        "sendto",
        &[Fd, Kind::InBuffer(2), Unsigned, Hex, Kind::InBuffer(5), Int],
        message::sendto,
    ),
    real(
        raw::__NR_recvfrom,
        "recvfrom",
        &[Fd, Kind::OutBuffer(2), Unsigned, Hex, Hex, InOut(4)],
        message::recvfrom,
    ),
    real(
        raw::__NR_sendmsg,
        "sendmsg",
        &[Fd, Kind::In(56), Hex],
        message::sendmsg,
    ),
    real(
        raw::__NR_recvmsg,
        "recvmsg",
        &[Fd, InOut(56), Hex],
        message::recvmsg,
    ),
    real(
        raw::__NR_getsockopt,
        "getsockopt",
        &[Fd, Int, Int, Hex, InOut(4)],
        option::getsockopt,
    ),
    real(
        raw::__NR_setsockopt,
        "setsockopt",
        &[Fd, Int, Int, Kind::InBuffer(4), Int],
        option::setsockopt,
    ),
];

/// The flags combined with the type of a socket, which are those of `open`.
const FLAGS: u32 = raw::O_CLOEXEC | raw::O_NONBLOCK;

/// Decodes the arguments of `socket` and `socketpair`: the kind of the socket, and its flags.
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

fn socket(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let (kind, flags) = kind(arguments[0], arguments[1], arguments[2])?;
    context.check_heap()?;
    context.caller().check_open_files()?;
    let file = open(
        context,
        Arc::new(Socket::new(&context.kernel.sockets, kind)),
        flags,
    );
    context.caller().add_descriptor(file, flags)
}

fn socketpair(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let (kind, flags) = kind(arguments[0], arguments[1], arguments[2])?;
    context.check_heap()?;
    context.caller().check_open_files()?;
    let (one, other) = pair(context, &context.kernel.sockets, kind)?;
    let (one, other) = (open(context, one, flags), open(context, other, flags));
    let files = context.files();
    let close = |number: u64| files.close(context.process().id, number as i32);
    let first = context.caller().add_descriptor(one, flags)?;
    let second = match context.caller().add_descriptor(other, flags) {
        Ok(second) => second,
        Err(error) => {
            close(first)?;
            return Err(error);
        }
    };
    let stored = context
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
fn opened(context: &Context<'_>, number: u64) -> Result<Arc<OpenFile>, Errno> {
    context.files().get_usable(int(number))
}

/// Returns the socket of an open file.
fn socket_of(open: &OpenFile) -> Result<&Arc<Socket>, Errno> {
    open.as_kind::<SocketFile>()
        .map(|file| &file.socket)
        .ok_or(Errno::ENOTSOCK)
}

/// Reads a socket name of `length` bytes.
fn read_address(context: &Context<'_>, address: u64, length: u64) -> Result<Address, Errno> {
    let length = length as u32 as usize;
    if length > ADDRESS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; ADDRESS_MAX];
    context.user.read_bytes(address, &mut bytes[..length])?;
    Address::from_bytes(&bytes[..length])
}

/// Stores a socket name, truncated to the available room, and its length.
fn store_address(
    context: &Context<'_>,
    address: u64,
    room: u64,
    name: Option<&Address>,
) -> Result<(), Errno> {
    let limit: i32 = context.user.read_value(room)?;
    let limit = usize::try_from(limit).map_err(|_| Errno::EINVAL)?;
    let bytes = Address::to_bytes(name);
    context
        .user
        .write_bytes(address, &bytes[..bytes.len().min(limit)])?;
    context.user.write_value(room, &(bytes.len() as u32))
}

fn bind(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, length, ..] = arguments;
    let open = opened(context, number)?;
    let socket = socket_of(&open)?;
    context.check_heap()?;
    let address = read_address(context, address, length)?;
    socket.bind(context, address).map(|()| 0)
}

fn connect(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, address, length, ..] = arguments;
    let open = opened(context, number)?;
    let socket = socket_of(&open)?;
    context.check_heap()?;
    let address = read_address(context, address, length)?;
    socket.connect(context, &open, &address).map(|()| 0)
}

fn listen(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let open = opened(context, arguments[0])?;
    let limit = arguments[1] as i32;
    socket_of(&open)?.listen(context, limit).map(|()| 0)
}

fn accept_with(context: &Context<'_>, arguments: &Arguments, flags: u32) -> CallResult {
    let &[number, address, length, ..] = arguments;
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let listener = opened(context, number)?;
    context.check_heap()?;
    context.caller().check_open_files()?;
    let socket = socket_of(&listener)?.accept(context, &listener)?;
    let name = socket.address(true).unwrap_or(None);
    let file = open(context, socket, flags);
    if address != 0 {
        store_address(context, address, length, name.as_ref())?;
    }
    context.caller().add_descriptor(file, flags)
}

fn accept(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    accept_with(context, arguments, 0)
}

fn accept4(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    accept_with(context, arguments, arguments[3] as u32)
}

fn getsockname(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let open = opened(context, arguments[0])?;
    let name = socket_of(&open)?.address(false)?;
    store_address(context, arguments[1], arguments[2], name.as_ref()).map(|()| 0)
}

fn getpeername(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let open = opened(context, arguments[0])?;
    let name = socket_of(&open)?.address(true)?;
    store_address(context, arguments[1], arguments[2], name.as_ref()).map(|()| 0)
}

fn shutdown(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let open = opened(context, arguments[0])?;
    socket_of(&open)?.shut(arguments[1] as u32).map(|()| 0)
}
