//! Sends messages and bytes of streams to sockets.

use crate::fs::{
    caller::Caller,
    open_file::OpenFile,
    socket::{
        Address, Credentials, Message, Request, Socket, SocketKind, connect::find,
        kind::MOST_DATAGRAMS, socket::State,
    },
    transfer::Source,
};
use alloc::{sync::Arc, vec::Vec};
use linux_raw_sys::net;
use memwright_linux_abi::errno::Errno;
use memwright_linux_sched::wait::{WaitError, WaitQueue};
use memwright_table::TryPush;

/// Maximum number of bytes of a stream in one message.
const LARGEST_PART: usize = 32 * 1024;

/// The result of a check whether the receiver has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// This number of bytes fits.
    Room(usize),
    /// There is no room now: the sender must wait.
    Full,
}

impl State {
    /// Appends a message to the inbox. If there is no memory, returns the message as the error.
    fn accept(&mut self, message: Message) -> Result<(), Message> {
        // Reserve room for one more message, because a receiver can put back a message that it has taken out.
        if self.inbox.try_reserve(2).is_err() {
            return Err(message);
        }
        self.charged += message.charge();
        self.carried += message.rights.files().len();
        #[expect(clippy::disallowed_methods, reason = "there is room")]
        self.inbox.push_back(message);
        Ok(())
    }
}

impl Socket {
    /// Sends a message or bytes of a stream. Returns the number of bytes sent.
    ///
    /// # Errors
    /// `ENOTCONN`, `EPIPE` (with SIGPIPE for a stream, unless `MSG_NOSIGNAL`), `ECONNREFUSED`,
    /// `EMSGSIZE`, `EAGAIN`, `EISCONN`, `EOPNOTSUPP`, `ERESTARTSYS`, `EFAULT`, `ENOMEM`.
    pub fn send(
        self: &Arc<Self>,
        caller: &dyn Caller,
        open: &OpenFile,
        request: Request,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        if request.flags & net::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        caller.check_heap()?;
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        let quiet = request.flags & net::MSG_NOSIGNAL != 0;
        let result = match self.kind {
            SocketKind::Stream => self.send_stream(caller, open, request, source),
            SocketKind::Datagram | SocketKind::Sequence => {
                self.send_message(caller, open, request, source)
            }
        };
        if result == Err(Errno::EPIPE) && self.kind == SocketKind::Stream && !quiet {
            caller.broken_pipe();
        }
        result
    }

    /// Waits on `queue` until `look` no longer returns [`Look::Full`].
    fn wait_for_room(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        flags: u32,
        queue: &WaitQueue,
        look: impl Fn() -> Result<Look, Errno>,
    ) -> Result<(), Errno> {
        if open.is_nonblocking() || flags & net::MSG_DONTWAIT != 0 {
            return Err(Errno::EAGAIN);
        }
        let timeout = self.options().send_timeout;
        let deadline = (timeout > 0).then(|| caller.vfs().clock.now().saturating_add(timeout));
        let changed = || (look() != Ok(Look::Full)).then_some(());
        caller
            .wait_until(&[queue], deadline, changed)
            .map_err(|error| match error {
                WaitError::Interrupted if timeout > 0 => Errno::EINTR,
                other => other.restart(),
            })
    }

    /// Returns the peer, which receives what this socket sends. Fails if sending was shut down.
    fn receiver(&self) -> Result<Arc<Self>, Errno> {
        if self.state.lock().write_shut {
            return Err(Errno::EPIPE);
        }
        self.peer().unwrap_or(Err(Errno::ENOTCONN))
    }

    fn send_stream(
        self: &Arc<Self>,
        caller: &dyn Caller,
        open: &OpenFile,
        request: Request,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        if request.address.is_some() {
            let connected = self.peer().is_some();
            return Err(if connected {
                Errno::EISCONN
            } else {
                Errno::EOPNOTSUPP
            });
        }
        let credentials = request
            .credentials
            .unwrap_or_else(|| Credentials::of(caller));
        let mut rights = request.rights;
        let mut done = 0;
        let result = loop {
            if let Err(error) = self.receiver() {
                break Err(error);
            }
            if source.left() == 0 {
                break Ok(());
            }
            let turn = match self.sending.take(caller) {
                Ok(turn) => turn,
                Err(error) => break Err(error),
            };
            let look = || {
                let room = self.receiver()?.room_for(self.options().send_buffer);
                let least = Message::charge_of(1);
                Ok(if room >= least {
                    Look::Room(room - least + 1)
                } else {
                    Look::Full
                })
            };
            match look() {
                Ok(Look::Room(room)) => {
                    let part = room.min(source.left()).min(LARGEST_PART);
                    let bytes = match fetch(source, part) {
                        Ok(bytes) => bytes,
                        Err(error) => break Err(error),
                    };
                    let count = bytes.len();
                    let rights = match self
                        .registry
                        .flights
                        .depart(caller, core::mem::take(&mut rights))
                    {
                        Ok(rights) => rights,
                        Err(error) => break Err(error),
                    };
                    let message = Message {
                        bytes,
                        start: 0,
                        rights,
                        credentials,
                        address: None,
                    };
                    if let Err(error) = self.deliver_part(message) {
                        break Err(error);
                    }
                    drop(turn);
                    done += count;
                    if count < part {
                        break Ok(());
                    }
                }
                Ok(Look::Full) => {
                    drop(turn);
                    let waited =
                        self.wait_for_room(caller, open, request.flags, &self.writable, look);
                    if let Err(error) = waited {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        match result {
            Err(error) if done == 0 => Err(error),
            Ok(()) | Err(_) => Ok(done),
        }
    }

    /// Appends a part of a stream to the receiver's inbox: to its last message if that can grow, otherwise as a new
    /// message.
    fn deliver_part(&self, message: Message) -> Result<(), Errno> {
        let receiver = self.receiver()?;
        {
            let mut state = receiver.state.lock();
            if state.read_shut {
                drop(state);
                drop(message);
                return Err(Errno::EPIPE);
            }
            let length = message.bytes.len();
            let joins = message.rights.is_empty();
            match state.inbox.back_mut() {
                Some(last) if joins && last.may_grow(length, &message.credentials) => {
                    last.bytes.try_push_all(&message.bytes)?;
                    state.charged += length;
                }
                _ => {
                    if let Err(message) = state.accept(message) {
                        drop(state);
                        drop(message);
                        return Err(Errno::ENOMEM);
                    }
                }
            }
        }
        receiver.readable.wake_all();
        Ok(())
    }

    fn send_message(
        self: &Arc<Self>,
        caller: &dyn Caller,
        open: &OpenFile,
        request: Request,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let receiver = self.choose_receiver(caller, request.address.as_ref())?;
        let length = source.left();
        let buffer = self.options().send_buffer;
        if Message::charge_of(length) > buffer {
            return Err(Errno::EMSGSIZE);
        }
        let bytes = fetch(source, length)?;
        if bytes.len() < length {
            return Err(Errno::EFAULT);
        }
        let credentials = request
            .credentials
            .unwrap_or_else(|| Credentials::of(caller));
        let address = self.state.lock().address.clone();
        let rights = self.registry.flights.depart(caller, request.rights)?;
        let message = Message {
            bytes,
            start: 0,
            rights,
            credentials,
            address,
        };
        let fits = |state: &State| {
            if state.read_shut {
                return Err(Errno::EPIPE);
            }
            let crowded = self.kind == SocketKind::Datagram && state.inbox.len() > MOST_DATAGRAMS;
            let fits = !crowded && state.charged + Message::charge_of(length) <= buffer;
            Ok(if fits { Look::Room(length) } else { Look::Full })
        };
        let look = || fits(&receiver.state.lock());
        loop {
            let looked = look();
            match looked {
                Err(error) => return Err(error),
                Ok(Look::Full) => {
                    self.wait_for_room(caller, open, request.flags, &receiver.room, look)?;
                }
                Ok(Look::Room(_)) => {
                    let mut state = receiver.state.lock();
                    // Since the check, another sender may have used the room, or the receiver may have been closed.
                    if fits(&state)? == Look::Full {
                        continue;
                    }
                    let refused = state.accept(message);
                    drop(state);
                    match refused {
                        Ok(()) => break,
                        Err(message) => {
                            drop(message);
                            return Err(Errno::ENOMEM);
                        }
                    }
                }
            }
        }
        receiver.readable.wake_all();
        Ok(length)
    }

    /// Returns the receiver of a message: the socket that is bound to `address`, or the peer if there is no address.
    fn choose_receiver(
        self: &Arc<Self>,
        caller: &dyn Caller,
        address: Option<&Address>,
    ) -> Result<Arc<Self>, Errno> {
        match address {
            Some(address) if self.kind == SocketKind::Datagram => {
                let receiver = find(caller, self.registry, address)?;
                if receiver.kind != self.kind {
                    return Err(Errno::EPROTOTYPE);
                }
                Ok(receiver)
            }
            Some(_) if self.peer().is_none() => Err(Errno::ENOTCONN),
            Some(_) | None => {
                let gone = if self.kind == SocketKind::Datagram {
                    Errno::ECONNREFUSED
                } else {
                    Errno::EPIPE
                };
                self.receiver().map_err(|error| match error {
                    Errno::EPIPE if !self.state.lock().write_shut => gone,
                    other => other,
                })
            }
        }
    }
}

/// Copies the next `length` bytes from `source`. Returns fewer bytes after a fault.
fn fetch(source: &mut Source<'_>, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_fill(length, 0)?;
    let count = if length == 0 {
        0
    } else {
        source.take(&mut bytes)?
    };
    bytes.truncate(count);
    Ok(bytes)
}
