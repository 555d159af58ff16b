//! The numeric options of internet sockets (`setsockopt`).

use crate::fs::inet::{address::Family, ancillary::Told, claims::Protocol};
use linux_raw_sys::net;
use memwright_linux_abi::errno::Errno;

/// The levels of options.
pub mod level {
    /// `SOL_IP`.
    pub const IP: u32 = 0;
    /// `SOL_TCP`.
    pub const TCP: u32 = 6;
    /// `SOL_UDP`.
    pub const UDP: u32 = 17;
    /// `SOL_IPV6`.
    pub const IPV6: u32 = 41;
}

/// Options of `linux/tcp.h`.
pub mod tcp {
    /// `TCP_NODELAY`.
    pub const NODELAY: u32 = 1;
    /// `TCP_MAXSEG`.
    pub const MAXSEG: u32 = 2;
    /// `TCP_CORK`.
    pub const CORK: u32 = 3;
    /// `TCP_KEEPIDLE`.
    pub const KEEPIDLE: u32 = 4;
    /// `TCP_KEEPINTVL`.
    pub const KEEPINTVL: u32 = 5;
    /// `TCP_KEEPCNT`.
    pub const KEEPCNT: u32 = 6;
    /// `TCP_SYNCNT`.
    pub const SYNCNT: u32 = 7;
    /// `TCP_LINGER2`.
    pub const LINGER2: u32 = 8;
    /// `TCP_DEFER_ACCEPT`.
    pub const DEFER_ACCEPT: u32 = 9;
    /// `TCP_WINDOW_CLAMP`.
    pub const WINDOW_CLAMP: u32 = 10;
    /// `TCP_INFO`.
    pub const INFO: u32 = 11;
    /// `TCP_QUICKACK`.
    pub const QUICKACK: u32 = 12;
    /// `TCP_CONGESTION`.
    pub const CONGESTION: u32 = 13;
    /// `TCP_USER_TIMEOUT`.
    pub const USER_TIMEOUT: u32 = 18;
    /// `TCP_FASTOPEN`.
    pub const FASTOPEN: u32 = 23;
    /// `TCP_NOTSENT_LOWAT`.
    pub const NOTSENT_LOWAT: u32 = 25;
}

/// How the value of an option is checked and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// A flag. Every value other than 0 is stored as 1.
    Flag,
    /// A number in this range. Other numbers fail with `EINVAL`.
    Range(i32, i32),
    /// A number in this range, or -1 for the default value.
    RangeOrDefault(i32, i32),
    /// Any number. Its lowest byte is stored.
    Byte,
}

/// The description of a numeric option.
struct Slot {
    level: u32,
    name: u32,
    check: Check,
    default: i32,
}

const fn slot(level: u32, name: u32, check: Check, default: i32) -> Slot {
    Slot {
        level,
        name,
        check,
        default,
    }
}

use Check::{Byte, Flag, Range, RangeOrDefault};

/// The numeric options that a socket stores, with the ranges and defaults of Linux 7.2 (`net/core/sock.c`,
/// `net/ipv4/tcp.c`, `net/ipv4/ip_sockglue.c`, `net/ipv6/ipv6_sockglue.c`).
const SLOTS: [Slot; COUNT] = [
    slot(net::SOL_SOCKET, net::SO_REUSEADDR, Flag, 0),
    slot(net::SOL_SOCKET, net::SO_REUSEPORT, Flag, 0),
    slot(level::IPV6, net::IPV6_V6ONLY, Flag, 0),
    slot(level::IP, net::IP_PKTINFO, Flag, 0),
    slot(level::IPV6, net::IPV6_RECVPKTINFO, Flag, 0),
    slot(level::IP, net::IP_RECVERR, Flag, 0),
    slot(level::IPV6, net::IPV6_RECVERR, Flag, 0),
    slot(level::IP, net::IP_RECVTTL, Flag, 0),
    slot(level::IP, net::IP_RECVTOS, Flag, 0),
    slot(level::IPV6, net::IPV6_RECVHOPLIMIT, Flag, 0),
    slot(level::IPV6, net::IPV6_RECVTCLASS, Flag, 0),
    slot(level::IP, net::IP_TTL, RangeOrDefault(1, 255), 64),
    slot(level::IP, net::IP_TOS, Byte, 0),
    slot(
        level::IPV6,
        net::IPV6_UNICAST_HOPS,
        RangeOrDefault(0, 255),
        64,
    ),
    slot(level::IPV6, net::IPV6_TCLASS, RangeOrDefault(0, 255), 0),
    slot(net::SOL_SOCKET, net::SO_KEEPALIVE, Flag, 0),
    slot(net::SOL_SOCKET, net::SO_BROADCAST, Flag, 0),
    slot(net::SOL_SOCKET, net::SO_DONTROUTE, Flag, 0),
    slot(net::SOL_SOCKET, net::SO_OOBINLINE, Flag, 0),
    slot(net::SOL_SOCKET, net::SO_NO_CHECK, Flag, 0),
    slot(net::SOL_SOCKET, net::SO_PRIORITY, Range(0, 6), 0),
    slot(
        net::SOL_SOCKET,
        net::SO_RCVLOWAT,
        Range(i32::MIN, i32::MAX),
        1,
    ),
    slot(
        net::SOL_SOCKET,
        net::SO_INCOMING_CPU,
        Range(i32::MIN, i32::MAX),
        -1,
    ),
    slot(level::TCP, tcp::NODELAY, Flag, 0),
    slot(level::TCP, tcp::MAXSEG, Range(88, 32_767), 536),
    slot(level::TCP, tcp::CORK, Flag, 0),
    slot(level::TCP, tcp::KEEPIDLE, Range(1, 32_767), 7200),
    slot(level::TCP, tcp::KEEPINTVL, Range(1, 32_767), 75),
    slot(level::TCP, tcp::KEEPCNT, Range(1, 127), 9),
    slot(level::TCP, tcp::SYNCNT, Range(1, 127), 6),
    slot(level::TCP, tcp::LINGER2, Range(i32::MIN, i32::MAX), 60),
    slot(level::TCP, tcp::DEFER_ACCEPT, Range(i32::MIN, i32::MAX), 0),
    slot(level::TCP, tcp::WINDOW_CLAMP, Range(0, i32::MAX), 0),
    slot(level::TCP, tcp::QUICKACK, Flag, 1),
    slot(level::TCP, tcp::USER_TIMEOUT, Range(0, i32::MAX), 0),
    slot(level::TCP, tcp::FASTOPEN, Range(0, i32::MAX), 0),
    slot(level::TCP, tcp::NOTSENT_LOWAT, Range(i32::MIN, i32::MAX), 0),
    slot(level::IP, net::IP_MTU_DISCOVER, Range(0, 5), 1),
    slot(level::IP, net::IP_FREEBIND, Flag, 0),
    slot(level::IP, net::IP_BIND_ADDRESS_NO_PORT, Flag, 0),
    slot(level::IP, net::IP_MULTICAST_TTL, RangeOrDefault(0, 255), 1),
    slot(level::IP, net::IP_MULTICAST_LOOP, Flag, 1),
    slot(
        level::IPV6,
        net::IPV6_MULTICAST_HOPS,
        RangeOrDefault(0, 255),
        1,
    ),
    slot(level::IPV6, net::IPV6_MULTICAST_LOOP, Flag, 1),
    slot(level::IPV6, net::IPV6_MTU_DISCOVER, Range(0, 5), 1),
    slot(level::IPV6, net::IPV6_DONTFRAG, Flag, 0),
];

/// Number of numeric options.
const COUNT: usize = 46;

/// The indices in [`SLOTS`] of the options that this crate reads.
const REUSE_ADDRESS: usize = 0;
const REUSE_PORT: usize = 1;
const ONLY_V6: usize = 2;
const PACKET_INFO_V4: usize = 3;
const PACKET_INFO_V6: usize = 4;
const RECEIVE_ERRORS_V4: usize = 5;
const RECEIVE_ERRORS_V6: usize = 6;
const RECEIVE_HOPS_V4: usize = 7;
const RECEIVE_CLASS_V4: usize = 8;
const RECEIVE_HOPS_V6: usize = 9;
const RECEIVE_CLASS_V6: usize = 10;
const HOPS_V4: usize = 11;
const CLASS_V4: usize = 12;
const HOPS_V6: usize = 13;
const CLASS_V6: usize = 14;
const URGENT_INLINE: usize = 18;

/// The bits of a type of service or traffic class that report congestion (`INET_ECN_MASK` of Linux 7.2,
/// `include/net/inet_ecn.h`). On a stream, a program cannot set these bits.
const CONGESTION: i32 = 3;

/// The values of the numeric options of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    values: [i32; COUNT],
    told: Told,
}

impl Default for Choices {
    fn default() -> Self {
        Self {
            values: core::array::from_fn(|index| SLOTS[index].default),
            told: Told::empty(),
        }
    }
}

/// Returns the type of control message that the option at `index` enables; the empty set for other options.
const fn told_by(index: usize) -> Told {
    match index {
        PACKET_INFO_V4 => Told::ADDRESS_V4,
        PACKET_INFO_V6 => Told::ADDRESS_V6,
        RECEIVE_HOPS_V4 => Told::HOPS_V4,
        RECEIVE_CLASS_V4 => Told::CLASS_V4,
        RECEIVE_HOPS_V6 => Told::HOPS_V6,
        RECEIVE_CLASS_V6 => Told::CLASS_V6,
        _ => Told::empty(),
    }
}

/// Returns whether sockets of `family` and `protocol` have options of `level`.
fn has_level(family: Family, protocol: Protocol, level: u32) -> bool {
    match level {
        net::SOL_SOCKET | level::IP => true,
        level::IPV6 => family == Family::V6,
        level::TCP => protocol == Protocol::Tcp,
        level::UDP => protocol == Protocol::Udp,
        _ => false,
    }
}

fn index_of(family: Family, protocol: Protocol, level: u32, name: u32) -> Result<usize, Errno> {
    if !has_level(family, protocol, level) {
        return Err(Errno::ENOPROTOOPT);
    }
    let found = SLOTS
        .iter()
        .position(|slot| (slot.level, slot.name) == (level, name));
    found.ok_or(Errno::ENOPROTOOPT)
}

impl Choices {
    /// Returns the value of an option.
    ///
    /// # Errors
    /// `ENOPROTOOPT`; for an unknown level of an IPv4 socket `EOPNOTSUPP` (`do_ip_getsockopt` in
    /// `net/ipv4/ip_sockglue.c` of Linux 7.3).
    pub fn get(
        &self,
        family: Family,
        protocol: Protocol,
        level: u32,
        name: u32,
    ) -> Result<i32, Errno> {
        if family == Family::V4 && !has_level(family, protocol, level) {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(self.values[index_of(family, protocol, level, name)?])
    }

    /// Sets the value of an option.
    ///
    /// # Errors
    /// `ENOPROTOOPT`, and `EINVAL` if the value is not in its range.
    pub fn set(
        &mut self,
        family: Family,
        protocol: Protocol,
        level: u32,
        name: u32,
        value: i32,
    ) -> Result<(), Errno> {
        let index = index_of(family, protocol, level, name)?;
        let Slot { check, default, .. } = SLOTS[index];
        let stored = match check {
            Check::Flag => Some(i32::from(value != 0)),
            Check::Byte => Some(value & 0xff),
            Check::RangeOrDefault(..) if value == -1 => Some(default),
            Check::Range(least, most) | Check::RangeOrDefault(least, most) => {
                (least..=most).contains(&value).then_some(value)
            }
        };
        let stored = stored.ok_or(Errno::EINVAL)?;
        self.values[index] = match (index, protocol) {
            (CLASS_V4 | CLASS_V6, Protocol::Tcp) => stored & !CONGESTION,
            _ => stored,
        };
        self.told.set(told_by(index), stored != 0);
        Ok(())
    }

    /// Returns whether `SO_REUSEADDR` is set.
    #[must_use]
    pub const fn reuses_address(&self) -> bool {
        self.values[REUSE_ADDRESS] != 0
    }

    /// Returns whether `SO_OOBINLINE` is set.
    #[must_use]
    pub const fn has_urgent_inline(&self) -> bool {
        self.values[URGENT_INLINE] != 0
    }

    /// Returns whether `SO_REUSEPORT` is set.
    #[must_use]
    pub const fn reuses_port(&self) -> bool {
        self.values[REUSE_PORT] != 0
    }

    /// Returns whether `IPV6_V6ONLY` is set.
    #[must_use]
    pub const fn is_only_v6(&self) -> bool {
        self.values[ONLY_V6] != 0
    }

    /// Returns the types of control messages that a receive returns together with a datagram.
    #[must_use]
    pub const fn told(&self) -> Told {
        self.told
    }

    /// Returns the hop limit (or time to live) and the traffic class (or type of service) of datagrams to addresses of
    /// `family`.
    #[must_use]
    pub const fn hops_and_class(&self, family: Family) -> (u8, u8) {
        let (hops, class) = match family {
            Family::V4 => (HOPS_V4, CLASS_V4),
            Family::V6 => (HOPS_V6, CLASS_V6),
        };
        (self.values[hops] as u8, self.values[class] as u8)
    }

    /// Returns whether an unconnected datagram socket gets an error if no socket receives at the destination of a
    /// datagram (`IP_RECVERR`, `IPV6_RECVERR`).
    #[must_use]
    pub const fn receives_errors(&self) -> bool {
        self.values[RECEIVE_ERRORS_V4] != 0 || self.values[RECEIVE_ERRORS_V6] != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        use Errno as E;
        let (four, six) = (Family::V4, Family::V6);
        let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
        for (family, protocol, level, name, value, expected) in [
            (four, tcp, level::TCP, tcp::NODELAY, 7, Ok(1)),
            (four, udp, level::TCP, tcp::NODELAY, 7, Err(E::ENOPROTOOPT)),
            (four, tcp, level::TCP, tcp::KEEPIDLE, 0, Err(E::EINVAL)),
            (four, tcp, level::TCP, tcp::KEEPIDLE, 30, Ok(30)),
            (four, tcp, level::IP, net::IP_TTL, -1, Ok(64)),
            (four, tcp, level::IP, net::IP_TTL, 256, Err(E::EINVAL)),
            (four, udp, level::IP, net::IP_TOS, 0x1ff, Ok(255)),
            (four, udp, level::IP, net::IP_TOS, -1, Ok(255)),
            (four, tcp, level::IP, net::IP_TOS, 255, Ok(252)),
            (six, tcp, level::IPV6, net::IPV6_TCLASS, 255, Ok(252)),
            (six, udp, level::IPV6, net::IPV6_TCLASS, 256, Err(E::EINVAL)),
            (six, udp, level::IPV6, net::IPV6_TCLASS, -1, Ok(0)),
            (
                four,
                tcp,
                level::IPV6,
                net::IPV6_V6ONLY,
                1,
                Err(E::ENOPROTOOPT),
            ),
            (six, udp, level::IPV6, net::IPV6_V6ONLY, 1, Ok(1)),
            (six, udp, level::IPV6, 999, 1, Err(E::ENOPROTOOPT)),
            (six, udp, 999, 1, 1, Err(E::ENOPROTOOPT)),
        ] {
            let mut choices = Choices::default();
            let result = choices
                .set(family, protocol, level, name, value)
                .and_then(|()| choices.get(family, protocol, level, name));
            assert_eq!(result, expected, "{level} {name} {value}");
        }
    }

    #[test]
    fn levels_that_a_socket_lacks() {
        use Errno as E;
        let mut choices = Choices::default();
        for (family, level, expected) in [
            (Family::V4, level::UDP, E::EOPNOTSUPP),
            (Family::V4, level::IPV6, E::EOPNOTSUPP),
            (Family::V4, 99, E::EOPNOTSUPP),
            (Family::V4, level::TCP, E::ENOPROTOOPT),
            (Family::V6, level::UDP, E::ENOPROTOOPT),
            (Family::V6, 99, E::ENOPROTOOPT),
        ] {
            let answer = choices.get(family, Protocol::Tcp, level, 9999);
            assert_eq!(answer, Err(expected), "{family:?} {level}");
            let answer = choices.set(family, Protocol::Tcp, level, 9999, 1);
            assert_eq!(answer, Err(E::ENOPROTOOPT), "{family:?} {level}");
        }
    }

    #[test]
    fn the_read_options_have_their_places() {
        let mut choices = Choices::default();
        assert!(!choices.reuses_address() && !choices.reuses_port() && !choices.is_only_v6());
        assert_eq!(choices.told(), Told::empty());
        assert_eq!(choices.hops_and_class(Family::V4), (64, 0));
        assert!(!choices.receives_errors());
        for (level, name) in [
            (net::SOL_SOCKET, net::SO_REUSEADDR),
            (net::SOL_SOCKET, net::SO_REUSEPORT),
            (level::IPV6, net::IPV6_V6ONLY),
            (level::IP, net::IP_PKTINFO),
            (level::IP, net::IP_RECVERR),
            (level::IPV6, net::IPV6_UNICAST_HOPS),
            (level::IPV6, net::IPV6_TCLASS),
        ] {
            let set = choices.set(Family::V6, Protocol::Udp, level, name, 1);
            assert_eq!(set, Ok(()));
        }
        assert!(choices.reuses_address() && choices.reuses_port() && choices.is_only_v6());
        assert_eq!(choices.told(), Told::ADDRESS_V4);
        assert!(choices.receives_errors());
        assert_eq!(choices.hops_and_class(Family::V4), (64, 0));
        assert_eq!(choices.hops_and_class(Family::V6), (1, 1));
    }

    #[test]
    fn options_say_what_is_told() {
        for (level, name, told) in [
            (level::IP, net::IP_PKTINFO, Told::ADDRESS_V4),
            (level::IP, net::IP_RECVTTL, Told::HOPS_V4),
            (level::IP, net::IP_RECVTOS, Told::CLASS_V4),
            (level::IPV6, net::IPV6_RECVPKTINFO, Told::ADDRESS_V6),
            (level::IPV6, net::IPV6_RECVHOPLIMIT, Told::HOPS_V6),
            (level::IPV6, net::IPV6_RECVTCLASS, Told::CLASS_V6),
            (level::IP, net::IP_TTL, Told::empty()),
        ] {
            let mut choices = Choices::default();
            for (value, expected) in [(1, told), (0, Told::empty())] {
                // For `IP_TTL`, the value 0 is invalid and is not stored.
                let _ = choices.set(Family::V6, Protocol::Udp, level, name, value);
                assert_eq!(choices.told(), expected, "{level} {name} {value}");
            }
        }
    }
}
