//! The names of sockets, and the registry of bound sockets.

use crate::{
    errno::Errno,
    fs::socket::{Flights, Socket},
    short::Short,
    sync::{Lock, Rank},
};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};

/// `AF_UNIX`.
const FAMILY: u16 = 1;
/// Size of `struct sockaddr_un` in bytes.
pub const ADDRESS_MAX: usize = 110;
/// Offset of the path in `struct sockaddr_un`, in bytes.
const HEAD: usize = 2;

/// A name to which a socket is bound or by which it is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A path.
    Path(Vec<u8>),
    /// An abstract name.
    Abstract(Vec<u8>),
    /// A request to bind the socket to any free abstract name.
    Automatic,
}

impl Address {
    /// Decodes a `struct sockaddr_un` that has the length of `bytes`.
    ///
    /// # Errors
    /// `EINVAL` for another address family or an invalid length.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Errno> {
        if bytes.len() < HEAD || bytes.len() > ADDRESS_MAX {
            return Err(Errno::EINVAL);
        }
        if u16::from_le_bytes([bytes[0], bytes[1]]) != FAMILY {
            return Err(Errno::EINVAL);
        }
        let name = &bytes[HEAD..];
        match name.first() {
            None => Ok(Self::Automatic),
            Some(0) => Ok(Self::Abstract(name[1..].into())),
            Some(_) => {
                let end = name.iter().position(|&byte| byte == 0);
                Ok(Self::Path(name[..end.unwrap_or(name.len())].into()))
            }
        }
    }

    /// Encodes a name as `struct sockaddr_un`. Without a name, encodes only the address family.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "a name has no more than 108 bytes"
    )]
    pub fn to_bytes(address: Option<&Self>) -> Vec<u8> {
        let mut bytes = Vec::from(FAMILY.to_le_bytes());
        match address {
            None | Some(Self::Automatic) => {}
            Some(Self::Abstract(name)) => {
                bytes.push(0);
                bytes.extend_from_slice(name);
            }
            Some(Self::Path(path)) => {
                bytes.extend_from_slice(path);
                bytes.push(0);
            }
        }
        bytes
    }
}

/// The key of a bound socket in the registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// An abstract name.
    Abstract(Vec<u8>),
    /// The device and the number of an inode.
    Node(u64, u64),
}

/// The bound sockets by name, and names whose sockets are gone.
struct Bound {
    places: BTreeMap<Place, Weak<Socket>>,
    /// When the registry has this number of names, the names whose sockets are gone are removed.
    sweep_at: usize,
    /// The number of the next name to try for an automatic bind.
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

/// All bound sockets, and all open files in flight.
pub struct Registry {
    bound: Lock<Bound>,
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
            flights: Flights::new(),
        }
    }

    /// Returns whether a socket is bound to an inode of the file system with the device number `device`.
    pub fn has_node_of(&self, device: u64) -> bool {
        let bound = self.bound.lock();
        bound.places.iter().any(|(place, socket)| match place {
            Place::Abstract(_) => false,
            Place::Node(of, _) => *of == device && socket.strong_count() > 0,
        })
    }

    /// Binds `socket` to the name `place`.
    ///
    /// # Errors
    /// `EADDRINUSE` if another socket is bound to the name.
    pub fn bind(&self, place: Place, socket: &Arc<Socket>) -> Result<(), Errno> {
        self.bound.lock().bind(place, socket)
    }

    /// Binds `socket` to a free abstract name of five hexadecimal digits. The search starts after the name that was
    /// assigned last. Returns the name.
    ///
    /// # Errors
    /// `ENOSPC` if all such names are in use (`unix_autobind` of Linux 7.2, `net/unix/af_unix.c`).
    pub fn bind_any(&self, socket: &Arc<Socket>) -> Result<Address, Errno> {
        /// The number of such names.
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

    /// Returns the socket that is bound to the name `place`, or `None` if there is none.
    #[must_use]
    pub fn find(&self, place: &Place) -> Option<Arc<Socket>> {
        self.bound.lock().places.get(place)?.upgrade()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        let path = Address::Path(b"/run/x".to_vec());
        let hidden = Address::Abstract(b"a\0b".to_vec());
        for (bytes, expected) in [
            (&b"\x01\0/run/x\0rest"[..], Ok(path.clone())),
            (b"\x01\0/run/x", Ok(path.clone())),
            (b"\x01\0\0a\0b", Ok(hidden.clone())),
            (b"\x01\0", Ok(Address::Automatic)),
            (b"\x02\0abc", Err(Errno::EINVAL)),
            (b"\x01", Err(Errno::EINVAL)),
            (&[1; 111], Err(Errno::EINVAL)),
        ] {
            assert_eq!(Address::from_bytes(bytes), expected);
        }
        assert_eq!(Address::to_bytes(Some(&path)), b"\x01\0/run/x\0");
        assert_eq!(Address::to_bytes(Some(&hidden)), b"\x01\0\0a\0b");
        assert_eq!(Address::to_bytes(None), b"\x01\0");
    }
}
