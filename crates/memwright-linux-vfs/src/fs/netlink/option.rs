//! Reads and sets the options of netlink sockets.

use crate::fs::{netlink::socket::NetlinkSocket, socket::OptionValue};
use linux_raw_sys::net;
use memwright_linux_abi::{abi::Timeval, errno::Errno};

/// `NETLINK_ADD_MEMBERSHIP`, `NETLINK_DROP_MEMBERSHIP` and `NETLINK_LIST_MEMBERSHIPS` of `linux/netlink.h`.
const ADD: u32 = 1;
const DROP: u32 = 2;
const LIST: u32 = 9;
/// `NETLINK_PKTINFO`.
const PACKET_INFO: u32 = 3;
/// The Boolean options, as a bit mask: `NETLINK_PKTINFO`, `NETLINK_BROADCAST_ERROR`, `NETLINK_NO_ENOBUFS`,
/// `NETLINK_LISTEN_ALL_NSID`, `NETLINK_CAP_ACK`, `NETLINK_EXT_ACK` and `NETLINK_GET_STRICT_CHK`.
const FLAGS: u32 = 1 << PACKET_INFO | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 10 | 1 << 11 | 1 << 12;
/// The number of multicast groups of `NETLINK_ROUTE` (`RTNLGRP_MAX`).
const GROUPS: i32 = 39;

/// Returns the bit of a Boolean option, or `None` for other options.
fn flag(name: u32) -> Option<u32> {
    1_u32.checked_shl(name).filter(|bit| FLAGS & bit != 0)
}

impl NetlinkSocket {
    /// Returns the value of an option (Linux 7.2 `net/netlink/af_netlink.c`, `netlink_getsockopt`).
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn option(&self, level: u32, name: u32) -> Result<OptionValue, Errno> {
        let mut state = self.state.lock();
        let number = match (level, name) {
            (net::SOL_SOCKET, net::SO_TYPE) => self.kind as i32,
            (net::SOL_SOCKET, net::SO_DOMAIN) => net::AF_NETLINK as i32,
            // The protocol is `NETLINK_ROUTE`, which is 0, and no netlink socket listens.
            (net::SOL_SOCKET, net::SO_PROTOCOL | net::SO_ACCEPTCONN) => 0,
            (net::SOL_SOCKET, net::SO_ERROR) => {
                let error = state.error.take();
                error.map_or(0, |errno| i32::from(errno.number()))
            }
            (net::SOL_SOCKET, _) => return state.options.get(name),
            (net::SOL_NETLINK, LIST) => return Ok(OptionValue::Groups(state.groups)),
            (net::SOL_NETLINK, _) => {
                let bit = flag(name).ok_or(Errno::ENOPROTOOPT)?;
                i32::from(state.flags & bit != 0)
            }
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(OptionValue::Number(number))
    }

    /// Sets a numeric option (`netlink_setsockopt`).
    ///
    /// # Errors
    /// `ENOPROTOOPT`, `EINVAL` for a multicast group that does not exist.
    pub fn set_option(&self, level: u32, name: u32, value: i32) -> Result<(), Errno> {
        let mut state = self.state.lock();
        match (level, name) {
            (net::SOL_SOCKET, _) => return state.options.set(name, value),
            (net::SOL_NETLINK, ADD | DROP) => {
                if !(1..=GROUPS).contains(&value) {
                    return Err(Errno::EINVAL);
                }
                let bit = 1_u64 << (value - 1);
                state.groups = if name == ADD {
                    state.groups | bit
                } else {
                    state.groups & !bit
                };
            }
            (net::SOL_NETLINK, _) => {
                let bit = flag(name).ok_or(Errno::ENOPROTOOPT)?;
                state.flags = state.flags & !bit | if value != 0 { bit } else { 0 };
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    /// Sets the timeout of receives or that of sends. `name` selects which (`SO_RCVTIMEO_OLD` or `SO_SNDTIMEO_OLD`).
    ///
    /// # Errors
    /// `EDOM` if the microseconds are out of range.
    pub fn set_timeout(&self, name: u32, time: Timeval) -> Result<(), Errno> {
        self.state.lock().options.set_timeout(name, time)
    }

    /// Returns whether a receive also returns the multicast group of a message (`NETLINK_PKTINFO`), and whether it
    /// returns the sender's credentials (`SO_PASSCRED`).
    #[must_use]
    pub fn tells(&self) -> (bool, bool) {
        let state = self.state.lock();
        let group = state.flags & 1 << PACKET_INFO != 0;
        (group, state.options.pass_credentials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::netlink::Ports;

    #[test]
    fn options_are_set_and_read() {
        static PORTS: Ports = Ports::new();
        const NONE: Result<(), Errno> = Err(Errno::ENOPROTOOPT);
        let (general, netlink) = (net::SOL_SOCKET, net::SOL_NETLINK);
        let socket = NetlinkSocket::new(&PORTS, net::SOCK_RAW);
        for (level, name, value, expected) in [
            (netlink, ADD, 0, Err(Errno::EINVAL)),
            (netlink, ADD, 40, Err(Errno::EINVAL)),
            (netlink, ADD, 39, Ok(())),
            (netlink, ADD, 1, Ok(())),
            (netlink, DROP, 39, Ok(())),
            (netlink, 10, 7, Ok(())),
            (netlink, 6, 1, NONE),
            (netlink, 32, 1, NONE),
            (general, net::SO_PASSCRED, 1, Ok(())),
            (general, net::SO_TYPE, 1, NONE),
            (6, 1, 1, NONE),
        ] {
            assert_eq!(socket.set_option(level, name, value), expected, "{name}");
        }
        for (level, name, expected) in [
            (netlink, LIST, Ok(OptionValue::Groups(1))),
            (netlink, 10, Ok(OptionValue::Number(1))),
            (netlink, 11, Ok(OptionValue::Number(0))),
            (netlink, 33, Err(Errno::ENOPROTOOPT)),
            (general, net::SO_TYPE, Ok(OptionValue::Number(3))),
            (general, net::SO_DOMAIN, Ok(OptionValue::Number(16))),
            (general, net::SO_RCVBUF, Ok(OptionValue::Number(212_992))),
            (17, 1, Err(Errno::ENOPROTOOPT)),
        ] {
            assert_eq!(socket.option(level, name), expected, "{name}");
        }
        assert_eq!(socket.tells(), (false, true));
    }
}
