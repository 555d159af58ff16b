//! Netlink sockets as open files.

use crate::fs::{
    abilities::{Polling, Positions, Splices},
    caller::Caller,
    interface::{self, Addresses},
    netlink::socket::NetlinkSocket,
    open_file::{File, OpenFile},
    open_kind::OpenKind,
    readiness::Readiness,
    socket_entry::open_socket,
    transfer::{Sink, Source},
};
use alloc::sync::Arc;
use memwright_linux_abi::errno::Errno;
use memwright_linux_sched::wait::Queues;

/// The open file behind a descriptor of a netlink socket.
pub struct NetlinkFile {
    /// The socket.
    pub socket: NetlinkSocket,
}

/// Creates an open file for a socket. `flags` can contain `O_NONBLOCK`.
#[must_use]
pub fn open(caller: &dyn Caller, socket: NetlinkSocket, flags: u32) -> Arc<OpenFile> {
    open_socket(caller, flags, |_| NetlinkFile { socket })
}

impl File for NetlinkFile {
    fn splices(&self) -> Splices {
        Splices::Both
    }

    fn counted_as(&self) -> OpenKind {
        OpenKind::Socket
    }

    fn kernel_bytes(&self) -> u64 {
        /// Estimated size in bytes of a socket with its inode, its directory entry and its port.
        const PLAIN: usize = 1536;
        (PLAIN + self.socket.state.lock().charged) as u64
    }

    fn positions(&self) -> Positions {
        Positions::Refused
    }

    fn read(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        _position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        // A read of zero bytes must leave the first reply in the queue.
        if sink.left() == 0 {
            return Ok(0);
        }
        let received = self.socket.receive(caller, open, 0, sink)?;
        Ok(received.count)
    }

    fn write(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        _position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        self.socket.send(caller, None, 0, source)
    }

    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn readiness(&self, _caller: &dyn Caller, _open: &OpenFile) -> Readiness {
        self.socket.readiness()
    }

    fn queues<'a>(&'a self, _caller: &'a dyn Caller, _wanted: Readiness, queues: &mut Queues<'a>) {
        // A send never waits, so the queue of readers is sufficient.
        queues.add(&self.socket.readable);
    }

    fn control(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        interface::control(caller.memory(), Addresses::None, command, argument)
    }
}

impl Drop for NetlinkFile {
    fn drop(&mut self) {
        self.socket.readable.sweep();
        let port = self.socket.state.lock().port;
        if let Some(port) = port {
            self.socket.ports.release(port);
        }
    }
}
