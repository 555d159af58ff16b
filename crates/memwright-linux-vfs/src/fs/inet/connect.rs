//! Connects and disconnects sockets.

use crate::fs::{
    caller::Caller,
    inet::{
        address::{Endpoint, Family, Ip, Name},
        claims::Protocol,
        held::Flow,
        place::Place,
        socket::{InetSocket, Knocker, Stage},
        state::Phase,
    },
    open_file::OpenFile,
};
use alloc::sync::Arc;
use memwright_linux_abi::{abi::SECOND, errno::Errno};
use memwright_linux_sched::wait::WaitError;

/// The time in nanoseconds for which `connect` waits for room in the accept queue. Linux 7.2 gives up after about the
/// same time (`net.ipv4.tcp_syn_retries`, which is 6).
const PATIENCE: u64 = 127 * SECOND;

/// Returns the address and port that receive the packets that a socket of `family` sends to `endpoint`.
///
/// # Errors
/// `ENETUNREACH` if there is no route to the address.
pub(super) fn route(family: Family, only_v6: bool, endpoint: Endpoint) -> Result<Endpoint, Errno> {
    let ip = match (family, endpoint.ip) {
        (Family::V6, Ip::V4(_)) if only_v6 => return Err(Errno::ENETUNREACH),
        (Family::V4 | Family::V6, ip) => ip.target(),
    };
    if ip.is_here() {
        Ok(Endpoint { ip, ..endpoint })
    } else {
        Err(Errno::ENETUNREACH)
    }
}

impl InetSocket {
    /// Connects a stream socket to the socket that listens at `name`. For a datagram socket, makes `name` the peer. The
    /// name `Unspecified` ends the connection or removes the peer (Linux 7.2 `net/ipv4/af_inet.c`,
    /// `__inet_stream_connect`, `inet_dgram_connect`).
    ///
    /// # Errors
    /// `ECONNREFUSED`, `ENETUNREACH`, `EADDRNOTAVAIL`, `EISCONN`, `EINPROGRESS` and `EALREADY` if `open` is non-blocking,
    /// `EAGAIN`, `ETIMEDOUT`, `ERESTARTSYS`, `EINTR`, `ENOMEM`.
    pub fn connect(
        self: &Arc<Self>,
        caller: &dyn Caller,
        open: &OpenFile,
        name: Name,
    ) -> Result<(), Errno> {
        match (name, self.protocol) {
            (Name::Unspecified, Protocol::Udp) => self.disconnect_datagrams(),
            (Name::Unspecified, Protocol::Tcp) => {
                self.disconnect();
                Ok(())
            }
            (Name::Endpoint(endpoint), Protocol::Udp) => self.connect_datagrams(endpoint),
            (Name::Endpoint(endpoint), Protocol::Tcp) => {
                self.connect_stream(caller, open, endpoint)
            }
        }
    }

    fn connect_datagrams(self: &Arc<Self>, endpoint: Endpoint) -> Result<(), Errno> {
        let only_v6 = self.settings().choices.is_only_v6();
        let remote = route(self.family, only_v6, endpoint)?;
        self.bind_any()?;
        self.network.connect(self, remote)
    }

    fn disconnect_datagrams(self: &Arc<Self>) -> Result<(), Errno> {
        let any = self.family.any();
        let only_v6 = self.settings().choices.is_only_v6();
        let place = Place::of(self.family, any, only_v6);
        self.network.disconnect(self, any, place)
    }

    /// Resets the connection of a stream socket, so that the socket can be connected again (`tcp_disconnect` of Linux
    /// 7.2, `net/ipv4/tcp.c`).
    fn disconnect(&self) {
        self.stop_listening();
        let (peer, knocks_at, unread) = {
            let mut state = self.state.lock();
            let open = state.progress.is_open();
            let peer = state.peer.take().filter(|_| open);
            let knocks_at = state.knocks_at.take();
            state.progress = Default::default();
            state.stage = Stage::Unconnected;
            state.error = None;
            (peer, knocks_at, state.inbox.empty())
        };
        drop(unread);
        if let Some((listener, number)) = knocks_at {
            forget(&listener, number);
        }
        if let Some(peer) = peer.and_then(|peer| peer.upgrade()) {
            peer.take_reset();
        }
        self.network.release(self);
        self.wake();
    }

    fn connect_stream(
        self: &Arc<Self>,
        caller: &dyn Caller,
        open: &OpenFile,
        endpoint: Endpoint,
    ) -> Result<(), Errno> {
        let (stage, phase, only_v6) = {
            let state = self.state.lock();
            let only_v6 = state.settings.choices.is_only_v6();
            (state.stage, state.progress.phase, only_v6)
        };
        match (stage, phase) {
            (Stage::Connected, _) | (_, Phase::Listening) => return Err(Errno::EISCONN),
            (Stage::Connecting, Phase::Connecting) if open.is_nonblocking() => {
                return Err(Errno::EALREADY);
            }
            (Stage::Connecting, _) => {}
            (Stage::Unconnected, Phase::Connected | Phase::Connecting) => {
                return Err(Errno::EISCONN);
            }
            (Stage::Unconnected, Phase::Closed) => {
                let remote = route(self.family, only_v6, endpoint)?;
                self.begin(remote)?;
                if open.is_nonblocking() {
                    return Err(Errno::EINPROGRESS);
                }
            }
        }
        self.finish(caller, open)
    }

    /// Begins to connect to `remote`. The result is stored in the state of the socket.
    fn begin(self: &Arc<Self>, remote: Endpoint) -> Result<(), Errno> {
        {
            let mut state = self.state.lock();
            if state.stage != Stage::Unconnected || state.closed {
                return Err(Errno::EALREADY);
            }
            state.progress = Default::default();
            state.progress.phase = Phase::Connecting;
            state.stage = Stage::Connecting;
            state.error = None;
        }
        let (terms, now) = (self.terms(true), self.vfs.clock.now());
        let opened = self.network.open(self, remote, terms, now);
        let result = opened.and_then(|flow| self.knock(flow));
        if result.is_err() {
            let mut state = self.state.lock();
            state.progress.phase = Phase::Closed;
            state.stage = Stage::Unconnected;
            drop(state);
            self.network.release(self);
        }
        result
    }

    /// Requests a connection from the socket that listens at the remote address of `flow`.
    fn knock(self: &Arc<Self>, flow: Flow) -> Result<(), Errno> {
        let Some(listener) = self.network.find(Protocol::Tcp, flow.local, flow.remote) else {
            if flow.local == flow.remote {
                self.establish(self);
            } else {
                self.refuse(Errno::ECONNREFUSED);
            }
            return Ok(());
        };
        let server = Arc::new(listener.server());
        self.network.enter(&server, flow.reversed(), &listener);
        let number = {
            let mut state = listener.state.lock();
            let knocker = Knocker {
                client: Arc::downgrade(self),
                server: server.clone(),
            };
            match &mut state.listening {
                Some(listening) => listening.knocking.try_push(knocker).map(Some),
                None => Ok(None),
            }
        };
        match number {
            Ok(Some(number)) => {
                let mut state = self.state.lock();
                if state.progress.phase == Phase::Connecting {
                    state.knocks_at = Some((Arc::downgrade(&listener), number));
                }
                drop(state);
                listener.admit();
                Ok(())
            }
            Ok(None) => {
                server.abort();
                self.refuse(Errno::ECONNREFUSED);
                Ok(())
            }
            Err(error) => {
                server.abort();
                Err(error.into())
            }
        }
    }

    /// Establishes the connection between this socket, which is the client's, and `server`. Returns `false` if this
    /// socket no longer waits for a connection.
    pub(super) fn establish(self: &Arc<Self>, server: &Arc<Self>) -> bool {
        {
            let mut state = server.state.lock();
            state.progress.phase = Phase::Connected;
            state.stage = Stage::Connected;
            state.peer = Some(Arc::downgrade(self));
        }
        let connected = {
            let mut state = self.state.lock();
            let own = Arc::ptr_eq(self, server);
            let waits = (own || state.progress.phase == Phase::Connecting) && !state.closed;
            if waits {
                state.progress.phase = Phase::Connected;
                state.stage = Stage::Connecting;
                state.knocks_at = None;
                state.peer = Some(Arc::downgrade(server));
            }
            waits
        };
        if connected {
            self.wake();
        } else {
            // `server` will be closed. It must not reset this socket, which can have another peer by now.
            let mut state = server.state.lock();
            state.progress.phase = Phase::Closed;
            state.peer = None;
        }
        connected
    }

    /// Ends the attempt to connect. `connect` fails with `error`.
    pub(super) fn refuse(&self, error: Errno) {
        {
            let mut state = self.state.lock();
            if state.progress.phase != Phase::Connecting {
                return;
            }
            state.progress.reset();
            state.knocks_at = None;
            state.error = Some(error);
        }
        self.network.release(self);
        self.wake();
    }

    /// Waits for the result of an attempt to connect, and reports it to the program.
    fn finish(&self, caller: &dyn Caller, open: &OpenFile) -> Result<(), Errno> {
        let look = || {
            let mut state = self.state.lock();
            match state.progress.phase {
                Phase::Connecting => None,
                Phase::Connected => {
                    state.stage = Stage::Connected;
                    Some(Ok(()))
                }
                Phase::Closed | Phase::Listening => {
                    state.stage = Stage::Unconnected;
                    state.progress = Default::default();
                    Some(Err(state.error.take().unwrap_or(Errno::ECONNABORTED)))
                }
            }
        };
        if let Some(result) = look() {
            return result;
        }
        if open.is_nonblocking() {
            return Err(Errno::EALREADY);
        }
        let timeout = self.settings().send_timeout;
        let limited = timeout > 0 && timeout < PATIENCE;
        let deadline = self.deadline(if limited { timeout } else { PATIENCE });
        let waited = caller.wait_until(&[&self.writable], deadline, look);
        match waited {
            Ok(result) => result,
            Err(WaitError::Interrupted) if timeout > 0 => Err(Errno::EINTR),
            Err(WaitError::Interrupted) => Err(Errno::ERESTARTSYS),
            Err(WaitError::TimedOut) if limited => Err(Errno::EINPROGRESS),
            Err(WaitError::TimedOut) => {
                self.refuse(Errno::ETIMEDOUT);
                look().unwrap_or(Err(Errno::ETIMEDOUT))
            }
        }
    }
}

/// Removes the connection request `number` from a listening socket, and aborts the server's end.
pub(super) fn forget(listener: &alloc::sync::Weak<InetSocket>, number: u64) {
    let Some(listener) = listener.upgrade() else {
        return;
    };
    let knocker = {
        let mut state = listener.state.lock();
        let listening = state.listening.as_mut();
        listening.and_then(|listening| listening.knocking.remove(number))
    };
    if let Some(knocker) = knocker {
        knocker.server.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_reached() {
        let to = |ip| Endpoint { ip, port: 80 };
        for (family, only, ip, expected) in [
            (Family::V4, false, Ip::V4([0; 4]), Ok(to(Ip::LOCAL_V4))),
            (
                Family::V4,
                false,
                Ip::V4([127, 1, 2, 3]),
                Ok(to(Ip::V4([127, 1, 2, 3]))),
            ),
            (
                Family::V4,
                false,
                Ip::V4([8, 8, 8, 8]),
                Err(Errno::ENETUNREACH),
            ),
            (Family::V6, false, Ip::V6([0; 16]), Ok(to(Ip::LOCAL_V6))),
            (Family::V6, false, Ip::LOCAL_V4, Ok(to(Ip::LOCAL_V4))),
            (Family::V6, true, Ip::LOCAL_V4, Err(Errno::ENETUNREACH)),
        ] {
            assert_eq!(route(family, only, to(ip)), expected);
        }
    }
}
