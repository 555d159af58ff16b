//! Receives messages and bytes of streams from sockets.

use crate::fs::{
    caller::Caller,
    open_file::OpenFile,
    socket::{Message, Received, Socket, SocketKind},
    transfer::Sink,
};
use linux_raw_sys::net;
use memwright_linux_abi::errno::Errno;
use memwright_linux_sched::wait::WaitError;

impl Socket {
    /// Receives bytes of a stream, or one message, into `sink`.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOTCONN`, `ECONNRESET`, `EOPNOTSUPP`, `ERESTARTSYS`, `EFAULT`.
    pub fn receive(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        flags: u32,
        sink: &mut Sink<'_>,
    ) -> Result<Received, Errno> {
        if flags & (net::MSG_OOB | net::MSG_ERRQUEUE) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut received = Received::default();
        let stream = self.kind == SocketKind::Stream;
        if stream && sink.left() == 0 {
            return Ok(received);
        }
        let timeout = self.options().receive_timeout;
        let deadline = (timeout > 0).then(|| caller.vfs().clock.now().saturating_add(timeout));
        loop {
            let turn = self.receiving.take(caller)?;
            let Some(message) = self.take_first() else {
                drop(turn);
                if received.count > 0 {
                    let more = flags & net::MSG_WAITALL != 0 && sink.left() > 0;
                    if !more || self.at_end().is_some() {
                        return Ok(received);
                    }
                }
                if let Some(end) = self.at_end() {
                    return end.map(|()| received);
                }
                match self.wait_for_message(caller, open, flags, deadline) {
                    Ok(()) => continue,
                    Err(_) if received.count > 0 => return Ok(received),
                    Err(error) => return Err(error),
                }
            };
            if received.credentials.is_some() && !goes_on(&received, &message) {
                self.put_back(message);
                return Ok(received);
            }
            let peek = flags & net::MSG_PEEK != 0;
            let last = self.take_from(message, peek, sink, &mut received)?;
            drop(turn);
            if last || !stream || sink.left() == 0 {
                return Ok(received);
            }
        }
    }

    /// Copies bytes of `message`, which the caller has taken out of the inbox. Puts the message back if a part of it
    /// can still be received. Returns whether the receive ends with this message.
    fn take_from(
        &self,
        mut message: Message,
        peek: bool,
        sink: &mut Sink<'_>,
        received: &mut Received,
    ) -> Result<bool, Errno> {
        let before = message.charge();
        let bytes = &message.bytes[message.start..];
        let wanted = bytes.len().min(sink.left());
        let put = if wanted == 0 {
            Ok(0)
        } else {
            sink.put(&bytes[..wanted])
        };
        let count = match put {
            Ok(count) => count,
            Err(error) => {
                self.put_back(message);
                return if received.count > 0 {
                    Ok(true)
                } else {
                    Err(error)
                };
            }
        };
        received.count += count;
        received.length += bytes.len();
        received.credentials = Some(message.credentials);
        received.address = message.address.clone();
        let carried = !message.rights.is_empty();
        if peek {
            let copied = message.rights.peek(&mut received.rights);
            self.put_back(message);
            return copied.map(|()| true);
        }
        if carried {
            // The receive ends with this message, so `received` has no open files of other messages.
            received.rights = message.rights.unload();
        }
        let partial = self.kind == SocketKind::Stream && count < bytes.len();
        if partial {
            message.start += count;
            let after = message.charge();
            self.state.lock().charged -= before - after;
            self.put_back(message);
        } else {
            self.state.lock().charged -= before;
            drop(message);
        }
        self.wake_senders();
        Ok(partial || carried)
    }

    fn take_first(&self) -> Option<Message> {
        let mut state = self.state.lock();
        let message = state.inbox.pop_front()?;
        state.carried -= message.rights.files().len();
        Some(message)
    }

    /// Puts a message, which is still charged, back at the front of the inbox. Discards the message if there is no
    /// memory, which occurs only if the inbox was emptied by a close in the meantime.
    fn put_back(&self, message: Message) {
        let mut state = self.state.lock();
        if state.inbox.try_reserve(1).is_err() {
            drop(state);
            drop(message);
            return;
        }
        state.carried += message.rights.files().len();
        #[expect(clippy::disallowed_methods, reason = "there is room")]
        state.inbox.push_front(message);
        drop(state);
        self.readable.wake_all();
    }

    /// Returns `None` if more messages can arrive. Otherwise returns the result of a receive without a message: an
    /// error, or `Ok` at the end of the stream.
    fn at_end(&self) -> Option<Result<(), Errno>> {
        let mut state = self.state.lock();
        if let Some(error) = state.error.take() {
            return Some(Err(error));
        }
        if state.listening.is_some() {
            return Some(Err(Errno::EINVAL));
        }
        if state.read_shut {
            return Some(Ok(()));
        }
        (self.kind.connects() && state.peer.is_none()).then_some(Err(match self.kind {
            SocketKind::Stream => Errno::EINVAL,
            SocketKind::Datagram | SocketKind::Sequence => Errno::ENOTCONN,
        }))
    }

    fn wait_for_message(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        flags: u32,
        deadline: Option<u64>,
    ) -> Result<(), Errno> {
        if open.is_nonblocking() || flags & net::MSG_DONTWAIT != 0 {
            return Err(Errno::EAGAIN);
        }
        let changed = || {
            let state = self.state.lock();
            let changed = !state.inbox.is_empty() || state.read_shut || state.error.is_some();
            changed.then_some(())
        };
        caller
            .wait_until(&[&self.readable], deadline, changed)
            .map_err(|error| match error {
                WaitError::Interrupted if deadline.is_some() => Errno::EINTR,
                other => other.restart(),
            })
    }
}

/// Returns whether a receive on a stream can continue with the message `next`: it must have the same credentials as the
/// received bytes and carry no open files.
fn goes_on(received: &Received, next: &Message) -> bool {
    received.credentials == Some(next.credentials) && next.rights.is_empty()
}
