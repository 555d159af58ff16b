//! The ancillary data of datagrams: the control messages that a program passes to a send, and those that a receive
//! returns.

use crate::fs::{
    control::{ControlMessage, ControlMessages},
    inet::{
        address::{Endpoint, Family, Ip},
        choices::{Choices, level},
    },
    interface,
};
use linux_raw_sys::net;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::flags;

/// `SCM_RIGHTS` and `SCM_CREDENTIALS` of `linux/socket.h`, which internet sockets ignore.
const RIGHTS: u32 = 1;
const CREDENTIALS: u32 = 2;
/// Size in bytes of `struct in_pktinfo` and of `struct in6_pktinfo`.
const INFO_V4: usize = 12;
const INFO_V6: usize = 20;

flags! {
    /// The types of control messages that a receive returns together with a datagram.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Told: u8 {
        /// `IP_PKTINFO`: the destination IPv4 address, and the interface.
        const ADDRESS_V4 = 1;
        /// `IP_RECVTTL`: the time to live of an IPv4 packet.
        const HOPS_V4 = 2;
        /// `IP_RECVTOS`: the type of service of an IPv4 packet.
        const CLASS_V4 = 4;
        /// `IPV6_RECVPKTINFO`: the destination IPv6 address, and the interface.
        const ADDRESS_V6 = 8;
        /// `IPV6_RECVHOPLIMIT`: the hop limit of an IPv6 packet.
        const HOPS_V6 = 16;
        /// `IPV6_RECVTCLASS`: the traffic class of an IPv6 packet.
        const CLASS_V6 = 32;
    }
}

/// The properties of a received datagram that control messages return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The address and port of the sender.
    pub from: Endpoint,
    /// The address and port to which the datagram was sent.
    pub to: Endpoint,
    /// The time to live of an IPv4 packet, or the hop limit of an IPv6 packet.
    pub hops: u8,
    /// The type of service of an IPv4 packet, or the traffic class of an IPv6 packet.
    pub class: u8,
}

/// The properties of a datagram that the control messages of its send set. If a property is `None`, the socket's option
/// applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The source address.
    pub source: Option<Ip>,
    /// The time to live, or the hop limit.
    pub hops: Option<u8>,
    /// The type of service, or the traffic class.
    pub class: Option<u8>,
}

impl Chosen {
    /// Returns the hop limit (or time to live) and the traffic class (or type of service) of a datagram to an address
    /// of `family`.
    #[must_use]
    pub fn hops_and_class(&self, family: Family, choices: &Choices) -> (u8, u8) {
        let (hops, class) = choices.hops_and_class(family);
        (self.hops.unwrap_or(hops), self.class.unwrap_or(class))
    }
}

/// Checks the control messages of a send on a stream socket. None of them has an effect (`__sock_cmsg_send` of Linux
/// 7.2, `net/core/sock.c`).
///
/// # Errors
/// `EINVAL` for a malformed message, and for a message of `SOL_SOCKET` whose type is neither `SCM_RIGHTS` nor
/// `SCM_CREDENTIALS`.
pub fn check(control: &[u8]) -> Result<(), Errno> {
    ControlMessages(control).try_for_each(|message| match message? {
        message if message.level == net::SOL_SOCKET => check_general(&message),
        _ => Ok(()),
    })
}

/// Checks a control message of `SOL_SOCKET`.
const fn check_general(message: &ControlMessage<'_>) -> Result<(), Errno> {
    match message.kind {
        RIGHTS | CREDENTIALS => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Returns the properties of a datagram that its control messages set. A socket of family `own` sends the datagram to
/// an address of family `to` (Linux 7.2 `net/ipv4/ip_sockglue.c`, `ip_cmsg_send`; `net/ipv6/datagram.c`,
/// `ip6_datagram_send_ctl`).
///
/// # Errors
/// `EINVAL` for a malformed message, a value out of its range or an IPv6 address that does not belong to this machine,
/// `ENETUNREACH` for an IPv4 address that does not belong to this machine, `ENODEV` for an interface that does not
/// exist.
pub fn chosen(own: Family, to: Family, control: &[u8]) -> Result<Chosen, Errno> {
    let mut chosen = Chosen::default();
    for message in ControlMessages(control) {
        let message = message?;
        match (message.level, to) {
            (net::SOL_SOCKET, _) => check_general(&message)?,
            (level::UDP, _) => return Err(Errno::EINVAL),
            (level::IP, Family::V4) => choose_v4(&message, &mut chosen)?,
            (level::IPV6, Family::V6) => choose_v6(&message, &mut chosen)?,
            (level::IPV6, Family::V4) if own == Family::V6 && message.kind == net::IPV6_PKTINFO => {
                let (ip, interface) = source_v6(message.data)?;
                if let Ip::V6(_) = ip {
                    return Err(Errno::EINVAL);
                }
                check_interface(interface)?;
                choose_source(ip, &mut chosen)?;
            }
            _ => {}
        }
    }
    Ok(chosen)
}

/// Stores in `chosen` the property that a control message of `SOL_IP` sets.
fn choose_v4(message: &ControlMessage<'_>, chosen: &mut Chosen) -> Result<(), Errno> {
    match message.kind {
        net::IP_PKTINFO => {
            let &[a, b, c, d, e, f, g, h, _, _, _, _] =
                <&[u8; INFO_V4]>::try_from(message.data).map_err(|_| Errno::EINVAL)?;
            check_interface(i32::from_le_bytes([a, b, c, d]))?;
            choose_source(Ip::V4([e, f, g, h]), chosen)?;
        }
        net::IP_TTL => chosen.hops = Some(number(message.data, 1)?.ok_or(Errno::EINVAL)?),
        net::IP_TOS => {
            chosen.class = match message.data {
                &[class] => Some(class),
                data => Some(number(data, 0)?.ok_or(Errno::EINVAL)?),
            };
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// Stores in `chosen` the property that a control message of `SOL_IPV6` sets.
fn choose_v6(message: &ControlMessage<'_>, chosen: &mut Chosen) -> Result<(), Errno> {
    match message.kind {
        net::IPV6_PKTINFO => {
            let (ip, interface) = source_v6(message.data)?;
            check_interface(interface)?;
            match ip {
                Ip::V4(_) => return Err(Errno::EINVAL),
                Ip::V6(_) => choose_source(ip, chosen)?,
            }
        }
        net::IPV6_HOPLIMIT => chosen.hops = number(message.data, 0)?,
        // -1 is stored as 255: the number is truncated to a byte.
        net::IPV6_TCLASS => chosen.class = Some(number(message.data, 0)?.unwrap_or(u8::MAX)),
        net::IPV6_DONTFRAG if number(message.data, 0)?.is_some_and(|value| value <= 1) => {}
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// Decodes a number from `least` to 255. Returns `None` for -1, which selects the value of the socket's option.
fn number(data: &[u8], least: i32) -> Result<Option<u8>, Errno> {
    let bytes = <[u8; 4]>::try_from(data).map_err(|_| Errno::EINVAL)?;
    match i32::from_le_bytes(bytes) {
        -1 => Ok(None),
        value if value < least => Err(Errno::EINVAL),
        value => u8::try_from(value).map(Some).map_err(|_| Errno::EINVAL),
    }
}

/// Decodes the address and the interface index in a `struct in6_pktinfo`.
fn source_v6(data: &[u8]) -> Result<(Ip, i32), Errno> {
    let info: &[u8; INFO_V6] = data.first_chunk().ok_or(Errno::EINVAL)?;
    let [ip @ .., a, b, c, d] = *info;
    Ok((Ip::from_v6(ip), i32::from_le_bytes([a, b, c, d])))
}

/// Checks the index of an interface; 0 stands for any interface.
const fn check_interface(number: i32) -> Result<(), Errno> {
    if number == 0 || number as u32 == interface::NUMBER {
        Ok(())
    } else {
        Err(Errno::ENODEV)
    }
}

/// Sets the source address of a datagram to `ip`. For the wildcard address, the socket determines the source address.
fn choose_source(ip: Ip, chosen: &mut Chosen) -> Result<(), Errno> {
    match ip {
        ip if ip.is_here() => {}
        Ip::V4([0 | 224..=239, ..] | [255, 255, 255, 255]) | Ip::V6(_) => {
            return Err(Errno::EINVAL);
        }
        Ip::V4(_) => return Err(Errno::ENETUNREACH),
    }
    chosen.source = Some(ip).filter(|ip| !ip.is_any());
    Ok(())
}

/// Calls `put` with the level, type and data of each control message that `told` selects, with the values in `header`
/// (Linux 7.2 `net/ipv6/datagram.c`, `ip6_datagram_recv_common_ctl`, `ip6_datagram_recv_specific_ctl`;
/// `net/ipv4/ip_sockglue.c`, `ip_cmsg_recv_offset`).
///
/// # Errors
/// The errors of `put`.
pub fn tell(
    told: Told,
    header: &Header,
    mut put: impl FnMut(u32, u32, &[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (hops, class) = (i32::from(header.hops).to_le_bytes(), header.class);
    if told.contains(Told::ADDRESS_V6) {
        let mut info = [0; INFO_V6];
        info[..16].copy_from_slice(&header.to.ip.to_v6());
        info[16..].copy_from_slice(&interface::NUMBER.to_le_bytes());
        put(level::IPV6, net::IPV6_PKTINFO, &info)?;
    }
    match header.to.ip {
        Ip::V4(ip) => {
            if told.contains(Told::ADDRESS_V4) {
                let mut info = [0; INFO_V4];
                info[..4].copy_from_slice(&interface::NUMBER.to_le_bytes());
                info[4..8].copy_from_slice(&ip);
                info[8..].copy_from_slice(&ip);
                put(level::IP, net::IP_PKTINFO, &info)?;
            }
            if told.contains(Told::HOPS_V4) {
                put(level::IP, net::IP_TTL, &hops)?;
            }
            if told.contains(Told::CLASS_V4) {
                put(level::IP, net::IP_TOS, &[class])?;
            }
        }
        Ip::V6(_) => {
            if told.contains(Told::HOPS_V6) {
                put(level::IPV6, net::IPV6_HOPLIMIT, &hops)?;
            }
            if told.contains(Told::CLASS_V6) {
                let class = i32::from(class).to_le_bytes();
                put(level::IPV6, net::IPV6_TCLASS, &class)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};

    fn message(level: u32, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + data.len() as u64).to_le_bytes().to_vec();
        bytes.extend(level.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn info_v6(last: u8, interface: u8) -> [u8; 20] {
        let mut info = [0; 20];
        (info[15], info[16]) = (last, interface);
        info
    }

    #[test]
    fn messages_choose_for_one_datagram() {
        type Row = (Family, Family, u32, u32, Vec<u8>, Result<Chosen, Errno>);
        use Errno as E;
        use Family::{V4, V6};
        use level::{IP, IPV6, UDP};
        use net::*;
        let none = Chosen::default();
        let hops = |hops| Chosen {
            hops: Some(hops),
            ..none
        };
        let class = |class| Chosen {
            class: Some(class),
            ..none
        };
        let from = |ip| Chosen {
            source: Some(ip),
            ..none
        };
        let one = |value: i32| value.to_le_bytes().to_vec();
        let two = Ip::V4([127, 0, 0, 2]);
        let mut mapped = info_v6(2, 1).to_vec();
        mapped[10..13].copy_from_slice(&[0xff, 0xff, 127]);
        #[rustfmt::skip]
        let rows: Vec<Row> = vec![
            (V4, V4, IP, IP_TTL, one(7), Ok(hops(7))),
            (V4, V4, IP, IP_TTL, one(0), Err(E::EINVAL)),
            (V4, V4, IP, IP_TTL, one(-1), Err(E::EINVAL)),
            (V4, V4, IP, IP_TTL, one(256), Err(E::EINVAL)),
            (V4, V4, IP, IP_TTL, vec![7], Err(E::EINVAL)),
            (V4, V4, IP, IP_TOS, vec![7], Ok(class(7))),
            (V4, V4, IP, IP_TOS, one(255), Ok(class(255))),
            (V4, V4, IP, IP_TOS, one(-1), Err(E::EINVAL)),
            (V4, V4, IP, IP_TOS, vec![1, 0], Err(E::EINVAL)),
            (V4, V4, IP, 99, one(1), Err(E::EINVAL)),
            (V4, V4, IPV6, IPV6_HOPLIMIT, one(1), Ok(none)),
            (V4, V4, IP, IP_PKTINFO, vec![1, 0, 0, 0, 127, 0, 0, 2, 9, 9, 9, 9], Ok(from(two))),
            (V4, V4, IP, IP_PKTINFO, vec![0; 12], Ok(none)),
            (V4, V4, IP, IP_PKTINFO, vec![0; 13], Err(E::EINVAL)),
            (V4, V4, IP, IP_PKTINFO, vec![2, 0, 0, 0, 127, 0, 0, 2, 0, 0, 0, 0], Err(E::ENODEV)),
            (V4, V4, IP, IP_PKTINFO, vec![1, 0, 0, 0, 10, 0, 0, 2, 0, 0, 0, 0], Err(E::ENETUNREACH)),
            (V4, V4, IP, IP_PKTINFO, vec![1, 0, 0, 0, 224, 0, 0, 2, 0, 0, 0, 0], Err(E::EINVAL)),
            (V6, V6, IPV6, IPV6_HOPLIMIT, one(0), Ok(hops(0))),
            (V6, V6, IPV6, IPV6_HOPLIMIT, one(-1), Ok(none)),
            (V6, V6, IPV6, IPV6_HOPLIMIT, one(-2), Err(E::EINVAL)),
            (V6, V6, IPV6, IPV6_TCLASS, one(255), Ok(class(255))),
            (V6, V6, IPV6, IPV6_TCLASS, one(-1), Ok(class(255))),
            (V6, V6, IPV6, IPV6_TCLASS, one(-2), Err(E::EINVAL)),
            (V6, V6, IPV6, IPV6_TCLASS, one(256), Err(E::EINVAL)),
            (V6, V6, IPV6, IPV6_TCLASS, vec![1], Err(E::EINVAL)),
            (V6, V6, IPV6, IPV6_DONTFRAG, one(1), Ok(none)),
            (V6, V6, IPV6, IPV6_DONTFRAG, one(2), Err(E::EINVAL)),
            (V6, V6, IPV6, IPV6_PKTINFO, info_v6(1, 1).to_vec(), Ok(from(Ip::LOCAL_V6))),
            (V6, V6, IPV6, IPV6_PKTINFO, info_v6(0, 0).to_vec(), Ok(none)),
            (V6, V6, IPV6, IPV6_PKTINFO, info_v6(2, 1).to_vec(), Err(E::EINVAL)),
            (V6, V6, IPV6, IPV6_PKTINFO, info_v6(1, 2).to_vec(), Err(E::ENODEV)),
            (V6, V6, IPV6, IPV6_PKTINFO, vec![0; 19], Err(E::EINVAL)),
            (V6, V6, IPV6, IPV6_PKTINFO, mapped.clone(), Err(E::EINVAL)),
            (V6, V4, IPV6, IPV6_PKTINFO, mapped, Ok(from(two))),
            (V6, V4, IPV6, IPV6_PKTINFO, info_v6(1, 1).to_vec(), Err(E::EINVAL)),
            (V6, V4, IP, IP_TTL, one(9), Ok(hops(9))),
            (V6, V6, IP, IP_TTL, one(0), Ok(none)),
            (V4, V4, SOL_SOCKET, 1, one(0), Ok(none)),
            (V4, V4, SOL_SOCKET, 99, one(0), Err(E::EINVAL)),
            (V4, V4, UDP, 1, one(0), Err(E::EINVAL)),
            (V4, V4, 77, 1, one(0), Ok(none)),
        ];
        for (own, to, level, kind, data, expected) in rows {
            let bytes = message(level, kind, &data);
            assert_eq!(
                chosen(own, to, &bytes),
                expected,
                "{own:?} {to:?} {level} {kind} {data:?}"
            );
        }
    }

    #[test]
    fn streams_check_general_messages() {
        for (level, kind, expected) in [
            (net::SOL_SOCKET, 1, Ok(())),
            (net::SOL_SOCKET, 99, Err(Errno::EINVAL)),
            (level::IPV6, 99, Ok(())),
        ] {
            assert_eq!(check(&message(level, kind, b"")), expected);
        }
    }

    #[test]
    fn receivers_are_told_what_they_ask() {
        /// The level, the type, and the number of bytes of data of each expected control message.
        type Sizes<'a> = &'a [(u32, u32, usize)];
        let all = Told::all();
        let four = Endpoint {
            ip: Ip::LOCAL_V4,
            port: 1,
        };
        let six = Endpoint {
            ip: Ip::LOCAL_V6,
            port: 1,
        };
        #[rustfmt::skip]
        let rows: [(Told, Endpoint, Sizes<'_>); 6] = [
            (Told::empty(), four, &[]),
            (all, four, &[(41, 50, 20), (0, 8, 12), (0, 2, 4), (0, 1, 1)]),
            (all, six, &[(41, 50, 20), (41, 52, 4), (41, 67, 4)]),
            (Told::HOPS_V4, six, &[]),
            (Told::HOPS_V6, four, &[]),
            (Told::CLASS_V4, four, &[(0, 1, 1)]),
        ];
        for (told, to, expected) in rows {
            let header = Header {
                from: to,
                to,
                hops: 64,
                class: 3,
            };
            let mut seen = Vec::new();
            let told = tell(told, &header, |level, kind, data| {
                seen.push((level, kind, data.len()));
                Ok(())
            });
            assert_eq!((told, &seen[..]), (Ok(()), expected));
        }
    }
}
