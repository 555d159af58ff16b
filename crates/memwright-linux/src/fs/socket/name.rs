//! The names of sockets.

use super::Socket;
use crate::{
    errno::Errno,
    sync::{Lock, Rank},
};
use alloc::{
    collections::BTreeMap,
    format,
    sync::{Arc, Weak},
    vec::Vec,
};

/// `AF_UNIX`.
const FAMILY: u16 = 1;
/// Bytes of `struct sockaddr_un`.
pub const ADDRESS_MAX: usize = 110;
/// Bytes before its path.
const HEAD: usize = 2;

/// A name that a socket was bound to, or is looked for by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A path.
    Path(Vec<u8>),
    /// A name that is no path.
    Abstract(Vec<u8>),
    /// Any free name.
    Automatic,
}

impl Address {
    /// Reads a `struct sockaddr_un` of this length.
    ///
    /// # Errors
    /// `EINVAL` for another family or length.
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

    /// The bytes of a name, none for a socket without one.
    #[must_use]
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

/// What a bound socket is found by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A name that is no path.
    Abstract(Vec<u8>),
    /// A node: its device and number.
    Node(u64, u64),
}

/// Every socket that has a name, and every one that was sent open files.
pub struct Registry {
    bound: Lock<BTreeMap<Place, Weak<Socket>>>,
    sent_to: Lock<Vec<Weak<Socket>>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// No socket.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bound: Lock::new(Rank::File, BTreeMap::new()),
            sent_to: Lock::new(Rank::Leaf, Vec::new()),
        }
    }

    /// Whether a socket is bound to a node of this device.
    pub fn has_node_of(&self, device: u64) -> bool {
        let bound = self.bound.lock();
        bound.iter().any(|(place, socket)| match place {
            Place::Abstract(_) => false,
            Place::Node(of, _) => *of == device && socket.strong_count() > 0,
        })
    }

    /// Binds a socket.
    ///
    /// # Errors
    /// `EADDRINUSE`.
    pub fn bind(&self, place: Place, socket: &Arc<Socket>) -> Result<(), Errno> {
        let mut bound = self.bound.lock();
        bound.retain(|_, known| known.strong_count() > 0);
        if bound.contains_key(&place) {
            return Err(Errno::EADDRINUSE);
        }
        bound.insert(place, Arc::downgrade(socket));
        Ok(())
    }

    /// Binds a socket to a free name of five digits.
    pub fn bind_any(&self, socket: &Arc<Socket>) -> Address {
        let mut number = 0_u32;
        loop {
            let name = format!("{number:05x}").into_bytes();
            if self.bind(Place::Abstract(name.clone()), socket).is_ok() {
                return Address::Abstract(name);
            }
            number += 1;
        }
    }

    /// The socket at a place.
    #[must_use]
    pub fn find(&self, place: &Place) -> Option<Arc<Socket>> {
        self.bound.lock().get(place)?.upgrade()
    }

    /// Notes that open files travel to a socket.
    pub fn note_rights(&self, socket: &Arc<Socket>) {
        let mut sent_to = self.sent_to.lock();
        sent_to.retain(|known| known.strong_count() > 0);
        sent_to.push(Arc::downgrade(socket));
    }

    /// Empties the inboxes that may hold each other's sockets; for the end of a run. Before that,
    /// sockets that were sent to each other and received by nobody stay.
    pub fn clear(&self) {
        let sent_to = core::mem::take(&mut *self.sent_to.lock());
        for socket in sent_to.iter().filter_map(Weak::upgrade) {
            socket.discard();
        }
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
