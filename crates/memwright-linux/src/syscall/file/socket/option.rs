//! The `getsockopt` and `setsockopt` system calls.

use crate::{
    abi::{Plain, Timeval},
    context::{Arguments, CallResult, Context},
    errno::Errno,
    fs::socket::OptionValue,
    syscall::file::socket::{opened, socket_of},
};
use linux_raw_sys::net;

/// Checks that the level is `SOL_SOCKET`. No socket has protocol options.
fn check_level(level: u64) -> Result<(), Errno> {
    if level as u32 == net::SOL_SOCKET {
        Ok(())
    } else {
        Err(Errno::EOPNOTSUPP)
    }
}

pub fn getsockopt(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, level, name, address, length, _] = arguments;
    let open = opened(context, number)?;
    let socket = socket_of(&open)?;
    check_level(level)?;
    let room: i32 = context.user.read_value(length)?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let mut bytes = [0; Timeval::SIZE];
    let size = match socket.option(name as u32)? {
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
    };
    let size = size.min(room);
    context.user.write_bytes(address, &bytes[..size])?;
    context.user.write_value(length, &(size as u32)).map(|()| 0)
}

pub fn setsockopt(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[number, level, name, address, length, _] = arguments;
    let open = opened(context, number)?;
    let socket = socket_of(&open)?;
    check_level(level)?;
    let (name, length) = (name as u32, length as i32);
    if length < 4 {
        return Err(Errno::EINVAL);
    }
    if matches!(name, net::SO_RCVTIMEO_OLD | net::SO_SNDTIMEO_OLD) {
        if (length as usize) < Timeval::SIZE {
            return Err(Errno::EINVAL);
        }
        let time: Timeval = context.user.read_value(address)?;
        return socket.set_timeout(name, time).map(|()| 0);
    }
    let value: i32 = context.user.read_value(address)?;
    socket.set_option(name, value).map(|()| 0)
}
