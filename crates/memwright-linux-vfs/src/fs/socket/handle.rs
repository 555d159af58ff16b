//! The open file behind a descriptor of a Unix socket, and its close.

use crate::fs::socket::{remains::Remains, socket::Socket};
use alloc::sync::Arc;

/// The open file behind a descriptor of a Unix socket.
pub struct SocketFile {
    /// The socket.
    pub socket: Arc<Socket>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let closed = self.socket.close(&mut Remains::default());
        self.socket.readable.sweep();
        self.socket.writable.sweep();
        if closed {
            self.socket.registry.flights.note_close();
        }
    }
}
