//! Socket options.

use crate::{abi::Timeval, fs::socket::credentials::Credentials};
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
    pub(super) noted: u32,
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
#[must_use]
pub fn buffer_size(wanted: i32) -> usize {
    let wanted = usize::try_from(wanted).unwrap_or(0);
    wanted.saturating_mul(2).clamp(BUFFER.0, BUFFER.1)
}

/// Returns the bit in `noted` of an option without effect, or `None` for other options.
pub(super) const fn noted_bit(name: u32) -> Option<u32> {
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
