//! Internet sockets as open files.

use crate::fs::{
    abilities::{Polling, Positions, Splices},
    caller::Caller,
    inet::{
        address::Family, claims::Protocol, close::InetFile, send::Outgoing, socket::InetSocket,
    },
    interface::{self, Addresses},
    open_file::{File, OpenFile},
    open_kind::OpenKind,
    readiness::Readiness,
    socket_entry::open_socket,
    transfer::{Sink, Source},
};
use alloc::sync::{Arc, Weak};
use linux_raw_sys::ioctl;
use memwright_linux_abi::errno::Errno;
use memwright_linux_sched::wait::Queues;

/// The `ioctl` that returns whether a stream is at the mark of the urgent byte (`include/uapi/asm-generic/sockios.h`).
const SIOCATMARK: u32 = 0x8905;

/// Creates an open file for a socket. `flags` can contain `O_NONBLOCK`.
#[must_use]
pub fn open(caller: &dyn Caller, socket: Arc<InetSocket>, flags: u32) -> Arc<OpenFile> {
    let owned = socket.clone();
    let open = open_socket(caller, flags, |number| {
        socket.set_number(number);
        InetFile { socket }
    });
    *owned.file.lock() = Arc::downgrade(&open);
    open
}

impl File for InetFile {
    fn splices(&self) -> Splices {
        Splices::Both
    }

    fn counted_as(&self) -> OpenKind {
        OpenKind::Socket
    }

    fn kernel_bytes(&self) -> u64 {
        /// Estimated size in bytes of a socket with its inode, its directory entry and its entries in the tables of the
        /// network.
        const PLAIN: usize = 2560;
        (PLAIN + self.socket.state.lock().inbox.charged()) as u64
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
        // A read of zero bytes must leave the first datagram in the inbox.
        if sink.left() == 0 {
            return Ok(0);
        }
        let received = self.socket.receive(caller, open, 0, sink)?;
        Ok(received.count)
    }

    fn write(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        _position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        self.socket.send(caller, open, Outgoing::default(), source)
    }

    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn readiness(&self, _caller: &dyn Caller, _open: &OpenFile) -> Readiness {
        self.socket.readiness()
    }

    fn queues<'a>(&'a self, _caller: &'a dyn Caller, wanted: Readiness, queues: &mut Queues<'a>) {
        if wanted.concerns_reading() {
            queues.add(&self.socket.readable);
        }
        if wanted.concerns_writing() {
            queues.add(&self.socket.writable);
        }
    }

    fn control(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        let count = match command {
            ioctl::FIONREAD => self.socket.waiting()?,
            ioctl::TIOCOUTQ => self.socket.unreceived()?,
            SIOCATMARK if self.socket.is_stream() => {
                usize::from(self.socket.state.lock().is_at_mark())
            }
            _ => {
                let addresses = match self.socket.family {
                    Family::V4 => Addresses::V4,
                    Family::V6 => Addresses::None,
                };
                return interface::control(caller.memory(), addresses, command, argument);
            }
        };
        caller
            .memory()
            .write_value(argument, &(count as u32))
            .map(|()| 0)
    }
}

impl InetSocket {
    /// Returns the number of bytes that can be received now: the bytes of a stream before the mark of the urgent byte,
    /// or the bytes of the first datagram (`tcp_inq`).
    ///
    /// # Errors
    /// `EINVAL` for a listening socket.
    fn waiting(&self) -> Result<usize, Errno> {
        let state = self.state.lock();
        if state.listening.is_some() {
            return Err(Errno::EINVAL);
        }
        Ok(match self.protocol {
            Protocol::Tcp if state.skips_mark() => match state.before_mark() {
                Some(count) => count.min(state.inbox.bytes()),
                None => state.inbox.bytes(),
            },
            Protocol::Tcp => state.inbox.bytes(),
            Protocol::Udp => state.inbox.front().map_or(0, |piece| piece.left()),
        })
    }

    /// Returns the number of sent bytes that exceed the peer's receive buffer (`TIOCOUTQ`). Bytes within that buffer
    /// count as acknowledged.
    ///
    /// # Errors
    /// `EINVAL` for a listening socket.
    fn unreceived(&self) -> Result<usize, Errno> {
        let peer = {
            let state = self.state.lock();
            if state.listening.is_some() {
                return Err(Errno::EINVAL);
            }
            state.peer.as_ref().and_then(Weak::upgrade)
        };
        Ok(peer.map_or(0, |peer| {
            let state = peer.state.lock();
            let buffer = state.settings.receive_buffer;
            state.inbox.charged().saturating_sub(buffer)
        }))
    }
}
