//! Receives the replies of the kernel.

use crate::fs::{
    caller::Caller,
    netlink::{reply::Reply, socket::NetlinkSocket},
    open_file::OpenFile,
    transfer::Sink,
};
use alloc::vec::Vec;
use linux_raw_sys::net;
use memwright_linux_abi::errno::Errno;
use memwright_linux_sched::wait::WaitError;

/// The results of a receive other than its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetlinkReceived {
    /// Number of bytes stored in the destination.
    pub count: usize,
    /// Length of the complete datagram in bytes, even if it was truncated.
    pub length: usize,
}

impl NetlinkSocket {
    /// Receives the messages of one datagram into `sink` (Linux 7.2 `net/netlink/af_netlink.c`, `netlink_recvmsg`). The
    /// sender is always the kernel.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EAGAIN`, `ENOBUFS` if replies were lost, `ERESTARTSYS`, `EINTR`, `EFAULT`, `ENOMEM`.
    pub fn receive(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        flags: u32,
        sink: &mut Sink<'_>,
    ) -> Result<NetlinkReceived, Errno> {
        if flags & net::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let waits = !open.is_nonblocking() && flags & net::MSG_DONTWAIT == 0;
        let timeout = self.state.lock().options.receive_timeout;
        let deadline = (timeout > 0).then(|| caller.vfs().clock.now().saturating_add(timeout));
        let bytes = loop {
            if let Some(bytes) = self.take(flags & net::MSG_PEEK != 0)? {
                break bytes;
            }
            if !waits {
                return Err(Errno::EAGAIN);
            }
            let arrived = || {
                let state = self.state.lock();
                (!state.replies.is_empty() || state.error.is_some()).then_some(())
            };
            caller
                .wait_until(&[&self.readable], deadline, arrived)
                .map_err(|error| match error {
                    WaitError::Interrupted if deadline.is_some() => Errno::EINTR,
                    other => other.restart(),
                })?;
        };
        let count = bytes.len().min(sink.left());
        if count > 0 && sink.put(&bytes[..count])? < count {
            return Err(Errno::EFAULT);
        }
        Ok(NetlinkReceived {
            count,
            length: bytes.len(),
        })
    }

    /// Returns the bytes of the first reply, or `None` if there is no reply. Removes the reply unless `peek` is set.
    fn take(&self, peek: bool) -> Result<Option<Vec<u8>>, Errno> {
        let mut state = self.state.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        let bytes = state.replies.front().map(Reply::to_bytes).transpose()?;
        let taken = if peek { None } else { state.pop() };
        drop(state);
        drop(taken);
        Ok(bytes)
    }
}
