//! Sends requests to the kernel, which processes them during the send.

use crate::{
    fs::{
        caller::Caller,
        netlink::{
            address::NetlinkName,
            reply::Content,
            request::{HEADER, Request, Requests},
            route::{self, Answer, Dump},
            socket::NetlinkSocket,
            writer::Return,
        },
        transfer::Source,
    },
    identity::Capabilities,
};
use alloc::vec::Vec;
use linux_raw_sys::net;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::PausePoints;
use memwright_table::TryPush;

/// Number of bytes of the send buffer that a message cannot use.
const RESERVE: usize = 32;
/// Number of requests that are processed between two scheduling points.
const TOGETHER: u32 = 64;
/// `NLM_F_ACK`.
const ACKNOWLEDGE: u16 = 4;
/// `NETLINK_CAP_ACK`, as a bit mask.
const CAPPED: u32 = 1 << 10;

impl NetlinkSocket {
    /// Sends requests to the kernel (Linux 7.2 `net/netlink/af_netlink.c`, `netlink_sendmsg`). Returns the number of
    /// bytes sent. A send to another socket fails.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `ENODATA` for an empty message, `EPERM` if the caller is not allowed to send to the name,
    /// `ECONNREFUSED` if the name is not that of the kernel, `EMSGSIZE`, `EFAULT`, `ENOMEM`.
    pub fn send(
        &self,
        caller: &dyn Caller,
        name: Option<NetlinkName>,
        flags: u32,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        if flags & net::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        caller.check_heap()?;
        let length = source.left();
        if length == 0 {
            return Err(Errno::ENODATA);
        }
        let to = match name {
            Some(name) => {
                name.check(caller)?;
                name
            }
            None => self.peer_name(),
        };
        self.bind_any(caller)?;
        let (buffer, port) = {
            let state = self.state.lock();
            (state.options.send_buffer, state.port.unwrap_or(0))
        };
        if length > buffer - RESERVE {
            return Err(Errno::EMSGSIZE);
        }
        let mut bytes = Vec::new();
        bytes.try_fill(length, 0)?;
        if source.take(&mut bytes)? < length {
            return Err(Errno::EFAULT);
        }
        if to.port != 0 {
            return Err(Errno::ECONNREFUSED);
        }
        let privileged = caller.has_any(Capabilities::NETWORK);
        let mut points = PausePoints::every(TOGETHER);
        for request in Requests(&bytes) {
            points.round();
            self.answer(&request, port, privileged)?;
        }
        Ok(length)
    }

    /// Processes a request and queues the replies to it.
    fn answer(&self, request: &Request<'_>, port: u32, privileged: bool) -> Result<(), Errno> {
        let to = Return {
            sequence: request.sequence,
            port,
        };
        let answer = route::answer(request, privileged);
        let error = answer.err();
        let acknowledges = error.is_some() || request.flags & ACKNOWLEDGE != 0;
        match answer {
            Ok(Answer::Nothing) | Err(_) => {}
            Ok(Answer::Link) => self.state.lock().push(to, [Content::Link]),
            Ok(Answer::Dump(Dump::Nothing)) => {
                self.state.lock().push(to, [Content::End]);
            }
            Ok(Answer::Dump(dump)) => {
                let contents = [Content::Dump(dump), Content::End];
                self.state.lock().push(to, contents);
            }
        }
        if acknowledges && !matches!(answer, Ok(Answer::Dump(_))) {
            let capped = error.is_none() || self.state.lock().flags & CAPPED != 0;
            let repeated = if capped {
                &request.whole[..HEADER]
            } else {
                request.whole
            };
            let mut copy = Vec::new();
            copy.try_push_all(repeated)?;
            let result = Content::Result {
                error,
                request: copy,
                capped,
            };
            self.state.lock().push(to, [result]);
        }
        self.readable.wake_all();
        Ok(())
    }
}
