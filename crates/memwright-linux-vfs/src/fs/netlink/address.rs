//! The names of netlink sockets, and the calls that bind and connect them.

use crate::{
    fs::{caller::Caller, netlink::socket::NetlinkSocket},
    identity::Capabilities,
};
use linux_raw_sys::net;
use memwright_linux_abi::errno::Errno;

/// Size in bytes of `struct sockaddr_nl` of `linux/netlink.h`.
pub const NAME_SIZE: usize = 12;

/// The name of a netlink socket, as in `struct sockaddr_nl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetlinkName {
    /// The port; 0 for the kernel.
    pub port: u32,
    /// The multicast groups, as a bit mask.
    pub groups: u32,
}

impl NetlinkName {
    /// Decodes a `struct sockaddr_nl`.
    ///
    /// # Errors
    /// `EINVAL` if `bytes` is too short or has another address family.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Errno> {
        let Some(&[low, high, _, _, a, b, c, d, e, f, g, h]) = bytes.first_chunk::<NAME_SIZE>()
        else {
            return Err(Errno::EINVAL);
        };
        if u32::from(u16::from_le_bytes([low, high])) != net::AF_NETLINK {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            port: u32::from_le_bytes([a, b, c, d]),
            groups: u32::from_le_bytes([e, f, g, h]),
        })
    }

    /// Encodes the name.
    #[must_use]
    pub fn to_bytes(self) -> [u8; NAME_SIZE] {
        let mut bytes = [0; NAME_SIZE];
        bytes[..2].copy_from_slice(&(net::AF_NETLINK as u16).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.port.to_le_bytes());
        bytes[8..].copy_from_slice(&self.groups.to_le_bytes());
        bytes
    }

    /// Checks that `caller` is allowed to send to this name. Only the kernel's name is allowed without `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// `EPERM`.
    pub(super) fn check(self, caller: &dyn Caller) -> Result<(), Errno> {
        let kernel = self == Self::default();
        if kernel || caller.has_any(Capabilities::NETWORK) {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }
}

impl NetlinkSocket {
    /// Binds the socket to a name (Linux 7.2 `net/netlink/af_netlink.c`, `netlink_bind`).
    ///
    /// # Errors
    /// `EINVAL` if the socket already has another port, `EADDRINUSE`.
    pub fn bind(&self, caller: &dyn Caller, name: NetlinkName) -> Result<(), Errno> {
        let own = self.state.lock().port;
        match own {
            Some(own) if own != name.port => return Err(Errno::EINVAL),
            Some(_) => {}
            None if name.port != 0 => self.take_port(name.port)?,
            None => self.bind_any(caller)?,
        }
        let mut state = self.state.lock();
        state.groups = state.groups & !u64::from(u32::MAX) | u64::from(name.groups);
        Ok(())
    }

    /// Sets the name to which the socket sends by default; `None` stands for the kernel (`netlink_connect`).
    ///
    /// # Errors
    /// `EPERM` if the caller is not allowed to send to `name`.
    pub fn connect(&self, caller: &dyn Caller, name: Option<NetlinkName>) -> Result<(), Errno> {
        let name = name.unwrap_or_default();
        name.check(caller)?;
        self.bind_any(caller)?;
        self.state.lock().peer = name;
        Ok(())
    }

    /// Returns the name of the socket, with port 0 if it is not bound.
    #[must_use]
    pub fn name(&self) -> NetlinkName {
        let state = self.state.lock();
        NetlinkName {
            port: state.port.unwrap_or(0),
            groups: state.groups as u32,
        }
    }

    /// Returns the name to which the socket sends by default.
    #[must_use]
    pub fn peer_name(&self) -> NetlinkName {
        self.state.lock().peer
    }

    /// Binds the socket to a port that the kernel chooses (see [`Ports::claim_any`](super::ports::Ports::claim_any)),
    /// unless the socket already has a port.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn bind_any(&self, caller: &dyn Caller) -> Result<(), Errno> {
        if self.state.lock().port.is_none() {
            let port = self.ports.claim_any(caller.ids().process)?;
            self.keep_port(port);
        }
        Ok(())
    }

    fn take_port(&self, port: u32) -> Result<(), Errno> {
        if !self.ports.claim(port)? {
            return Err(Errno::EADDRINUSE);
        }
        self.keep_port(port);
        Ok(())
    }

    /// Assigns `port`, which the caller has claimed, to the socket. Releases the port if another thread has bound the
    /// socket in the meantime.
    fn keep_port(&self, port: u32) {
        let kept = *self.state.lock().port.get_or_insert(port);
        if kept != port {
            self.ports.release(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_and_encoded() {
        let name = NetlinkName {
            port: 0x102,
            groups: 3,
        };
        let bytes = *b"\x10\0\0\0\x02\x01\0\0\x03\0\0\0";
        assert_eq!(name.to_bytes(), bytes);
        let mut other = bytes;
        other[0] = 2;
        for (bytes, expected) in [
            (&bytes[..], Ok(name)),
            (&[bytes, bytes].concat(), Ok(name)),
            (&bytes[..11], Err(Errno::EINVAL)),
            (&other[..], Err(Errno::EINVAL)),
            (b"", Err(Errno::EINVAL)),
        ] {
            assert_eq!(NetlinkName::from_bytes(bytes), expected);
        }
    }
}
