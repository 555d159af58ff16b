//! The sockets that receive at the same address and port.

use crate::fs::inet::socket::InetSocket;
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::Ordering;
use memwright_table::{OutOfMemory, TryPush};

/// The sockets that receive at the same address and port. Each socket stores its index in the group, so that it is
/// removed without a search.
#[derive(Default)]
pub struct Group {
    members: Vec<Weak<InetSocket>>,
}

impl Group {
    /// Adds a socket.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn add(&mut self, socket: &Arc<InetSocket>) -> Result<(), OutOfMemory> {
        self.members.try_push(Arc::downgrade(socket))?;
        socket
            .index
            .store(self.members.len() - 1, Ordering::Relaxed);
        Ok(())
    }

    /// Removes a socket that [`Self::add`] added. Returns whether the group is empty now.
    pub fn remove(&mut self, socket: &InetSocket) -> bool {
        let index = socket.index.load(Ordering::Relaxed);
        if index < self.members.len() {
            self.members.swap_remove(index);
        }
        if let Some(moved) = self.members.get(index).and_then(Weak::upgrade) {
            moved.index.store(index, Ordering::Relaxed);
        }
        self.members.is_empty()
    }

    /// Returns the socket that receives a packet. If the sockets share their port by `SO_REUSEPORT`, `hash`, the hash
    /// of the sender and receiver, selects one of them. Otherwise returns the socket that was added last.
    #[must_use]
    pub fn choose(&self, shares: bool, hash: u32) -> Option<Arc<InetSocket>> {
        let last = self.members.len().checked_sub(1)?;
        let index = if shares {
            ((u64::from(hash) * self.members.len() as u64) >> 32) as usize
        } else {
            last
        };
        self.members[index].upgrade()
    }

    /// Returns the number of sockets.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the socket at `index`, or `None` if the index is too large or the socket is being dropped.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Arc<InetSocket>> {
        self.members.get(index)?.upgrade()
    }
}
