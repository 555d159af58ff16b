//! Netlink sockets as open files.

use crate::{
    errno::Errno,
    fs::{
        abilities::{Polling, Positions, Splices},
        caller::Caller,
        dentry::Dentry,
        inode::{Body, Inode},
        interface::{self, Addresses},
        netlink::socket::NetlinkSocket,
        open_file::{File, OpenFile},
        open_kind::OpenKind,
        readiness::Readiness,
        transfer::{Sink, Source},
    },
    short::Short,
    wait::Queues,
};
use alloc::{boxed::Box, sync::Arc};
use linux_raw_sys::general as raw;

/// The open file behind a descriptor of a socket.
pub struct NetlinkFile {
    /// The socket.
    pub socket: NetlinkSocket,
}

/// Creates an open file for a socket. `flags` can contain `O_NONBLOCK`.
#[must_use]
pub fn open(caller: &dyn Caller, socket: NetlinkSocket, flags: u32) -> Arc<OpenFile> {
    let vfs = caller.vfs();
    let now = vfs.now();
    let file_system = vfs.mounts.socket_files();
    let inode = Inode::new(file_system, Body::Socket, 0o777, caller.subject(), now);
    let name = Short::of(format_args!("socket:[{}]", inode.number));
    let entry = Arc::new(Dentry::detached(name.as_bytes(), Arc::new(inode)));
    let file = Box::new(NetlinkFile { socket });
    let status = raw::O_RDWR | flags & raw::O_NONBLOCK;
    Arc::new(OpenFile::new(Some(vfs), entry, status, file))
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
        // A read of zero bytes leaves the first reply in the queue.
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
        // A send never waits.
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
