//! The ports of netlink sockets.

use memwright_linux_base::{
    ordered::Ordered,
    sync::{Lock, Rank, lock_with_room},
};
use memwright_table::OutOfMemory;

/// The first port that the kernel tries if the process id is in use as a port. The kernel continues with lower numbers,
/// as Linux does.
const FIRST: i32 = -4097;

struct Taken {
    ports: Ordered<u32, ()>,
    next: i32,
}

/// The set of ports that are in use.
pub struct Ports(Lock<Taken>);

impl Default for Ports {
    fn default() -> Self {
        Self::new()
    }
}

impl Ports {
    /// Creates a set in which no port is in use.
    #[must_use]
    pub const fn new() -> Self {
        let taken = Taken {
            ports: Ordered::new(),
            next: FIRST,
        };
        Self(Lock::new(Rank::File, taken))
    }

    /// Claims a port. Returns whether it was free.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn claim(&self, port: u32) -> Result<bool, OutOfMemory> {
        let mut taken = lock_with_room(&self.0, |taken| &mut taken.ports)?;
        Ok(taken.ports.insert(port, ())?.is_none())
    }

    /// Claims the port whose number is the id of `process`. If this port is in use, claims another free one
    /// (`netlink_autobind` of Linux 7.2, `net/netlink/af_netlink.c`). Returns the port.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn claim_any(&self, process: u32) -> Result<u32, OutOfMemory> {
        let mut port = process;
        loop {
            if self.claim(port)? {
                return Ok(port);
            }
            let mut taken = self.0.lock();
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
        assert_eq!(ports.claim_any(7), Ok(7));
        assert_eq!(ports.claim_any(7), Ok(-4097_i32 as u32));
        assert_eq!(ports.claim(7), Ok(false));
        assert_eq!(ports.claim(-4098_i32 as u32), Ok(true));
        assert_eq!(ports.claim_any(7), Ok(-4099_i32 as u32));
        ports.release(7);
        assert_eq!(ports.claim_any(7), Ok(7));
    }
}
