//! Socket options.

use crate::{
    abi::Timeval,
    errno::Errno,
    fs::socket::{Credentials, Socket},
};
use linux_raw_sys::net;

/// The options of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Limit on the charge, in bytes, of messages that were sent but not received.
    pub send_buffer: usize,
    /// The size of the receive buffer. It has no effect, because Unix sockets charge the sender.
    pub receive_buffer: usize,
    /// Whether receivers get the sender's credentials.
    pub pass_credentials: bool,
    /// Timeout of a receive in nanoseconds; 0 for none.
    pub receive_timeout: u64,
    /// Timeout of a send in nanoseconds; 0 for none.
    pub send_timeout: u64,
    /// Options that have no effect on Unix sockets, as a bit mask: address reuse, keepalive, broadcast.
    noted: u32,
}

impl Options {
    pub(super) const fn new(buffer: usize) -> Self {
        Self {
            send_buffer: buffer,
            receive_buffer: buffer,
            pass_credentials: false,
            receive_timeout: 0,
            send_timeout: 0,
            noted: 0,
        }
    }
}

/// Minimum and maximum buffer size in bytes (`SOCK_MIN_SNDBUF`, and twice `net.core.wmem_max`).
const BUFFER: (usize, usize) = (4608, 425_984);

/// Returns the buffer size for a requested size. It is twice the requested size, because half of it is for the overhead
/// of messages.
fn buffer_size(wanted: i32) -> usize {
    let wanted = usize::try_from(wanted).unwrap_or(0);
    wanted.saturating_mul(2).clamp(BUFFER.0, BUFFER.1)
}

/// Returns the bit in `noted` of an option without effect, or `None` for other options.
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
    /// The peer's credentials.
    Credentials(Credentials),
}

impl Socket {
    /// Returns the value of an option of `SOL_SOCKET`.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn option(&self, name: u32) -> Result<OptionValue, Errno> {
        let mut state = self.state.lock();
        let options = &state.options;
        let number = match name {
            net::SO_TYPE => self.kind.number() as i32,
            net::SO_DOMAIN => net::AF_UNIX as i32,
            net::SO_PROTOCOL => 0,
            net::SO_ERROR => state
                .error
                .take()
                .map_or(0, |errno| i32::from(errno.number())),
            net::SO_SNDBUF => options.send_buffer as i32,
            net::SO_RCVBUF => options.receive_buffer as i32,
            net::SO_PASSCRED => options.pass_credentials.into(),
            net::SO_ACCEPTCONN => state.listening.is_some().into(),
            net::SO_RCVTIMEO_OLD => {
                return Ok(OptionValue::Time(Timeval::from_nanoseconds(
                    options.receive_timeout,
                )));
            }
            net::SO_SNDTIMEO_OLD => {
                return Ok(OptionValue::Time(Timeval::from_nanoseconds(
                    options.send_timeout,
                )));
            }
            net::SO_PEERCRED => {
                let nobody = Credentials {
                    process: 0,
                    user: u32::MAX,
                    group: u32::MAX,
                };
                let peer = state.peer_credentials.unwrap_or(nobody);
                return Ok(OptionValue::Credentials(peer));
            }
            _ => {
                let bit = noted_bit(name).ok_or(Errno::ENOPROTOOPT)?;
                i32::from(options.noted & bit != 0)
            }
        };
        Ok(OptionValue::Number(number))
    }

    /// Sets a numeric option of `SOL_SOCKET`.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn set_option(&self, name: u32, value: i32) -> Result<(), Errno> {
        let options = &mut self.state.lock().options;
        match name {
            net::SO_SNDBUF => options.send_buffer = buffer_size(value),
            net::SO_RCVBUF => options.receive_buffer = buffer_size(value),
            net::SO_PASSCRED => options.pass_credentials = value != 0,
            _ => {
                let bit = noted_bit(name).ok_or(Errno::ENOPROTOOPT)?;
                options.noted = (options.noted & !bit) | if value != 0 { bit } else { 0 };
            }
        }
        Ok(())
    }

    /// Sets the timeout of receives or of sends, which `name` selects.
    ///
    /// # Errors
    /// `EDOM` if the microseconds are out of range.
    pub fn set_timeout(&self, name: u32, time: Timeval) -> Result<(), Errno> {
        if !(0..1_000_000).contains(&time.microseconds) {
            return Err(Errno::EDOM);
        }
        // A negative time expires immediately, so it becomes the shortest timeout.
        let length = time.to_nanoseconds().unwrap_or(1);
        let options = &mut self.state.lock().options;
        if name == net::SO_RCVTIMEO_OLD {
            options.receive_timeout = length;
        } else {
            options.send_timeout = length;
        }
        Ok(())
    }

    /// Returns whether receivers get the sender's credentials.
    #[must_use]
    pub fn passes_credentials(&self) -> bool {
        self.options().pass_credentials
    }

    pub(super) fn options(&self) -> Options {
        self.state.lock().options
    }
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
