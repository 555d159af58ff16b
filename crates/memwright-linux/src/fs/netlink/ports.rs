//! The ports of netlink sockets.

use crate::sync::{Lock, Rank};
use alloc::collections::BTreeSet;

/// The ports that the kernel chooses if that of the process is taken: from this number down, as on Linux.
const FIRST: i32 = -4097;

struct Taken {
    ports: BTreeSet<u32>,
    next: i32,
}

/// The ports that sockets have.
pub struct Ports(Lock<Taken>);

impl Default for Ports {
    fn default() -> Self {
        Self::new()
    }
}

impl Ports {
    /// Creates the set of ports, none of which is taken.
    #[must_use]
    pub const fn new() -> Self {
        let taken = Taken {
            ports: BTreeSet::new(),
            next: FIRST,
        };
        Self(Lock::new(Rank::File, taken))
    }

    /// Claims a port. Returns whether it was free.
    pub fn claim(&self, port: u32) -> bool {
        self.0.lock().ports.insert(port)
    }

    /// Claims the port whose number is the id of `process`, or else another free one (`netlink_autobind` of Linux 7.2,
    /// `net/netlink/af_netlink.c`). Returns the port.
    pub fn claim_any(&self, process: u32) -> u32 {
        let mut port = process;
        loop {
            let mut taken = self.0.lock();
            if taken.ports.insert(port) {
                return port;
            }
            port = taken.next as u32;
            taken.next = taken.next.checked_sub(1).unwrap_or(FIRST);
        }
    }

    /// Releases a port.
    pub fn release(&self, port: u32) {
        self.0.lock().ports.remove(&port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_ports_are_avoided() {
        let ports = Ports::new();
        assert_eq!(ports.claim_any(7), 7);
        assert_eq!(ports.claim_any(7), -4097_i32 as u32);
        assert!(!ports.claim(7) && ports.claim(-4098_i32 as u32));
        assert_eq!(ports.claim_any(7), -4099_i32 as u32);
        ports.release(7);
        assert_eq!(ports.claim_any(7), 7);
    }
}
