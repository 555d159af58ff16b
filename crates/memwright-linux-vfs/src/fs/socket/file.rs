//! Sockets as open files.

use crate::fs::{
    abilities::{Polling, Positions, Splices},
    caller::Caller,
    interface::{self, Addresses},
    open_file::{File, OpenFile},
    open_kind::OpenKind,
    readiness::Readiness,
    socket::{Request, Socket, SocketFile, SocketKind},
    socket_entry::open_socket,
    transfer::{Sink, Source},
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::ioctl;
use memwright_linux_abi::errno::Errno;
use memwright_linux_sched::wait::Queues;

/// Creates an open file for a socket. `flags` can contain `O_NONBLOCK`.
#[must_use]
pub fn open(caller: &dyn Caller, socket: Arc<Socket>, flags: u32) -> Arc<OpenFile> {
    open_socket(caller, flags, |number| {
        socket.number.store(number, Ordering::Relaxed);
        SocketFile { socket }
    })
}

impl File for SocketFile {
    fn splices(&self) -> Splices {
        Splices::Both
    }

    fn counted_as(&self) -> OpenKind {
        OpenKind::Socket
    }

    fn kernel_bytes(&self) -> u64 {
        /// Estimated size in bytes of a socket with its inode and directory entry.
        const PLAIN: usize = 2048;
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
        // A read of zero bytes must leave the first message in the inbox.
        if sink.left() == 0 {
            return Ok(0);
        }
        let received = self.socket.receive(caller, open, 0, sink)?;
        // `read` cannot return the open files that the message carried. Dropping `received` closes them.
        Ok(received.count)
    }

    fn write(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        _position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        self.socket.send(caller, open, Request::default(), source)
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
            ioctl::FIONREAD => self.socket.waiting(),
            ioctl::TIOCOUTQ => self.socket.unreceived(),
            _ => {
                return interface::control(caller.memory(), Addresses::None, command, argument);
            }
        };
        caller
            .memory()
            .write_value(argument, &(count as u32))
            .map(|()| 0)
    }
}

impl Socket {
    /// Returns the number of bytes that can be received now: all bytes of a stream, or the bytes of the first message.
    fn waiting(&self) -> usize {
        let state = self.state.lock();
        let mut lengths = state
            .inbox
            .iter()
            .map(|message| message.bytes.len() - message.start);
        match self.kind {
            SocketKind::Stream => lengths.sum(),
            SocketKind::Datagram | SocketKind::Sequence => lengths.next().unwrap_or(0),
        }
    }

    /// Returns the charge in bytes of the messages in the peer's inbox (`TIOCOUTQ`).
    fn unreceived(&self) -> usize {
        match self.peer() {
            Some(Ok(peer)) => peer.state.lock().charged,
            Some(Err(_)) | None => 0,
        }
    }
}
