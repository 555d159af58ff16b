//! Binds sockets to addresses and ports.

use crate::{
    fs::{
        caller::Caller,
        inet::{
            address::{Endpoint, Family, Ip, Name},
            claims::Protocol,
            socket::InetSocket,
            state::Phase,
        },
    },
    identity::Capabilities,
};
use alloc::sync::Arc;
use memwright_linux_abi::errno::Errno;

/// The first port that every user can bind (`net.ipv4.ip_unprivileged_port_start` of Linux 7.2).
const UNPRIVILEGED: u16 = 1024;

/// Returns the address and port to which a socket address binds a socket of `family`.
///
/// # Errors
/// `EAFNOSUPPORT` for `AF_UNSPEC`, even with the IPv4 wildcard address, which Linux accepts (`__inet_bind` of Linux
/// 7.2, `net/ipv4/af_inet.c`); `EINVAL` for an IPv4 address if the socket has `IPV6_V6ONLY`; `EADDRNOTAVAIL` for an
/// address that does not belong to this machine.
fn nameable(family: Family, only_v6: bool, name: Name) -> Result<Endpoint, Errno> {
    let endpoint = match (name, family) {
        (Name::Endpoint(endpoint), _) => endpoint,
        (Name::Unspecified, Family::V4 | Family::V6) => return Err(Errno::EAFNOSUPPORT),
    };
    match (family, endpoint.ip) {
        (Family::V6, Ip::V4(_)) if only_v6 => Err(Errno::EINVAL),
        (Family::V4 | Family::V6, ip) if ip.is_here() => Ok(endpoint),
        (Family::V4 | Family::V6, _) => Err(Errno::EADDRNOTAVAIL),
    }
}

impl InetSocket {
    /// Binds the socket to an address and a port, or to any free port if the port is 0 (Linux 7.2 `net/ipv4/af_inet.c`,
    /// `__inet_bind`; `net/ipv6/af_inet6.c`).
    ///
    /// # Errors
    /// `EINVAL` if the socket already has a port, `EADDRINUSE`, `EADDRNOTAVAIL`, `EAFNOSUPPORT`, `EACCES` for a port
    /// below 1024
    /// without CAP_NET_BIND_SERVICE, `ENOMEM`.
    pub fn bind(self: &Arc<Self>, caller: &dyn Caller, name: Name) -> Result<(), Errno> {
        let only_v6 = self.settings().choices.is_only_v6();
        let endpoint = nameable(self.family, only_v6, name)?;
        let privileged = (1..UNPRIVILEGED).contains(&endpoint.port);
        if privileged && !caller.has_any(Capabilities::BIND_PORTS) {
            return Err(Errno::EACCES);
        }
        if self.state.lock().progress.phase != Phase::Closed {
            return Err(Errno::EINVAL);
        }
        let (place, terms) = (self.place_of(endpoint), self.terms(false));
        let now = self.vfs.clock.now();
        self.network.bind(self, endpoint, place, terms, now)
    }

    /// Binds the socket to the wildcard address and a free port, unless the socket already has a port.
    ///
    /// # Errors
    /// `EAGAIN` if no port is free (`inet_autobind` of Linux 7.2), `ENOMEM`.
    pub(super) fn bind_any(self: &Arc<Self>) -> Result<(), Errno> {
        if self.held.lock().claim.is_some() {
            return Ok(());
        }
        let endpoint = Endpoint {
            ip: self.family.any(),
            port: 0,
        };
        let (place, terms) = (self.place_of(endpoint), self.terms(false));
        let now = self.vfs.clock.now();
        let bound = self.network.bind(self, endpoint, place, terms, now);
        match bound {
            // Another thread may have bound the socket in the meantime.
            Err(Errno::EINVAL) if self.held.lock().claim.is_some() => Ok(()),
            Err(Errno::EADDRINUSE) => Err(Errno::EAGAIN),
            other => other,
        }
    }

    /// Returns whether this is a stream socket.
    pub(super) const fn is_stream(&self) -> bool {
        match self.protocol {
            Protocol::Tcp => true,
            Protocol::Udp => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_this_machine() {
        let name = |ip| Name::Endpoint(Endpoint { ip, port: 80 });
        for (family, only, name, expected) in [
            (Family::V4, false, name(Ip::LOCAL_V4), None),
            (Family::V6, false, name(Ip::LOCAL_V4), None),
            (Family::V6, true, name(Ip::LOCAL_V4), Some(Errno::EINVAL)),
            (
                Family::V4,
                false,
                name(Ip::V4([10, 0, 0, 1])),
                Some(Errno::EADDRNOTAVAIL),
            ),
            (
                Family::V4,
                false,
                Name::Unspecified,
                Some(Errno::EAFNOSUPPORT),
            ),
        ] {
            assert_eq!(nameable(family, only, name).err(), expected);
        }
    }
}
