//! Determines the reply to a request of `NETLINK_ROUTE`.

use crate::fs::{inet::Family, interface, netlink::request::Request};
use memwright_linux_abi::errno::Errno;

/// Messages of types below this one control netlink itself (`NLMSG_MIN_TYPE`).
const FIRST_TYPE: u16 = 16;
/// The largest message type (`RTM_MAX` of Linux 7.2, `include/uapi/linux/rtnetlink.h`).
const LAST_TYPE: u16 = 123;
/// The types of the requests for interfaces, addresses and routes.
const GET_LINK: u16 = 18;
const GET_ADDRESS: u16 = 22;
const GET_ROUTE: u16 = 26;
/// `NLM_F_REQUEST`, and `NLM_F_DUMP`. A request with any bit of `NLM_F_DUMP` is a dump.
const IS_REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
/// `AF_BRIDGE`.
const BRIDGE: u8 = 7;
/// Size in bytes of `struct ifinfomsg`, and the offset of the interface index in it.
const LINK_HEAD: usize = 16;
const LINK_NUMBER: usize = 4;
/// The attributes `IFLA_IFNAME` and `IFLA_ALT_IFNAME`, and the smallest length in bytes that is too long for a name.
const NAME: u16 = 3;
const OTHER_NAME: u16 = 53;
const NAME_SIZE: usize = 16;

/// The address families whose entries a dump lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// One family.
    One(Family),
    /// All families.
    All,
}

impl Families {
    /// Returns the families that the `AF_` number in a request selects. A number that is not that of an internet family
    /// selects all families.
    const fn of(number: u8) -> Self {
        match Family::from_number(number as u32) {
            Some(family) => Self::One(family),
            None => Self::All,
        }
    }

    /// Returns whether `family` is selected.
    #[must_use]
    pub fn contains(self, family: Family) -> bool {
        match self {
            Self::One(one) => one == family,
            Self::All => true,
        }
    }
}

/// What the reply to a dump request lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// Interfaces.
    Links,
    /// Addresses.
    Addresses(Families),
    /// Routes.
    Routes(Families),
    /// Nothing.
    Nothing,
}

/// The reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No reply except an acknowledgement, if the program requests one.
    Nothing,
    /// The description of the interface.
    Link,
    /// The entries of a dump and its end, without an acknowledgement.
    Dump(Dump),
}

/// Returns the reply to a request (Linux 7.2 `net/core/rtnetlink.c`, `rtnetlink_rcv_msg`, `rtnl_getlink`;
/// `net/netlink/af_netlink.c`, `netlink_rcv_skb`). `privileged` is true if the program is allowed to change the
/// configuration.
///
/// # Errors
/// `EPERM` for a change without privileges, `EOPNOTSUPP` for any other change and for an unknown type, `ENODEV` if the
/// interface does not exist, `EINVAL` if the request names no interface, `ERANGE` if a name is too long.
pub fn answer(request: &Request<'_>, privileged: bool) -> Result<Answer, Errno> {
    if request.flags & IS_REQUEST == 0 || request.kind < FIRST_TYPE {
        return Ok(Answer::Nothing);
    }
    if request.kind > LAST_TYPE {
        return Err(Errno::EOPNOTSUPP);
    }
    let Some(&family) = request.body().first() else {
        return Ok(Answer::Nothing);
    };
    // The types are in groups of four: new, delete, get, set.
    let gets = request.kind & 3 == 2;
    if !gets && !privileged {
        return Err(Errno::EPERM);
    }
    let dumps = gets && request.flags & DUMP != 0;
    match (request.kind, dumps) {
        (GET_LINK, false) => one_link(request).map(|()| Answer::Link),
        (GET_LINK, true) if family == BRIDGE => Ok(Answer::Dump(Dump::Nothing)),
        (GET_LINK, true) => Ok(Answer::Dump(Dump::Links)),
        (GET_ADDRESS, true) => Ok(Answer::Dump(Dump::Addresses(Families::of(family)))),
        (GET_ROUTE, true) => Ok(Answer::Dump(Dump::Routes(Families::of(family)))),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Checks that a request selects the loopback interface, by its index or its name.
fn one_link(request: &Request<'_>) -> Result<(), Errno> {
    let head: &[u8; LINK_HEAD] = request.body().first_chunk().ok_or(Errno::EINVAL)?;
    let name = |kind| match request.attribute(LINK_HEAD, kind) {
        Some(name) => {
            let end = name.iter().position(|byte| *byte == 0);
            let name = &name[..end.unwrap_or(name.len())];
            if name.len() < NAME_SIZE {
                Ok(Some(name))
            } else {
                Err(Errno::ERANGE)
            }
        }
        None => Ok(None),
    };
    let (name, other) = (name(NAME)?, name(OTHER_NAME)?);
    let [a, b, c, d] = [0, 1, 2, 3].map(|index| head[LINK_NUMBER + index]);
    let number = i32::from_le_bytes([a, b, c, d]);
    let found = match (number, name.or(other)) {
        (1.., _) => number as u32 == interface::NUMBER,
        (_, Some(name)) => name == interface::LOOPBACK,
        (_, None) => return Err(Errno::EINVAL),
    };
    if found { Ok(()) } else { Err(Errno::ENODEV) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::netlink::request::Requests;
    use alloc::vec::Vec;

    fn link(number: i32, attributes: &[u8]) -> Vec<u8> {
        let mut body = [0; LINK_HEAD].to_vec();
        body[4..8].copy_from_slice(&number.to_le_bytes());
        body.extend(attributes);
        body
    }

    #[test]
    fn requests_have_answers() {
        use Errno as E;
        type Row = (u16, u16, Vec<u8>, bool, Result<Answer, Errno>);
        const NOTHING: Result<Answer, Errno> = Ok(Answer::Nothing);
        let dump = |dump| Ok(Answer::Dump(dump));
        let lo = b"\x07\0\x03\0lo\0\0";
        let long = [b"\x18\0\x03\0", &[b'l'; 20][..]].concat();
        #[rustfmt::skip]
        let rows: Vec<Row> = Vec::from([
            (18, 0x301, link(0, b""), false, dump(Dump::Links)),
            (18, 0x101, [0].to_vec(), false, dump(Dump::Links)),
            (18, 0x301, [BRIDGE].to_vec(), false, dump(Dump::Nothing)),
            (22, 0x301, [0].to_vec(), false, dump(Dump::Addresses(Families::All))),
            (22, 0x301, [2].to_vec(), false, dump(Dump::Addresses(Families::One(Family::V4)))),
            (22, 0x301, [17].to_vec(), false, dump(Dump::Addresses(Families::All))),
            (26, 0x301, [10].to_vec(), false, dump(Dump::Routes(Families::One(Family::V6)))),
            (18, 1, link(1, b""), false, Ok(Answer::Link)),
            (18, 1, link(2, b""), false, Err(E::ENODEV)),
            (18, 1, link(2, lo), false, Err(E::ENODEV)),
            (18, 1, link(0, lo), false, Ok(Answer::Link)),
            (18, 1, link(-1, lo), false, Ok(Answer::Link)),
            (18, 1, link(0, b"\x07\0\x35\0lo\0\0"), false, Ok(Answer::Link)),
            (18, 1, link(0, b"\x07\0\x03\0eth\0"), false, Err(E::ENODEV)),
            (18, 1, link(0, &long), false, Err(E::ERANGE)),
            (18, 1, link(0, b""), false, Err(E::EINVAL)),
            (18, 1, [0; 15].to_vec(), false, Err(E::EINVAL)),
            (18, 1, Vec::new(), false, NOTHING),
            (18, 0, link(0, b""), false, NOTHING),
            (5, 5, b"abcd".to_vec(), false, NOTHING),
            (16, 5, link(1, b""), false, Err(E::EPERM)),
            (16, 5, link(1, b""), true, Err(E::EOPNOTSUPP)),
            (16, 0x301, link(1, b""), false, Err(E::EPERM)),
            (19, 1, link(1, b""), false, Err(E::EPERM)),
            (22, 1, [2].to_vec(), false, Err(E::EOPNOTSUPP)),
            (124, 1, [0].to_vec(), false, Err(E::EOPNOTSUPP)),
            (u16::MAX, 1, Vec::new(), false, Err(E::EOPNOTSUPP)),
        ]);
        for (kind, flags, body, privileged, expected) in rows {
            let mut bytes = (16 + body.len() as u32).to_le_bytes().to_vec();
            bytes.extend(kind.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend([0; 8]);
            bytes.extend(&body);
            let request = Requests(&bytes).next().unwrap();
            assert_eq!(
                answer(&request, privileged),
                expected,
                "{kind} {flags:x} {body:?}"
            );
        }
    }
}
