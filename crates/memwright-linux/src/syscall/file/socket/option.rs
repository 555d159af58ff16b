//! The `getsockopt` and `setsockopt` system calls.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::file::socket::{AnySocket, opened, socket_of},
};
use linux_raw_sys::net;
use memwright_linux_abi::{
    abi::{Plain, Timeval},
    errno::Errno,
};
use memwright_linux_vfs::{
    fs::{
        inet::{InetSocket, Value},
        netlink::NetlinkSocket,
        socket::OptionValue,
    },
    user::UserMemory,
};

/// Checks that the level of a Unix socket's option is `SOL_SOCKET`: Unix sockets have no protocol options.
fn check_level(level: u64) -> Result<(), Errno> {
    if level as u32 == net::SOL_SOCKET {
        Ok(())
    } else {
        Err(Errno::EOPNOTSUPP)
    }
}

pub fn getsockopt(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, level, name, address, length, _] = arguments;
    let open = opened(current, number)?;
    let value = match socket_of(&open)? {
        AnySocket::Unix(socket) => {
            check_level(level)?;
            socket.option(name as u32)?
        }
        AnySocket::Inet(socket) => {
            let value = socket.option(level as u32, name as u32)?;
            return store_value(current.user, address, length, value);
        }
        AnySocket::Netlink(socket) => socket.option(level as u32, name as u32)?,
    };
    let room: i32 = current.user.read_value(length)?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let mut bytes = [0; Timeval::SIZE];
    let size = match value {
        OptionValue::Number(number) => {
            number.to_bytes(&mut bytes[..4]);
            4
        }
        OptionValue::Time(time) => {
            time.to_bytes(&mut bytes);
            Timeval::SIZE
        }
        OptionValue::Credentials(credentials) => {
            credentials.to_bytes(&mut bytes[..12]);
            12
        }
        OptionValue::Groups(groups) => {
            groups.to_bytes(&mut bytes[..8]);
            8
        }
    };
    let size = size.min(room);
    current.user.write_bytes(address, &bytes[..size])?;
    current.user.write_value(length, &(size as u32)).map(|()| 0)
}

pub fn setsockopt(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, level, name, address, length, _] = arguments;
    let open = opened(current, number)?;
    let socket = match socket_of(&open)? {
        AnySocket::Unix(socket) => socket,
        AnySocket::Inet(socket) => {
            return set_inet(
                current.user,
                socket,
                (level as u32, name as u32),
                (address, length),
            );
        }
        AnySocket::Netlink(socket) => {
            return set_netlink(
                current.user,
                socket,
                (level as u32, name as u32),
                (address, length),
            );
        }
    };
    check_level(level)?;
    let (name, length) = (name as u32, length as i32);
    if length < 4 {
        return Err(Errno::EINVAL);
    }
    if matches!(name, net::SO_RCVTIMEO_OLD | net::SO_SNDTIMEO_OLD) {
        if (length as usize) < Timeval::SIZE {
            return Err(Errno::EINVAL);
        }
        let time: Timeval = current.user.read_value(address)?;
        return socket.set_timeout(name, time).map(|()| 0);
    }
    let value: i32 = current.user.read_value(address)?;
    socket.set_option(name, value).map(|()| 0)
}

/// Sets an option of a netlink socket. For the `SOL_NETLINK` options, a value that is too short counts as 0 (Linux 7.2
/// `net/netlink/af_netlink.c`, `netlink_setsockopt`).
fn set_netlink(
    user: UserMemory<'_>,
    socket: &NetlinkSocket,
    (level, name): (u32, u32),
    (address, length): (u64, u64),
) -> CallResult {
    let length = usize::try_from(length as i32).map_err(|_| Errno::EINVAL)?;
    let value = match (level, length) {
        (net::SOL_NETLINK, ..4) => 0,
        (_, ..4) => return Err(Errno::EINVAL),
        _ => user.read_value(address)?,
    };
    match (level, name) {
        (net::SOL_SOCKET, net::SO_RCVTIMEO_OLD | net::SO_SNDTIMEO_OLD) => {
            if length < Timeval::SIZE {
                return Err(Errno::EINVAL);
            }
            socket.set_timeout(name, user.read_value(address)?)?;
        }
        _ => socket.set_option(level, name, value)?,
    }
    Ok(0)
}

/// Stores the value of an option of an internet socket in the caller's buffer at `address`. `length` is the address of
/// the size of the buffer: truncates the value to that size, and replaces the size by the stored length.
fn store_value(user: UserMemory<'_>, address: u64, length: u64, value: Value) -> CallResult {
    let room: i32 = user.read_value(length)?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let store = |bytes: &[u8]| {
        let size = bytes.len().min(room);
        user.write_bytes(address, &bytes[..size])?;
        user.write_value(length, &(size as u32)).map(|()| 0)
    };
    match value {
        Value::Number(number) => store(&number.to_le_bytes()),
        Value::Time(time) => {
            let mut bytes = [0; Timeval::SIZE];
            time.to_bytes(&mut bytes);
            store(&bytes)
        }
        Value::Linger([on, seconds]) => {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&on.to_le_bytes());
            bytes[4..].copy_from_slice(&seconds.to_le_bytes());
            store(&bytes)
        }
        Value::Info(info) => store(&info),
        Value::Name(name) => store(&name),
    }
}

/// Sets an option of an internet socket.
fn set_inet(
    user: UserMemory<'_>,
    socket: &InetSocket,
    (level, name): (u32, u32),
    (address, length): (u64, u64),
) -> CallResult {
    /// Maximum length in bytes of the name of a congestion control (`TCP_CA_NAME_MAX`), without the NUL.
    const NAME: usize = 15;
    let length = usize::try_from(length as i32).map_err(|_| Errno::EINVAL)?;
    match (level, name) {
        (net::SOL_SOCKET, net::SO_RCVTIMEO_OLD | net::SO_SNDTIMEO_OLD) => {
            if length < Timeval::SIZE {
                return Err(Errno::EINVAL);
            }
            socket.set_timeout(name, user.read_value(address)?)?;
        }
        (net::SOL_SOCKET, net::SO_LINGER) => {
            if length < 8 {
                return Err(Errno::EINVAL);
            }
            let [on, seconds]: [i32; 2] = user.read_value(address)?;
            socket.set_linger(on != 0, seconds as u32);
        }
        (6, net::TCP_CONGESTION) => {
            let mut bytes = [0; NAME];
            let bytes = &mut bytes[..length.min(NAME)];
            user.read_bytes(address, bytes)?;
            socket.set_congestion(bytes)?;
        }
        // The value of an option of `SOL_IP` can also be a single byte.
        (0, _) if (1..4).contains(&length) => {
            let value: u8 = user.read_value(address)?;
            socket.set_option(level, name, value.into())?;
        }
        _ => {
            if length < 4 {
                return Err(Errno::EINVAL);
            }
            socket.set_option(level, name, user.read_value(address)?)?;
        }
    }
    Ok(0)
}
