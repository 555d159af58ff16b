//! Makes sockets listen, and accepts connections.

use crate::fs::{
    caller::Caller,
    inet::{
        socket::{InetSocket, Knocker, Listening, Stage},
        state::Phase,
    },
    open_file::OpenFile,
};
use alloc::{collections::VecDeque, sync::Arc};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::PausePoints;
use memwright_linux_sched::wait::WaitError;
use memwright_table::Rising;

/// The largest limit that a program can set on an accept queue (`net.core.somaxconn` of Linux 7.2).
const MOST: usize = 4096;
/// Number of connections that are set up or ended between two scheduling points.
const TOGETHER: u32 = 16;

impl InetSocket {
    /// Makes the socket accept connections. Its accept queue can contain `limit` + 1 connections.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for datagram sockets, `EINVAL` if the socket is connected, `EADDRINUSE`, `ENOMEM`.
    pub fn listen(self: &Arc<Self>, limit: i32) -> Result<(), Errno> {
        if !self.is_stream() {
            return Err(Errno::EOPNOTSUPP);
        }
        let limit = usize::try_from(limit).unwrap_or(MOST).min(MOST);
        {
            let mut state = self.state.lock();
            if let Some(listening) = &mut state.listening {
                listening.limit = limit;
                return Ok(());
            }
            if state.stage != Stage::Unconnected || state.progress.phase != Phase::Closed {
                return Err(Errno::EINVAL);
            }
            state.progress = Default::default();
            state.progress.phase = Phase::Listening;
            state.listening = Some(Listening {
                limit,
                waiting: VecDeque::new(),
                coming: 0,
                knocking: Rising::new(),
            });
        }
        let entered = self.bind_any().and_then(|()| self.network.listen(self));
        let entered = entered.map_err(|error| match error {
            Errno::EAGAIN => Errno::EADDRINUSE,
            other => other,
        });
        if entered.is_err() {
            self.stop_listening();
        }
        entered
    }

    /// Accepts the first connection of the accept queue, and returns its socket. Waits for a connection unless `open`
    /// is non-blocking.
    ///
    /// # Errors
    /// `EINVAL` unless the socket is listening, `EOPNOTSUPP` for datagram sockets, `EAGAIN`, `ERESTARTSYS`, `EINTR`.
    pub fn accept(&self, caller: &dyn Caller, open: &OpenFile) -> Result<Arc<Self>, Errno> {
        if !self.is_stream() {
            return Err(Errno::EOPNOTSUPP);
        }
        let take = || {
            let mut state = self.state.lock();
            match &mut state.listening {
                None => Some(Err(Errno::EINVAL)),
                Some(listening) => listening.waiting.pop_front().map(Ok),
            }
        };
        let accepted = match take() {
            Some(accepted) => accepted?,
            None if open.is_nonblocking() => return Err(Errno::EAGAIN),
            None => {
                let deadline = self.deadline(self.settings().receive_timeout);
                caller
                    .wait_until(&[&self.readable], deadline, take)
                    .map_err(|error| match error {
                        WaitError::Interrupted if deadline.is_some() => Errno::EINTR,
                        other => other.restart(),
                    })??
            }
        };
        self.admit();
        Ok(accepted)
    }

    /// Establishes the connections that were requested from this listening socket, as long as the accept queue has
    /// room.
    pub(super) fn admit(&self) {
        let mut points = PausePoints::every(TOGETHER);
        loop {
            let knocker = {
                let mut state = self.state.lock();
                let Some(listening) = &mut state.listening else {
                    return;
                };
                if listening.waiting.len() + listening.coming > listening.limit {
                    return;
                }
                let Some((number, _)) = listening.knocking.first_from(0) else {
                    return;
                };
                listening.coming += 1;
                listening.knocking.remove(number)
            };
            if let Some(Knocker { client, server }) = knocker {
                let established = client
                    .upgrade()
                    .is_some_and(|client| client.establish(&server));
                self.queue(server, established);
            }
            points.round();
        }
    }

    /// Appends the server's end of a new connection to the accept queue. Aborts it instead if the client no longer
    /// waits (`established` is false), if memory is exhausted, or if the socket no longer listens.
    fn queue(&self, server: Arc<Self>, established: bool) {
        let refused = {
            let mut state = self.state.lock();
            match &mut state.listening {
                Some(listening) => {
                    listening.coming -= 1;
                    if established && listening.waiting.try_reserve(1).is_ok() {
                        #[expect(clippy::disallowed_methods, reason = "there is room")]
                        listening.waiting.push_back(server);
                        None
                    } else {
                        Some(server)
                    }
                }
                None => Some(server),
            }
        };
        match refused {
            None => self.readable.wake_all(),
            Some(server) => server.abort(),
        }
    }

    /// Ends listening. Resets the connections in the accept queue, and refuses the connection requests that wait for
    /// room in it.
    pub(super) fn stop_listening(&self) {
        let listening = {
            let mut state = self.state.lock();
            let listening = state.listening.take();
            if listening.is_some() {
                state.progress.phase = Phase::Closed;
            }
            listening
        };
        let Some(mut listening) = listening else {
            return;
        };
        self.network.reset(self);
        let mut points = PausePoints::every(TOGETHER);
        for server in listening.waiting.drain(..) {
            server.abort();
            points.round();
        }
        while let Some(Knocker { client, server }) = listening.knocking.pop() {
            if let Some(client) = client.upgrade() {
                client.refuse(Errno::ECONNREFUSED);
            }
            server.abort();
            points.round();
        }
        self.wake();
    }
}
