//! The options that Unix and netlink sockets have in common.

use crate::fs::socket::credentials::Credentials;
use linux_raw_sys::net;
use memwright_linux_abi::{abi::Timeval, errno::Errno};

/// The options of `SOL_SOCKET` of a Unix or netlink socket.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Limit in bytes on the charge of messages that this socket has sent and that were not received yet.
    pub send_buffer: usize,
    /// The size of the receive buffer in bytes. It limits the replies of a netlink socket. It has no effect on a Unix
    /// socket, because a message is charged to its sender.
    pub receive_buffer: usize,
    /// Whether receives return the sender's credentials.
    pub pass_credentials: bool,
    /// Timeout of a receive in nanoseconds; 0 for none.
    pub receive_timeout: u64,
    /// Timeout of a send in nanoseconds; 0 for none.
    pub send_timeout: u64,
    /// The options without effect that are set, as a bit mask: `SO_REUSEADDR`, `SO_KEEPALIVE`, `SO_BROADCAST` and
    /// `SO_REUSEPORT`.
    noted: u32,
}

impl Options {
    /// Returns the default options, with buffers of `buffer` bytes.
    #[must_use]
    pub const fn new(buffer: usize) -> Self {
        Self {
            send_buffer: buffer,
            receive_buffer: buffer,
            pass_credentials: false,
            receive_timeout: 0,
            send_timeout: 0,
            noted: 0,
        }
    }

    /// Returns the value of an option of `SOL_SOCKET`.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn get(&self, name: u32) -> Result<OptionValue, Errno> {
        let time = |length| OptionValue::Time(Timeval::from_nanoseconds(length));
        Ok(match name {
            net::SO_SNDBUF => OptionValue::Number(self.send_buffer as i32),
            net::SO_RCVBUF => OptionValue::Number(self.receive_buffer as i32),
            net::SO_PASSCRED => OptionValue::Number(self.pass_credentials.into()),
            net::SO_RCVTIMEO_OLD => time(self.receive_timeout),
            net::SO_SNDTIMEO_OLD => time(self.send_timeout),
            _ => {
                let bit = noted_bit(name).ok_or(Errno::ENOPROTOOPT)?;
                OptionValue::Number(i32::from(self.noted & bit != 0))
            }
        })
    }

    /// Sets a numeric option of `SOL_SOCKET`.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn set(&mut self, name: u32, value: i32) -> Result<(), Errno> {
        match name {
            net::SO_SNDBUF => self.send_buffer = buffer_size(value),
            net::SO_RCVBUF => self.receive_buffer = buffer_size(value),
            net::SO_PASSCRED => self.pass_credentials = value != 0,
            _ => {
                let bit = noted_bit(name).ok_or(Errno::ENOPROTOOPT)?;
                self.noted = (self.noted & !bit) | if value != 0 { bit } else { 0 };
            }
        }
        Ok(())
    }

    /// Sets the timeout of receives or that of sends. `name` selects which (`SO_RCVTIMEO_OLD` or `SO_SNDTIMEO_OLD`).
    ///
    /// # Errors
    /// `EDOM` if the microseconds are out of range.
    pub fn set_timeout(&mut self, name: u32, time: Timeval) -> Result<(), Errno> {
        if !(0..1_000_000).contains(&time.microseconds) {
            return Err(Errno::EDOM);
        }
        // A negative time must expire immediately: store the shortest timeout, because 0 stands for no timeout.
        let length = time.to_nanoseconds().unwrap_or(1);
        if name == net::SO_RCVTIMEO_OLD {
            self.receive_timeout = length;
        } else {
            self.send_timeout = length;
        }
        Ok(())
    }
}

/// Minimum and maximum buffer size in bytes (`SOCK_MIN_SNDBUF`, and twice `net.core.wmem_max`).
const BUFFER: (usize, usize) = (4608, 425_984);

/// Returns the buffer size for a requested size. The buffer size is twice the requested size, because half of it is for
/// the overhead of messages.
#[must_use]
pub fn buffer_size(wanted: i32) -> usize {
    let wanted = usize::try_from(wanted).unwrap_or(0);
    wanted.saturating_mul(2).clamp(BUFFER.0, BUFFER.1)
}

/// Returns the bit in `noted` for an option without effect, or `None` for other options.
const fn noted_bit(name: u32) -> Option<u32> {
    match name {
        net::SO_REUSEADDR => Some(1),
        net::SO_KEEPALIVE => Some(2),
        net::SO_BROADCAST => Some(4),
        net::SO_REUSEPORT => Some(8),
        _ => None,
    }
}

/// The value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A number.
    Number(i32),
    /// A time.
    Time(Timeval),
    /// The credentials of the connected process (`SO_PEERCRED`).
    Credentials(Credentials),
    /// The multicast groups of which the socket is a member, as a bit mask.
    Groups(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_limits() {
        for (wanted, size) in [
            (-1, 4608),
            (0, 4608),
            (4096, 8192),
            (1 << 20, 425_984),
            (i32::MAX, 425_984),
        ] {
            assert_eq!(buffer_size(wanted), size);
        }
    }
}
