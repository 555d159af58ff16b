//! The `ioctl` commands of sockets that return properties of network interfaces. The machine has one interface, the
//! loopback interface.

use crate::user::UserMemory;
use linux_raw_sys::ioctl;
use memwright_linux_abi::errno::Errno;

/// Size in bytes of `struct ifreq`: a name, and an argument or a result (Linux 7.2 `include/uapi/linux/if.h`).
const SIZE: usize = 40;
const NAME: usize = 16;
/// Size in bytes of `struct ifconf`: a size, 4 bytes of padding, and a pointer.
const LIST_SIZE: usize = 16;

/// The name of the loopback interface.
pub const LOOPBACK: &[u8] = b"lo";
/// The index of the loopback interface.
pub const NUMBER: u32 = 1;
/// The IPv4 address of the loopback interface.
pub const LOCAL: [u8; 4] = [127, 0, 0, 1];
/// The prefix length of the IPv4 address in bits.
pub const PREFIX: u8 = 8;
/// The flags `IFF_UP`, `IFF_LOOPBACK`, `IFF_RUNNING` and `IFF_LOWER_UP`. An `ioctl` returns the lower 16 bits.
pub const FLAGS: u32 = 0x1_0049;
/// The maximum transmission unit in bytes (`drivers/net/loopback.c`).
pub const LARGEST_PACKET: u32 = 65_536;
/// The length of the transmit queue in packets (`DEFAULT_TX_QUEUE_LEN`).
pub const QUEUE: u32 = 1_000;
/// The type of the hardware, `ARPHRD_LOOPBACK`.
pub const HARDWARE: u16 = 772;

/// The properties of the interface as bytes in the format of an `ioctl`.
const NUMBER_BYTES: [u8; 4] = NUMBER.to_le_bytes();
const FLAG_BYTES: [u8; 2] = (FLAGS as u16).to_le_bytes();
const PACKET_BYTES: [u8; 4] = LARGEST_PACKET.to_le_bytes();
const QUEUE_BYTES: [u8; 4] = QUEUE.to_le_bytes();
/// The hardware address: the type, and zeros.
const HARDWARE_ADDRESS: [u8; 8] = (HARDWARE as u64).to_le_bytes();

/// Returns an IPv4 address as a `struct sockaddr_in` without a port.
const fn socket_address(address: [u8; 4]) -> [u8; 16] {
    let [a, b, c, d] = address;
    [2, 0, 0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// The result that an `ioctl` command requests.
#[derive(Clone, Copy)]
enum Question {
    /// The name of the interface whose index is in the request.
    Name,
    /// This IPv4 address.
    Address([u8; 4]),
    /// Another property, as these bytes.
    Value(&'static [u8]),
}

/// Whether a socket supports the commands that return IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// The socket supports the commands: it is an IPv4 socket.
    V4,
    /// The socket does not support the commands: it is of another family.
    None,
}

/// Executes an `ioctl` command of a socket that reads properties of interfaces (Linux 7.2 `net/core/dev_ioctl.c`,
/// `net/ipv4/devinet.c`).
///
/// # Errors
/// `ENOTTY` if the socket does not support the command, `ENODEV` if the interface does not exist, `EADDRNOTAVAIL` if
/// the name has an address label, `EFAULT`.
pub fn control(
    memory: UserMemory<'_>,
    addresses: Addresses,
    command: u32,
    argument: u64,
) -> Result<u64, Errno> {
    if command == ioctl::SIOCGIFCONF {
        return list(memory, argument);
    }
    let question = question(addresses, command).ok_or(Errno::ENOTTY)?;
    let mut request = [0; SIZE];
    memory.read_bytes(argument, &mut request)?;
    answer(question, &mut request)?;
    memory.write_bytes(argument, &request)?;
    Ok(0)
}

/// Writes the list of the interfaces with IPv4 addresses, which has one entry. If the caller passes no buffer, writes
/// only the size of the list.
fn list(memory: UserMemory<'_>, argument: u64) -> Result<u64, Errno> {
    let mut head = [0; LIST_SIZE];
    memory.read_bytes(argument, &mut head)?;
    let [a, b, c, d, _, _, _, _, at @ ..] = head;
    let room = i32::from_le_bytes([a, b, c, d]);
    let at = u64::from_le_bytes(at);
    let fits = at == 0 || room >= SIZE as i32;
    if fits && at != 0 {
        let mut request = [0; SIZE];
        put(&mut request, LOOPBACK);
        answer(Question::Address(LOCAL), &mut request)?;
        memory.write_bytes(at, &request)?;
    }
    let size = if fits { SIZE as u32 } else { 0 };
    memory.write_value(argument, &size).map(|()| 0)
}

/// Returns the result that `command` requests; `None` if the socket does not support the command.
const fn question(addresses: Addresses, command: u32) -> Option<Question> {
    let question = match command {
        ioctl::SIOCGIFNAME => Question::Name,
        ioctl::SIOCGIFADDR | ioctl::SIOCGIFDSTADDR => Question::Address(LOCAL),
        ioctl::SIOCGIFBRDADDR => Question::Address([0; 4]),
        ioctl::SIOCGIFNETMASK => Question::Address([255, 0, 0, 0]),
        ioctl::SIOCGIFFLAGS => Question::Value(&FLAG_BYTES),
        ioctl::SIOCGIFMTU => Question::Value(&PACKET_BYTES),
        ioctl::SIOCGIFINDEX => Question::Value(&NUMBER_BYTES),
        ioctl::SIOCGIFTXQLEN => Question::Value(&QUEUE_BYTES),
        ioctl::SIOCGIFHWADDR => Question::Value(&HARDWARE_ADDRESS),
        ioctl::SIOCGIFMETRIC => Question::Value(&[0; 4]),
        // The memory map of the device, which is all zeros.
        ioctl::SIOCGIFMAP => Question::Value(&[0; 21]),
        _ => return None,
    };
    match (question, addresses) {
        (Question::Address(_), Addresses::None) => None,
        (question, _) => Some(question),
    }
}

/// Stores the result of a command in its `struct ifreq`.
fn answer(question: Question, request: &mut [u8; SIZE]) -> Result<(), Errno> {
    let (name, value) = request.split_at_mut(NAME);
    match question {
        Question::Name if value[..4] != NUMBER_BYTES => return Err(Errno::ENODEV),
        Question::Name => {
            name.fill(0);
            put(name, LOOPBACK);
        }
        Question::Address(_) if is_labelled(name)? => return Err(Errno::EADDRNOTAVAIL),
        Question::Address(address) => put(value, &socket_address(address)),
        Question::Value(bytes) => {
            is_labelled(name)?;
            put(value, bytes);
        }
    }
    Ok(())
}

/// Copies `bytes` to the beginning of `place`.
fn put(place: &mut [u8], bytes: &[u8]) {
    place[..bytes.len()].copy_from_slice(bytes);
}

/// Checks that `name` is that of the interface. Returns whether a colon and an address label follow it. The address of
/// the loopback interface has no label.
fn is_labelled(name: &mut [u8]) -> Result<bool, Errno> {
    name[NAME - 1] = 0;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut parts = name.splitn(2, |byte| *byte == b':');
    if parts.next() != Some(LOOPBACK) {
        return Err(Errno::ENODEV);
    }
    Ok(parts.next().is_some())
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
            let question = question(Addresses::V4, command).unwrap();
            let answered = answer(question, &mut request);
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
        assert_eq!(answer(Question::Name, &mut request), Ok(()));
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
            assert_eq!(question(addresses, command).is_some(), known);
        }
    }
}
