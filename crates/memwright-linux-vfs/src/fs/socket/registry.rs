//! The registry of the Unix sockets: all sockets, the bound ones by name, and the open files in flight.

use crate::fs::socket::{address::Address, flight::Flights, socket::Socket};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::{
    short::Short,
    sync::{Lock, Rank},
};
use memwright_table::Rising;

/// The key of a bound socket: its abstract name, or the inode at its path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// An abstract name.
    Abstract(Vec<u8>),
    /// The device number and the inode number of the inode.
    Node(u64, u64),
}

/// The bound sockets by key. The keys of dropped sockets remain until the next sweep.
struct Bound {
    places: BTreeMap<Place, Weak<Socket>>,
    /// The number of keys at which the next sweep removes the keys of dropped sockets.
    sweep_at: usize,
    /// The number from which the next automatic bind derives the name that it tries first.
    next: u32,
}

impl Bound {
    /// Minimum of `sweep_at`.
    const FEWEST: usize = 64;

    const fn new() -> Self {
        Self {
            places: BTreeMap::new(),
            sweep_at: Self::FEWEST,
            next: 0,
        }
    }

    fn bind(&mut self, place: Place, socket: &Arc<Socket>) -> Result<(), Errno> {
        let known = self.places.get(&place);
        if known.is_some_and(|known| known.strong_count() > 0) {
            return Err(Errno::EADDRINUSE);
        }
        if self.places.len() >= self.sweep_at {
            self.places.retain(|_, known| known.strong_count() > 0);
            self.sweep_at = (2 * self.places.len()).max(Self::FEWEST);
        }
        self.places.insert(place, Arc::downgrade(socket));
        Ok(())
    }
}

/// All Unix sockets, the names of those that are bound, and the open files in flight.
pub struct Registry {
    bound: Lock<Bound>,
    /// All sockets, in the order of their creation.
    pub(super) all: Lock<Rising<Weak<Socket>>>,
    /// The open files in flight.
    pub flights: Flights,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// Creates an empty registry.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bound: Lock::new(Rank::File, Bound::new()),
            all: Lock::new(Rank::File, Rising::new()),
            flights: Flights::new(),
        }
    }

    /// Returns whether a socket is bound to an inode of the file system whose device number is `device`.
    pub fn has_node_of(&self, device: u64) -> bool {
        let bound = self.bound.lock();
        bound.places.iter().any(|(place, socket)| match place {
            Place::Abstract(_) => false,
            Place::Node(of, _) => *of == device && socket.strong_count() > 0,
        })
    }

    /// Binds `socket` to the key `place`.
    ///
    /// # Errors
    /// `EADDRINUSE` if another socket is bound to the key.
    pub fn bind(&self, place: Place, socket: &Arc<Socket>) -> Result<(), Errno> {
        self.bound.lock().bind(place, socket)
    }

    /// Binds `socket` to a free abstract name of five hexadecimal digits. The search starts after the name that was
    /// assigned last. Returns the name.
    ///
    /// # Errors
    /// `ENOSPC` if all such names are in use (`unix_autobind` of Linux 7.2, `net/unix/af_unix.c`).
    pub fn bind_any(&self, socket: &Arc<Socket>) -> Result<Address, Errno> {
        /// Number of names of five hexadecimal digits.
        const NAMES: u32 = 1 << 20;
        for _ in 0..NAMES {
            let mut bound = self.bound.lock();
            let number = bound.next % NAMES;
            bound.next = number + 1;
            let name = Short::of(format_args!("{number:05x}"));
            let name = name.as_bytes();
            if bound.bind(Place::Abstract(name.into()), socket).is_ok() {
                return Ok(Address::Abstract(name.into()));
            }
        }
        Err(Errno::ENOSPC)
    }

    /// Returns the socket that is bound to the key `place`, or `None` if there is none.
    #[must_use]
    pub fn find(&self, place: &Place) -> Option<Arc<Socket>> {
        self.bound.lock().places.get(place)?.upgrade()
    }
}
