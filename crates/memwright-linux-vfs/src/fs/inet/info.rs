//! The properties of a connection that the option `TCP_INFO` returns.

use crate::fs::inet::socket::InetSocket;

/// Size in bytes of the part of `struct tcp_info` that this kernel fills.
pub const INFO_SIZE: usize = 104;
/// The maximum number of bytes in a packet of the loopback interface, without headers.
pub(super) const SEGMENT: u32 = 65_483;

impl InetSocket {
    /// Returns the beginning of `struct tcp_info` (Linux 7.2 `include/uapi/linux/tcp.h`, `net/ipv4/tcp.c`,
    /// `tcp_get_info`).
    pub(super) fn info(&self) -> [u8; INFO_SIZE] {
        let (state, waiting, open) = {
            let state = self.state.lock();
            let waiting = state.listening.as_ref().map(|listening| {
                let queued = listening.waiting.len() as u32;
                (queued, listening.limit as u32)
            });
            (state.progress.state(), waiting, state.progress.is_open())
        };
        let mut info = [0; INFO_SIZE];
        info[0] = state as u8;
        // The options of the connection: timestamps, selective acknowledgements and window scaling.
        info[5] = if open { 7 } else { 0 };
        let mut put = |offset: usize, value: u32| {
            info[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        };
        // The retransmission timeout and the delay of acknowledgements, in microseconds, and the segment sizes for
        // sending and receiving, in bytes.
        put(8, 201_000);
        put(12, 40_000);
        put(16, if open { SEGMENT } else { 536 });
        put(20, if open { SEGMENT } else { 536 });
        if let Some((queued, limit)) = waiting {
            put(24, queued);
            put(28, limit);
        }
        // The path MTU, the slow-start threshold, the congestion window and the advertised segment size.
        put(60, 65_535);
        put(76, i32::MAX as u32);
        put(80, 10);
        put(84, SEGMENT);
        info
    }
}
