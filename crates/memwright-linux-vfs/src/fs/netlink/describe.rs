//! Writes the messages that describe the loopback interface, its addresses and its routes.

use crate::fs::{
    inet::{Family, Ip},
    interface,
    netlink::{
        route::Families,
        writer::{Return, Writer},
    },
};
use memwright_table::OutOfMemory;

/// The types of the messages (`RTM_NEWLINK`, `RTM_NEWADDR`, `RTM_NEWROUTE`).
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;

/// `RT_SCOPE_HOST` and `RT_SCOPE_LINK`.
const SCOPE_OF_HOST: u8 = 254;
const SCOPE_OF_LINK: u8 = 253;
/// `IFA_F_PERMANENT`.
const PERMANENT: u8 = 0x80;
/// The lifetime of an address that does not expire, in seconds.
const FOREVER: [u8; 4] = [0xff; 4];

/// Types of attributes in the description of an interface (`linux/if_link.h`).
mod link {
    pub const ADDRESS: u16 = 1;
    pub const BROADCAST: u16 = 2;
    pub const NAME: u16 = 3;
    pub const LARGEST_PACKET: u16 = 4;
    pub const DISCIPLINE: u16 = 6;
    pub const QUEUE: u16 = 13;
    pub const STATE: u16 = 16;
    pub const MODE: u16 = 17;
    pub const GROUP: u16 = 27;
    pub const PROMISCUITY: u16 = 30;
    pub const SEND_QUEUES: u16 = 31;
    pub const RECEIVE_QUEUES: u16 = 32;
    pub const CARRIER: u16 = 33;
}

/// Types of attributes in the description of an address (`linux/if_addr.h`).
mod address {
    pub const ADDRESS: u16 = 1;
    pub const LOCAL: u16 = 2;
    pub const LABEL: u16 = 3;
    pub const TIMES: u16 = 6;
    pub const FLAGS: u16 = 8;
    pub const ORIGIN: u16 = 11;
}

/// Types of attributes in the description of a route (`linux/rtnetlink.h`).
mod route {
    pub const DESTINATION: u16 = 1;
    pub const INTERFACE: u16 = 4;
    pub const PRIORITY: u16 = 6;
    pub const SOURCE: u16 = 7;
    pub const TABLE: u16 = 15;
    pub const PREFERENCE: u16 = 20;
}

/// Writes the description of the interface (Linux 7.2 `net/core/rtnetlink.c`, `rtnl_fill_ifinfo`). Omits the statistics
/// and the attributes about offloading, other namespaces and the configuration of protocols.
///
/// # Errors
/// `OutOfMemory`.
pub fn link(writer: &mut Writer, flags: u16, to: Return) -> Result<(), OutOfMemory> {
    let mut head = [0; 16];
    head[2..4].copy_from_slice(&interface::HARDWARE.to_le_bytes());
    head[4..8].copy_from_slice(&interface::NUMBER.to_le_bytes());
    head[8..12].copy_from_slice(&interface::FLAGS.to_le_bytes());
    writer.begin((NEW_LINK, flags), to, &head)?;
    writer.string(link::NAME, interface::LOOPBACK)?;
    writer.number(link::QUEUE, interface::QUEUE)?;
    // The operational state is `IF_OPER_UNKNOWN` and the link mode is 0, as for the loopback interface of Linux.
    writer.attribute(link::STATE, &[0])?;
    writer.attribute(link::MODE, &[0])?;
    writer.number(link::LARGEST_PACKET, interface::LARGEST_PACKET)?;
    writer.number(link::GROUP, 0)?;
    writer.number(link::PROMISCUITY, 0)?;
    writer.number(link::SEND_QUEUES, 1)?;
    writer.number(link::RECEIVE_QUEUES, 1)?;
    writer.attribute(link::CARRIER, &[1])?;
    writer.attribute(link::ADDRESS, &[0; 6])?;
    writer.attribute(link::BROADCAST, &[0; 6])?;
    writer.string(link::DISCIPLINE, b"noqueue")
}

/// Writes the addresses of the interface (`inet_fill_ifaddr` of Linux 7.2, `net/ipv4/devinet.c`; `inet6_fill_ifaddr`,
/// `net/ipv6/addrconf.c`). The timestamps of the addresses are those of the boot.
///
/// # Errors
/// `OutOfMemory`.
pub fn addresses(
    writer: &mut Writer,
    families: Families,
    flags: u16,
    to: Return,
) -> Result<(), OutOfMemory> {
    let head = |family: Family, prefix| {
        let [a, b, c, d] = interface::NUMBER.to_le_bytes();
        let family = family.number() as u8;
        [family, prefix, PERMANENT, SCOPE_OF_HOST, a, b, c, d]
    };
    let mut times = [0; 16];
    times[..4].copy_from_slice(&FOREVER);
    times[4..8].copy_from_slice(&FOREVER);
    if families.contains(Family::V4) {
        let head = head(Family::V4, interface::PREFIX);
        writer.begin((NEW_ADDRESS, flags), to, &head)?;
        writer.attribute(address::ADDRESS, &interface::LOCAL)?;
        writer.attribute(address::LOCAL, &interface::LOCAL)?;
        writer.string(address::LABEL, interface::LOOPBACK)?;
        writer.number(address::FLAGS, PERMANENT.into())?;
        writer.attribute(address::TIMES, &times)?;
    }
    if families.contains(Family::V6) {
        let head = head(Family::V6, 128);
        writer.begin((NEW_ADDRESS, flags), to, &head)?;
        writer.attribute(address::ADDRESS, &Ip::LOCAL_V6.to_v6())?;
        writer.attribute(address::TIMES, &times)?;
        writer.number(address::FLAGS, PERMANENT.into())?;
        // The kernel assigned the address to the loopback interface (`IFAPROT_KERNEL_LO`).
        writer.attribute(address::ORIGIN, &[1])?;
    }
    Ok(())
}

/// A route of the loopback interface.
struct Route {
    destination: Ip,
    prefix: u8,
    scope: u8,
    /// The `RTN_` type: 2 for an address of this machine, 3 for a broadcast.
    kind: u8,
}

/// The routes of the interface, in the order in which Linux lists them.
const ROUTES: [Route; 4] = [
    Route {
        destination: Ip::V4([127, 0, 0, 0]),
        prefix: 8,
        scope: SCOPE_OF_HOST,
        kind: 2,
    },
    Route {
        destination: Ip::LOCAL_V4,
        prefix: 32,
        scope: SCOPE_OF_HOST,
        kind: 2,
    },
    Route {
        destination: Ip::V4([127, 255, 255, 255]),
        prefix: 32,
        scope: SCOPE_OF_LINK,
        kind: 3,
    },
    Route {
        destination: Ip::LOCAL_V6,
        prefix: 128,
        scope: 0,
        kind: 2,
    },
];

/// Writes the routes of the interface, which are in the table of local addresses (`fib_dump_info` of Linux 7.2,
/// `net/ipv4/fib_semantics.c`; `rt6_fill_node`, `net/ipv6/route.c`).
///
/// # Errors
/// `OutOfMemory`.
pub fn routes(
    writer: &mut Writer,
    families: Families,
    flags: u16,
    to: Return,
) -> Result<(), OutOfMemory> {
    /// `RT_TABLE_LOCAL` and `RTPROT_KERNEL`.
    const TABLE: u8 = 255;
    const BY_KERNEL: u8 = 2;
    for route in ROUTES {
        let family = route.destination.family();
        if !families.contains(family) {
            continue;
        }
        let number = family.number() as u8;
        let (prefix, scope, kind) = (route.prefix, route.scope, route.kind);
        let head = [
            number, prefix, 0, 0, TABLE, BY_KERNEL, scope, kind, 0, 0, 0, 0,
        ];
        writer.begin((NEW_ROUTE, flags), to, &head)?;
        writer.number(route::TABLE, TABLE.into())?;
        match route.destination {
            Ip::V4(bytes) => {
                writer.attribute(route::DESTINATION, &bytes)?;
                writer.attribute(route::SOURCE, &interface::LOCAL)?;
                writer.number(route::INTERFACE, interface::NUMBER)?;
            }
            Ip::V6(bytes) => {
                writer.attribute(route::DESTINATION, &bytes)?;
                writer.number(route::PRIORITY, 0)?;
                writer.number(route::INTERFACE, interface::NUMBER)?;
                writer.attribute(route::PREFERENCE, &[0])?;
            }
        }
    }
    Ok(())
}
