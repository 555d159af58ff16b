//! What programs ask about the interfaces of the machine, of which there is one, the loopback interface.

use crate::{errno::Errno, user::UserMemory};
use linux_raw_sys::ioctl;

/// Size in bytes of `struct ifreq`: a name, and an argument or a result (Linux 7.2 `include/uapi/linux/if.h`).
const SIZE: usize = 40;
const NAME: usize = 16;
/// Size in bytes of `struct ifconf`, and the offset of the pointer in it.
const LIST_SIZE: usize = 16;
const LIST_AT: usize = 8;

/// The name and the number of the interface.
const LOOPBACK: &[u8] = b"lo";
const NUMBER: u32 = 1;
/// `IFF_UP`, `IFF_LOOPBACK` and `IFF_RUNNING`.
const FLAGS: u16 = 0x49;
/// The largest packet in bytes (`drivers/net/loopback.c`).
const LARGEST_PACKET: u32 = 65_536;
/// The number of packets that wait before some are dropped (`DEFAULT_TX_QUEUE_LEN`).
const QUEUE: u32 = 1_000;
/// The type of its hardware addresses (`ARPHRD_LOOPBACK`).
const HARDWARE: u16 = 772;

/// An IPv4 address as a `struct sockaddr_in` without a port.
const fn socket_address(address: [u8; 4]) -> [u8; 16] {
    let [a, b, c, d] = address;
    [2, 0, 0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Whether a socket can ask for IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// It is an IPv4 socket.
    V4,
    /// It is another socket.
    None,
}

/// Handles an `ioctl` of a socket that asks about interfaces (Linux 7.2 `net/core/dev_ioctl.c`, `net/ipv4/devinet.c`).
///
/// # Errors
/// `ENOTTY` if the socket has no such command, `ENODEV` if there is no such interface, `EADDRNOTAVAIL` if it has no such
/// address, `EFAULT`.
pub fn control(
    memory: UserMemory<'_>,
    addresses: Addresses,
    command: u32,
    argument: u64,
) -> Result<u64, Errno> {
    if command == ioctl::SIOCGIFCONF {
        return list(memory, argument);
    }
    let mut request = [0; SIZE];
    if !is_known(addresses, command) {
        return Err(Errno::ENOTTY);
    }
    memory.read_bytes(argument, &mut request)?;
    answer(command, &mut request)?;
    memory.write_bytes(argument, &request)?;
    Ok(0)
}

/// Writes the list of interfaces with IPv4 addresses, of which there is one, or its size if the caller passes no buffer.
fn list(memory: UserMemory<'_>, argument: u64) -> Result<u64, Errno> {
    let mut head = [0; LIST_SIZE];
    memory.read_bytes(argument, &mut head)?;
    let [a, b, c, d, ..] = head;
    let room = i32::from_le_bytes([a, b, c, d]);
    let at: u64 = memory.read_value(argument + LIST_AT as u64)?;
    let fits = at == 0 || room >= SIZE as i32;
    if fits && at != 0 {
        let mut request = [0; SIZE];
        request[..LOOPBACK.len()].copy_from_slice(LOOPBACK);
        answer(ioctl::SIOCGIFADDR, &mut request)?;
        memory.write_bytes(at, &request)?;
    }
    let size = if fits { SIZE as u32 } else { 0 };
    memory.write_value(argument, &size).map(|()| 0)
}

const fn is_known(addresses: Addresses, command: u32) -> bool {
    match command {
        ioctl::SIOCGIFADDR
        | ioctl::SIOCGIFDSTADDR
        | ioctl::SIOCGIFBRDADDR
        | ioctl::SIOCGIFNETMASK => matches!(addresses, Addresses::V4),
        ioctl::SIOCGIFNAME
        | ioctl::SIOCGIFFLAGS
        | ioctl::SIOCGIFMETRIC
        | ioctl::SIOCGIFMTU
        | ioctl::SIOCGIFHWADDR
        | ioctl::SIOCGIFINDEX
        | ioctl::SIOCGIFTXQLEN
        | ioctl::SIOCGIFMAP => true,
        _ => false,
    }
}

/// Replaces the argument of a request, which `is_known`, by its answer.
fn answer(command: u32, request: &mut [u8; SIZE]) -> Result<(), Errno> {
    let (name, value) = request.split_at_mut(NAME);
    if command == ioctl::SIOCGIFNAME {
        if value[..4] != NUMBER.to_le_bytes() {
            return Err(Errno::ENODEV);
        }
        name.fill(0);
        name[..LOOPBACK.len()].copy_from_slice(LOOPBACK);
        return Ok(());
    }
    name[NAME - 1] = 0;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    // A label of an address follows a colon. No address has one.
    let mut parts = name.splitn(2, |byte| *byte == b':');
    if parts.next() != Some(LOOPBACK) {
        return Err(Errno::ENODEV);
    }
    let labelled = parts.next().is_some();
    let mut put = |bytes: &[u8]| value[..bytes.len()].copy_from_slice(bytes);
    let address = match command {
        ioctl::SIOCGIFADDR | ioctl::SIOCGIFDSTADDR => [127, 0, 0, 1],
        ioctl::SIOCGIFBRDADDR => [0; 4],
        ioctl::SIOCGIFNETMASK => [255, 0, 0, 0],
        _ => {
            match command {
                ioctl::SIOCGIFFLAGS => put(&FLAGS.to_le_bytes()),
                ioctl::SIOCGIFMTU => put(&LARGEST_PACKET.to_le_bytes()),
                ioctl::SIOCGIFINDEX => put(&NUMBER.to_le_bytes()),
                ioctl::SIOCGIFTXQLEN => put(&QUEUE.to_le_bytes()),
                ioctl::SIOCGIFHWADDR => {
                    put(&[0; 8]);
                    put(&HARDWARE.to_le_bytes());
                }
                // The metric, and the map of the memory of a device.
                ioctl::SIOCGIFMETRIC => put(&[0; 4]),
                _ => put(&[0; 21]),
            }
            return Ok(());
        }
    };
    if labelled {
        return Err(Errno::EADDRNOTAVAIL);
    }
    put(&socket_address(address));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioctl::*;

    #[test]
    fn requests_are_answered_as_by_linux() {
        type Answer<'a> = Result<&'a [u8], Errno>;
        const NO_DEVICE: Answer<'_> = Err(Errno::ENODEV);
        let local = socket_address([127, 0, 0, 1]);
        #[rustfmt::skip]
        let rows: [(u32, &[u8], Answer<'_>); 14] = [
            (SIOCGIFFLAGS,   b"lo",      Ok(&[0x49, 0])),
            (SIOCGIFFLAGS,   b"lo\0z",   Ok(&[0x49, 0])),
            (SIOCGIFFLAGS,   b"lo:1",    Ok(&[0x49, 0])),
            (SIOCGIFFLAGS,   b"",        NO_DEVICE),
            (SIOCGIFFLAGS,   b"eth0",    NO_DEVICE),
            (SIOCGIFFLAGS,   &[b'l'; 16], NO_DEVICE),
            (SIOCGIFADDR,    b"lo",      Ok(&local)),
            (SIOCGIFADDR,    b"lo:1",    Err(Errno::EADDRNOTAVAIL)),
            (SIOCGIFNETMASK, b"lo",      Ok(&socket_address([255, 0, 0, 0]))),
            (SIOCGIFMTU,     b"lo",      Ok(&[0, 0, 1, 0])),
            (SIOCGIFINDEX,   b"lo",      Ok(&[1, 0, 0, 0])),
            (SIOCGIFHWADDR,  b"lo",      Ok(&[4, 3, 0, 0, 0, 0, 0, 0])),
            (SIOCGIFMAP,     b"lo",      Ok(&[0; 21])),
            (SIOCGIFNAME,    b"",        NO_DEVICE),
        ];
        for (command, name, expected) in rows {
            let mut request = [0xee; SIZE];
            request[..NAME].fill(0);
            request[..name.len()].copy_from_slice(name);
            let answered = answer(command, &mut request);
            assert_eq!(answered, expected.map(|_| ()), "{command:x} {name:?}");
            let value = expected.unwrap_or_default();
            let (changed, rest) = request[NAME..].split_at(value.len());
            assert_eq!(changed, value, "{command:x} {name:?}");
            assert!(
                rest.iter().all(|byte| *byte == 0xee),
                "{command:x} {name:?}"
            );
        }
    }

    #[test]
    fn a_number_has_a_name() {
        let mut request = [0; SIZE];
        request[NAME] = 1;
        assert_eq!(answer(SIOCGIFNAME, &mut request), Ok(()));
        assert_eq!(&request[..3], b"lo\0");
    }

    #[test]
    fn only_ipv4_sockets_ask_for_addresses() {
        for (addresses, command, known) in [
            (Addresses::V4, SIOCGIFADDR, true),
            (Addresses::None, SIOCGIFADDR, false),
            (Addresses::None, SIOCGIFINDEX, true),
            (Addresses::V4, SIOCGIFCOUNT, false),
        ] {
            assert_eq!(is_known(addresses, command), known);
        }
    }
}
