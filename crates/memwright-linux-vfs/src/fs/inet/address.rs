//! The addresses of internet sockets.

use linux_raw_sys::net;
use memwright_linux_abi::errno::Errno;

/// Size in bytes of `struct sockaddr_in`.
const SIZE_V4: usize = 16;
/// Size in bytes of `struct sockaddr_in6`, and of its part before `sin6_scope_id`. A caller must pass at least that
/// part.
const SIZE_V6: usize = 28;
const LEAST_V6: usize = 24;
/// Size in bytes of the largest socket address (`struct sockaddr_storage`).
pub const NAME_MAX: usize = 128;
/// The first bytes of an IPv4-mapped IPv6 address (`::ffff:0:0/96`).
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The address family of a socket or of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

impl Family {
    /// Returns the family whose `AF_` number is `number`, or `None` if that is not an internet family.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            net::AF_INET => Some(Self::V4),
            net::AF_INET6 => Some(Self::V6),
            _ => None,
        }
    }

    /// Returns the `AF_` number.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::V4 => net::AF_INET,
            Self::V6 => net::AF_INET6,
        }
    }

    /// Returns the wildcard address (`INADDR_ANY` or `in6addr_any`).
    #[must_use]
    pub const fn any(self) -> Ip {
        match self {
            Self::V4 => Ip::V4([0; 4]),
            Self::V6 => Ip::V6([0; 16]),
        }
    }
}

/// An internet address. An IPv4-mapped IPv6 address is represented as an IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ip {
    /// An IPv4 address.
    V4([u8; 4]),
    /// An IPv6 address that is not IPv4-mapped.
    V6([u8; 16]),
}

impl Ip {
    /// The loopback address of IPv4.
    pub const LOCAL_V4: Self = Self::V4([127, 0, 0, 1]);
    /// The loopback address of IPv6.
    pub const LOCAL_V6: Self = Self::V6([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    /// Returns the family of the packets that are sent to this address.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::V4(_) => Family::V4,
            Self::V6(_) => Family::V6,
        }
    }

    /// Returns the address in the `in6_addr` whose bytes are `bytes`.
    #[must_use]
    pub fn from_v6(bytes: [u8; 16]) -> Self {
        match bytes.strip_prefix(&MAPPED) {
            Some(&[a, b, c, d]) => Self::V4([a, b, c, d]),
            Some(_) | None => Self::V6(bytes),
        }
    }

    /// Returns the bytes of the `in6_addr` for the address. An IPv4 address becomes an IPv4-mapped one.
    #[must_use]
    pub fn to_v6(self) -> [u8; 16] {
        match self {
            Self::V4(bytes) => {
                let mut mapped = [0; 16];
                mapped[..12].copy_from_slice(&MAPPED);
                mapped[12..].copy_from_slice(&bytes);
                mapped
            }
            Self::V6(bytes) => bytes,
        }
    }

    /// Returns whether the address is the wildcard address of its family.
    #[must_use]
    pub fn is_any(self) -> bool {
        self == Self::V4([0; 4]) || self == Self::V6([0; 16])
    }

    /// Returns whether the address belongs to this machine: a loopback address or the wildcard address.
    #[must_use]
    pub fn is_here(self) -> bool {
        match self {
            Self::V4([first, ..]) => first == 127 || self.is_any(),
            Self::V6(_) => self == Self::LOCAL_V6 || self.is_any(),
        }
    }

    /// Returns the address that receives the packets that are sent to this address. For the wildcard address, this is
    /// the loopback address.
    #[must_use]
    pub fn target(self) -> Self {
        match self {
            Self::V4([0, 0, 0, 0]) => Self::LOCAL_V4,
            Self::V6([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) => Self::LOCAL_V6,
            Self::V4(_) | Self::V6(_) => self,
        }
    }

    /// Returns the source address of packets that an unbound socket sends to this address.
    #[must_use]
    pub const fn source(self) -> Self {
        match self {
            Self::V4(_) => Self::LOCAL_V4,
            Self::V6(_) => Self::LOCAL_V6,
        }
    }
}

/// An address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The IPv4 or IPv6 address.
    pub ip: Ip,
    /// The port number.
    pub port: u16,
}

/// The decoded content of a socket address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// No address (`AF_UNSPEC`).
    Unspecified,
    /// An address and a port.
    Endpoint(Endpoint),
}

/// Decodes a socket address that a program passes to a socket of `family` (Linux 7.2 `net/ipv4/af_inet.c`,
/// `net/ipv6/af_inet6.c`). If `either` is set, an IPv6 socket also accepts an IPv4 socket address, as on Linux for the
/// destination of a datagram.
///
/// # Errors
/// `EINVAL` if the address is too short, `EAFNOSUPPORT` if the address is of another family.
pub fn decode(family: Family, bytes: &[u8], either: bool) -> Result<Name, Errno> {
    let Some(&[low, high]) = bytes.first_chunk() else {
        return Err(Errno::EINVAL);
    };
    let number = u32::from(u16::from_le_bytes([low, high]));
    if number == net::AF_UNSPEC {
        return Ok(Name::Unspecified);
    }
    let family = match family {
        Family::V6 if either && number == net::AF_INET => Family::V4,
        Family::V4 | Family::V6 => family,
    };
    let least = match family {
        Family::V4 => SIZE_V4,
        Family::V6 => LEAST_V6,
    };
    if bytes.len() < least {
        return Err(Errno::EINVAL);
    }
    if number != family.number() {
        return Err(Errno::EAFNOSUPPORT);
    }
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip = match family {
        Family::V4 => {
            let mut ip = [0; 4];
            ip.copy_from_slice(&bytes[4..8]);
            Ip::V4(ip)
        }
        Family::V6 => {
            let mut ip = [0; 16];
            ip.copy_from_slice(&bytes[8..24]);
            Ip::from_v6(ip)
        }
    };
    Ok(Name::Endpoint(Endpoint { ip, port }))
}

/// A `struct sockaddr_in` or `struct sockaddr_in6` as bytes.
pub struct Encoded {
    bytes: [u8; SIZE_V6],
    length: usize,
}

impl Encoded {
    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Encodes an address and a port as the socket address that a socket of `family` returns.
#[must_use]
pub fn encode(family: Family, endpoint: Endpoint) -> Encoded {
    let mut bytes = [0; SIZE_V6];
    bytes[..2].copy_from_slice(&(family.number() as u16).to_le_bytes());
    bytes[2..4].copy_from_slice(&endpoint.port.to_be_bytes());
    let wide = endpoint.ip.to_v6();
    let length = match family {
        Family::V4 => {
            bytes[4..8].copy_from_slice(&wide[12..]);
            SIZE_V4
        }
        Family::V6 => {
            bytes[8..24].copy_from_slice(&wide);
            SIZE_V6
        }
    };
    Encoded { bytes, length }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn v4(ip: [u8; 4], port: u16) -> Result<Name, Errno> {
        Ok(Name::Endpoint(Endpoint {
            ip: Ip::V4(ip),
            port,
        }))
    }

    #[test]
    fn names_are_decoded_and_encoded() {
        let four = *b"\x02\0\x1f\x90\x7f\0\0\x01\0\0\0\0\0\0\0\0";
        let mut six = [0; 28];
        six[..4].copy_from_slice(b"\x0a\0\0\x50");
        six[23] = 1;
        let mut mapped = six;
        mapped[18..24].copy_from_slice(b"\xff\xff\x7f\0\0\x02");
        let local = Ok(Name::Endpoint(Endpoint {
            ip: Ip::LOCAL_V6,
            port: 80,
        }));
        for (family, bytes, either, expected) in [
            (Family::V4, &four[..], false, v4([127, 0, 0, 1], 8080)),
            (Family::V4, &four[..15], false, Err(Errno::EINVAL)),
            (Family::V4, &six[..], false, Err(Errno::EAFNOSUPPORT)),
            (Family::V6, &six[..], false, local),
            (Family::V6, &six[..24], false, local),
            (Family::V6, &six[..23], false, Err(Errno::EINVAL)),
            (Family::V6, &mapped[..], false, v4([127, 0, 0, 2], 80)),
            (Family::V6, &four[..], false, Err(Errno::EINVAL)),
            (Family::V6, &four[..], true, v4([127, 0, 0, 1], 8080)),
            (Family::V4, b"\0\0", false, Ok(Name::Unspecified)),
            (Family::V4, b"\x02", false, Err(Errno::EINVAL)),
        ] {
            assert_eq!(decode(family, bytes, either), expected);
        }
        let endpoint = Endpoint {
            ip: Ip::V4([127, 0, 0, 2]),
            port: 80,
        };
        assert_eq!(encode(Family::V6, endpoint).bytes(), &mapped);
        assert_eq!(
            encode(Family::V4, endpoint).bytes()[..8],
            *b"\x02\0\0\x50\x7f\0\0\x02"
        );
    }

    #[test]
    fn addresses_are_classified() {
        for (ip, here, any, target) in [
            (Ip::V4([127, 0, 0, 1]), true, false, Ip::LOCAL_V4),
            (Ip::V4([127, 9, 9, 9]), true, false, Ip::V4([127, 9, 9, 9])),
            (Ip::V4([0; 4]), true, true, Ip::LOCAL_V4),
            (Ip::V4([10, 0, 0, 1]), false, false, Ip::V4([10, 0, 0, 1])),
            (Ip::V6([0; 16]), true, true, Ip::LOCAL_V6),
            (Ip::LOCAL_V6, true, false, Ip::LOCAL_V6),
            (Ip::V6([0xfe; 16]), false, false, Ip::V6([0xfe; 16])),
        ] {
            assert_eq!(
                (ip.is_here(), ip.is_any(), ip.target()),
                (here, any, target)
            );
        }
    }
}
