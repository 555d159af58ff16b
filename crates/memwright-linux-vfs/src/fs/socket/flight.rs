//! Open files in flight: those that messages in the inboxes of sockets carry (`SCM_RIGHTS`).

use crate::{
    fs::{
        caller::Caller,
        open_file::OpenFile,
        socket::{
            Socket,
            graph::{Carrier, Graph},
            handle::SocketFile,
            remains::Remains,
            socket::GROUNDED,
        },
    },
    identity::{Capabilities, Resource},
};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::Ordering;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::TryPush;

/// The open files that a message carries. They are counted as in flight until the message is received or freed.
pub struct Cargo {
    files: Vec<Arc<OpenFile>>,
    /// The id of the user to which the files are charged, which is that of the sender.
    user: u32,
    flights: &'static Flights,
}

impl Cargo {
    /// Returns whether the message carries no open files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Removes the open files from a message that is received. They are no longer in flight.
    pub fn unload(&mut self) -> Vec<Arc<OpenFile>> {
        let files = core::mem::take(&mut self.files);
        if !files.is_empty() {
            self.flights.arrive(self.user, &files);
        }
        files
    }

    /// Appends references to the open files to `to`. Used by a receive that leaves the message in the inbox
    /// (`MSG_PEEK`).
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn peek(&self, to: &mut Vec<Arc<OpenFile>>) -> Result<(), Errno> {
        let count = self.files.len();
        to.try_make_room(count)?;
        if count > 0 {
            // A garbage collection compares reference counts, so no reference can be added while it runs.
            let _traffic = self.flights.traffic.lock();
            #[expect(clippy::disallowed_methods, reason = "there is room")]
            to.extend(self.files.iter().cloned());
        }
        Ok(())
    }

    pub(super) fn files(&self) -> &[Arc<OpenFile>] {
        &self.files
    }
}

impl Drop for Cargo {
    fn drop(&mut self) {
        Remains::default().close_files(self.unload());
    }
}

/// A socket in flight: a node of the graph that the garbage collection visits.
struct Traveller {
    socket: Arc<Socket>,
    file: Weak<OpenFile>,
}

impl Carrier for Traveller {
    fn references(&self) -> usize {
        self.file.strong_count()
    }

    fn each_carried(&self, name: &mut dyn FnMut(usize)) {
        self.socket.each_message_with_files(&mut |message| {
            let sockets = message.rights.files().iter().filter_map(socket_of);
            for number in sockets.filter_map(|socket| socket.flight_number()) {
                name(number);
            }
        });
    }

    fn renumber(&self, number: usize) {
        self.socket.flight.store(number, Ordering::Relaxed);
    }
}

fn socket_of(open: &Arc<OpenFile>) -> Option<&Arc<Socket>> {
    Some(&open.as_kind::<SocketFile>()?.socket)
}

impl Socket {
    /// Returns the node number of a socket in flight, or `None` if the socket is not in flight. The number changes only
    /// under the traffic lock.
    fn flight_number(&self) -> Option<usize> {
        let number = self.flight.load(Ordering::Relaxed);
        (number != GROUNDED).then_some(number)
    }
}

struct Traffic {
    sockets: Graph<Traveller>,
    /// Number of open files in flight, of all types, by sending user.
    users: BTreeMap<u32, usize>,
}

/// The open files in flight between sockets.
///
/// A reference to an open file is added to a message, or removed from it, only under the traffic lock (`traffic`). A
/// garbage collection holds that lock, so that no open file in flight is received or copied meanwhile.
pub struct Flights {
    traffic: Lock<Traffic>,
}

impl Flights {
    /// Creates an empty state.
    pub(super) const fn new() -> Self {
        let traffic = Traffic {
            sockets: Graph::new(),
            users: BTreeMap::new(),
        };
        Self {
            traffic: Lock::new(Rank::Links, traffic),
        }
    }

    /// Counts `files` as in flight. Returns them as the cargo of a message that the calling thread sends.
    ///
    /// # Errors
    /// `ETOOMANYREFS` if the caller's user has more files in flight than the caller is allowed to have open
    /// (`too_many_unix_fds` of Linux 7.2, `net/core/scm.c`); `ENOMEM`.
    pub fn depart(
        &'static self,
        caller: &dyn Caller,
        files: Vec<Arc<OpenFile>>,
    ) -> Result<Cargo, Errno> {
        let (user, exempt) = {
            let credentials = caller.identity().credentials.lock();
            let exempt = credentials.has(Capabilities::RESOURCES)
                || credentials.has(Capabilities::ADMINISTER);
            (credentials.user.real, exempt)
        };
        if !files.is_empty() {
            let most = caller.identity().soft_limit(Resource::Files);
            self.collect_if_due();
            if !exempt && self.of_user(user) as u64 > most {
                self.collect();
                if self.of_user(user) as u64 > most {
                    return Err(Errno::ETOOMANYREFS);
                }
            }
            self.count(user, &files)?;
        }
        Ok(Cargo {
            files,
            user,
            flights: self,
        })
    }

    fn of_user(&self, user: u32) -> usize {
        let traffic = self.traffic.lock();
        traffic.users.get(&user).copied().unwrap_or_default()
    }

    fn count(&self, user: u32, files: &[Arc<OpenFile>]) -> Result<(), Errno> {
        let mut traffic = self.traffic.lock();
        let sockets = files.iter().filter_map(socket_of).count();
        let room = traffic.sockets.reserve(sockets);
        room.map_err(|_| Errno::ENOMEM)?;
        for file in files {
            let Some(socket) = socket_of(file) else {
                continue;
            };
            traffic.sockets.add(socket.flight_number(), || Traveller {
                socket: socket.clone(),
                file: Arc::downgrade(file),
            });
        }
        *traffic.users.entry(user).or_default() += files.len();
        Ok(())
    }

    fn arrive(&self, user: u32, files: &[Arc<OpenFile>]) {
        for file in files {
            let Some(socket) = socket_of(file) else {
                continue;
            };
            // Drop the node after the lock is released, because its reference to the socket can be the last one besides
            // that of the open file.
            let gone = {
                let mut traffic = self.traffic.lock();
                let gone = socket
                    .flight_number()
                    .and_then(|number| traffic.sockets.remove(number));
                if gone.is_some() {
                    socket.flight.store(GROUNDED, Ordering::Relaxed);
                }
                gone
            };
            drop(gone);
        }
        let mut traffic = self.traffic.lock();
        if let Some(count) = traffic.users.get_mut(&user) {
            *count -= files.len();
            if *count == 0 {
                traffic.users.remove(&user);
            }
        }
    }

    /// Records that a socket was closed, after which a socket in flight may be unreachable. Runs a garbage collection
    /// if one is due.
    pub(super) fn note_close(&self) {
        let mut traffic = self.traffic.lock();
        traffic.sockets.note_change();
        drop(traffic);
        self.collect_if_due();
    }

    fn collect_if_due(&self) {
        if self.traffic.lock().sockets.is_due() {
            self.collect();
        }
    }

    /// Runs a garbage collection: closes the sockets in flight that no descriptor can reach, and discards their
    /// messages.
    pub fn collect(&self) {
        let mut remains = Remains::default();
        let mut traffic = self.traffic.lock();
        traffic
            .sockets
            .collect(|lost| lost.socket.abandon(&mut remains));
        drop(traffic);
        drop(remains);
    }
}
