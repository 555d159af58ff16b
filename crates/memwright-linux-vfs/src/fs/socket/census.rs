//! Lists all Unix sockets, for `/proc/net/unix`.

use crate::fs::socket::{Address, Registry, Socket, SocketKind};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::{batch::Batch, sync::lock_with_room};

/// An entry of the list.
pub struct Found {
    /// The smallest number that the next socket in the list can have.
    pub next: u64,
    /// The socket; `None` if it is being dropped.
    socket: Option<Arc<Socket>>,
}

/// A row of `/proc/net/unix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whether it is a stream, datagram or sequenced-packet socket.
    pub kind: SocketKind,
    /// Whether the socket accepts connections.
    pub listens: bool,
    /// Whether the socket has had a peer.
    pub connected: bool,
    /// The inode number of the socket; 0 before the socket has an open file.
    pub inode: u64,
    /// The name; `None` if the socket is not bound.
    pub address: Option<Address>,
}

impl Registry {
    /// Creates an unconnected socket, and adds it to the list of all sockets.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn create(&'static self, kind: SocketKind) -> Result<Arc<Socket>, Errno> {
        let socket = Arc::new(Socket::new(self, kind));
        let mut all = lock_with_room(&self.all, |all| all)?;
        let number = all.try_push(Arc::downgrade(&socket))?;
        drop(all);
        socket.listed.store(number, Ordering::Relaxed);
        Ok(socket)
    }

    /// Removes a socket, which is being dropped, from the list of all sockets.
    pub(super) fn forget(&self, socket: &Socket) {
        let number = socket.listed.load(Ordering::Relaxed);
        let reference = self.all.lock().remove(number);
        drop(reference);
    }

    /// Appends an entry to `batch` for each socket whose number is at least `first`, until `batch` is full.
    pub fn note(&self, mut first: u64, batch: &mut Batch<Found>) {
        let all = self.all.lock();
        while let Some((number, socket)) = all.first_from(first) {
            first = number + 1;
            let found = Found {
                next: first,
                socket: socket.upgrade(),
            };
            if !batch.push(found) {
                return;
            }
        }
    }
}

impl Found {
    /// Returns the row of the socket; `None` if it was closed.
    #[must_use]
    pub fn row(&self) -> Option<Row> {
        let socket = self.socket.as_ref()?;
        let state = socket.state.lock();
        (!state.closed).then(|| Row {
            kind: socket.kind,
            listens: state.listening.is_some(),
            connected: state.peer.is_some(),
            inode: socket.number.load(Ordering::Relaxed),
            address: state.address.clone(),
        })
    }
}
