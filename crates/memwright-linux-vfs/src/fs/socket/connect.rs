//! Creates socket pairs, binds, finds and connects sockets, and listens for and accepts connections.

use crate::fs::{
    caller::Caller,
    dentry::Dentry,
    inode::{Body, Inode},
    open_file::OpenFile,
    permission::Permission,
    socket::{
        Address, Credentials, Registry, Socket, SocketKind, registry::Place, socket::Listening,
    },
    walk::LastLink,
};
use alloc::{collections::VecDeque, sync::Arc};
use linux_raw_sys::general::AT_FDCWD;
use memwright_linux_abi::errno::Errno;
use memwright_table::TryPush;

/// Creates two sockets that are connected to each other.
///
/// # Errors
/// `ENOMEM`.
pub fn pair(
    caller: &dyn Caller,
    registry: &'static Registry,
    kind: SocketKind,
) -> Result<(Arc<Socket>, Arc<Socket>), Errno> {
    let (one, other) = (registry.create(kind)?, registry.create(kind)?);
    let credentials = Credentials::of(caller);
    for (from, to) in [(&one, &other), (&other, &one)] {
        let mut state = from.state.lock();
        state.peer = Some(Arc::downgrade(to));
        state.senders.try_push(Arc::downgrade(to))?;
        state.peer_credentials = Some(credentials);
    }
    Ok((one, other))
}

/// Returns the key of a socket that is bound to the inode of `entry`.
fn place_of(entry: &Dentry) -> Place {
    let inode = &entry.inode;
    Place::Node(inode.file_system.device.encode(), inode.number)
}

/// Returns the socket that is bound to the name `address`.
///
/// # Errors
/// `ECONNREFUSED` if no socket is bound to the name, and the errors of the path walk.
pub fn find(
    caller: &dyn Caller,
    registry: &Registry,
    address: &Address,
) -> Result<Arc<Socket>, Errno> {
    let place = match address {
        Address::Abstract(name) => Place::Abstract(name.clone()),
        Address::Automatic => return Err(Errno::ECONNREFUSED),
        Address::Path(path) => {
            let walked = caller.walk_path(AT_FDCWD, path, LastLink::Follow)?;
            let entry = walked.existing()?;
            entry.inode.check(&caller.subject(), Permission::WRITE)?;
            if !matches!(entry.inode.body, Body::Socket) {
                return Err(Errno::ECONNREFUSED);
            }
            place_of(&entry)
        }
    };
    registry.find(&place).ok_or(Errno::ECONNREFUSED)
}

impl Socket {
    /// Binds the socket to a name.
    ///
    /// # Errors
    /// `EINVAL` if the socket is bound already, `EADDRINUSE`, and the errors of the creation of the inode for a path.
    pub fn bind(self: &Arc<Self>, caller: &dyn Caller, address: Address) -> Result<(), Errno> {
        if self.state.lock().address.is_some() {
            return Err(Errno::EINVAL);
        }
        let registry = self.registry;
        let address = match address {
            Address::Automatic => registry.bind_any(self)?,
            Address::Abstract(name) => {
                registry.bind(Place::Abstract(name.clone()), self)?;
                Address::Abstract(name)
            }
            Address::Path(path) => {
                let entry = make_node(caller, &path)?;
                registry.bind(place_of(&entry), self)?;
                Address::Path(path)
            }
        };
        self.state.lock().address = Some(address);
        Ok(())
    }

    /// Makes the socket accept connections. Its accept queue can contain `limit` + 1 connections, at most 4,097.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for datagram sockets, `EINVAL` if the socket is not bound or is connected.
    pub fn listen(&self, caller: &dyn Caller, limit: i32) -> Result<(), Errno> {
        /// `net.core.somaxconn` of Linux 7.2.
        const MOST: usize = 4096;
        if !self.kind.connects() {
            return Err(Errno::EOPNOTSUPP);
        }
        let credentials = Credentials::of(caller);
        let mut state = self.state.lock();
        if state.address.is_none() || state.peer.is_some() {
            return Err(Errno::EINVAL);
        }
        let limit = usize::try_from(limit).unwrap_or(MOST).min(MOST);
        state.peer_credentials = Some(credentials);
        match &mut state.listening {
            Some(listening) => listening.limit = limit,
            none @ None => {
                *none = Some(Listening {
                    limit,
                    waiting: VecDeque::new(),
                });
            }
        }
        Ok(())
    }

    /// Connects to the socket that is bound to `address`. A datagram socket then sends to that socket by default.
    ///
    /// # Errors
    /// `EISCONN`, `ECONNREFUSED`, `EPROTOTYPE`, `EAGAIN` if the accept queue is full and the socket is non-blocking,
    /// `ERESTARTSYS`, `EINVAL` for a listening socket, `ENOMEM`.
    pub fn connect(
        self: &Arc<Self>,
        caller: &dyn Caller,
        open: &OpenFile,
        address: &Address,
    ) -> Result<(), Errno> {
        let target = find(caller, self.registry, address)?;
        if target.kind != self.kind {
            return Err(Errno::EPROTOTYPE);
        }
        if !self.kind.connects() {
            return self.attach(&target);
        }
        {
            let state = self.state.lock();
            if state.listening.is_some() {
                return Err(Errno::EINVAL);
            }
            if state.peer.is_some() {
                return Err(Errno::EISCONN);
            }
        }
        let server = self.registry.create(self.kind)?;
        {
            let (name, listener) = {
                let state = target.state.lock();
                (state.address.clone(), state.peer_credentials)
            };
            let mut state = server.state.lock();
            state.address = name;
            state.peer = Some(Arc::downgrade(self));
            state.senders.try_push(Arc::downgrade(self))?;
            state.peer_credentials = Some(Credentials::of(caller));
            drop(state);
            let own = self.state.lock().address.clone();
            server.state.lock().peer_address = own;
            self.state.lock().peer_credentials = listener;
        }
        let look = || {
            let state = target.state.lock();
            match &state.listening {
                None => Some(Err(Errno::ECONNREFUSED)),
                Some(listening) if listening.waiting.len() <= listening.limit => Some(Ok(())),
                Some(_) => None,
            }
        };
        loop {
            match look() {
                Some(result) => result?,
                None if open.is_nonblocking() => return Err(Errno::EAGAIN),
                None => caller
                    .wait_until(&[&target.room], None, look)
                    .map_err(|error| error.restart())??,
            }
            // The connection must be complete before another thread can accept it.
            self.attach(&server)?;
            match target.queue(&server) {
                Ok(true) => {
                    target.readable.wake_all();
                    return Ok(());
                }
                Ok(false) => self.state.lock().peer = None,
                Err(error) => {
                    self.state.lock().peer = None;
                    return Err(error);
                }
            }
        }
    }

    /// Appends `server`, the socket for the server's end of a new connection, to the accept queue if there is room.
    /// Returns whether it was added.
    fn queue(&self, server: &Arc<Self>) -> Result<bool, Errno> {
        let mut state = self.state.lock();
        match &mut state.listening {
            Some(listening) if listening.waiting.len() <= listening.limit => {
                let room = listening.waiting.try_reserve(1);
                room.map_err(|_| Errno::ENOMEM)?;
                #[expect(clippy::disallowed_methods, reason = "there is room")]
                listening.waiting.push_back(server.clone());
                Ok(true)
            }
            Some(_) | None => Ok(false),
        }
    }

    /// Makes `peer` the socket to which this socket sends, and registers this socket as its sender.
    fn attach(self: &Arc<Self>, peer: &Arc<Self>) -> Result<(), Errno> {
        peer.add_sender(self)?;
        let name = peer.state.lock().address.clone();
        let mut state = self.state.lock();
        state.senders.try_make_room(1)?;
        state.peer = Some(Arc::downgrade(peer));
        state.peer_address = name;
        let connects = self.kind.connects();
        if connects
            && !state
                .senders
                .iter()
                .any(|known| known.as_ptr() == Arc::as_ptr(peer))
        {
            state.senders.try_push(Arc::downgrade(peer))?;
        }
        Ok(())
    }

    /// Accepts the first connection of the accept queue, and returns its socket. Waits for a connection unless `open`
    /// is non-blocking.
    ///
    /// # Errors
    /// `EINVAL` unless the socket is listening, `EOPNOTSUPP` for datagram sockets, `EAGAIN`, `ERESTARTSYS`.
    pub fn accept(&self, caller: &dyn Caller, open: &OpenFile) -> Result<Arc<Self>, Errno> {
        if !self.kind.connects() {
            return Err(Errno::EOPNOTSUPP);
        }
        let take = || {
            let mut state = self.state.lock();
            let shut = state.read_shut;
            match &mut state.listening {
                None => Some(Err(Errno::EINVAL)),
                Some(_) if shut => Some(Err(Errno::EINVAL)),
                Some(listening) => listening.waiting.pop_front().map(Ok),
            }
        };
        let timeout = self.options().receive_timeout;
        let deadline = (timeout > 0).then(|| caller.vfs().clock.now().saturating_add(timeout));
        let accepted = match take() {
            Some(accepted) => accepted?,
            None if open.is_nonblocking() => return Err(Errno::EAGAIN),
            None => caller
                .wait_until(&[&self.readable], deadline, take)
                .map_err(|error| error.restart())??,
        };
        self.room.wake_all();
        Ok(accepted)
    }

    /// Returns the socket's name, or the name of its peer if `peer` is set. Returns `None` if that socket is not bound.
    ///
    /// # Errors
    /// `ENOTCONN` if the peer's name is requested and there is no peer.
    pub fn address(&self, peer: bool) -> Result<Option<Address>, Errno> {
        let state = self.state.lock();
        if !peer {
            return Ok(state.address.clone());
        }
        if state.peer.is_none() {
            return Err(Errno::ENOTCONN);
        }
        Ok(state.peer_address.clone())
    }
}

/// Creates the inode at `path` to which a socket is to be bound.
fn make_node(caller: &dyn Caller, path: &[u8]) -> Result<Arc<Dentry>, Errno> {
    let walked = caller.walk_path(AT_FDCWD, path, LastLink::Keep)?;
    let name = walked.last_name(Errno::EADDRINUSE)?;
    let permissions = 0o777 & !caller.fs().mask();
    let inode = Inode::new(
        &walked.parent.inode.file_system,
        Body::Socket,
        permissions,
        caller.subject().owner(),
        caller.vfs().now(),
    );
    let names = &caller.vfs().mounts.names;
    names
        .create(&caller.change(), &walked.parent, name, inode)
        .map_err(|error| match error {
            Errno::EEXIST => Errno::EADDRINUSE,
            other => other,
        })
}
