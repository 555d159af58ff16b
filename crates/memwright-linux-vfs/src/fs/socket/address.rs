//! The names of sockets.

use alloc::vec::Vec;
use memwright_linux_abi::errno::Errno;

/// `AF_UNIX`.
const FAMILY: u16 = 1;
/// Size of `struct sockaddr_un` in bytes.
pub const ADDRESS_MAX: usize = 110;
/// Offset of the path in `struct sockaddr_un`, in bytes.
const HEAD: usize = 2;

/// The name of a socket, as a program passes it in `struct sockaddr_un`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A path, at which the bind creates an inode.
    Path(Vec<u8>),
    /// An abstract name, which is not in the file system.
    Abstract(Vec<u8>),
    /// A request to bind the socket to a free abstract name.
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

    /// Encodes a name as `struct sockaddr_un`. For a socket without a name, encodes only the address family.
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
