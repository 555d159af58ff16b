//! Devices of the first PCI bus, by the ports of its configuration space.

use crate::arch;

const CONFIG_ADDRESS: u16 = 0xcf8;
const CONFIG_DATA: u16 = 0xcfc;

/// Vendor and device.
const IDENTITY: u8 = 0;
/// What the device does on the bus.
const COMMAND: u8 = 4;
/// The first address register.
const ADDRESS: u8 = 0x10;
/// The bits of an address register for memory that are no address.
const MEMORY_KIND: u64 = 0xf;
/// The bits of an address register for ports that are no address.
const PORT_KIND: u32 = 3;

/// In the command register: the device answers at its ports.
pub const PORTS: u32 = 1 << 0;
/// In the command register: the device answers for its memory.
pub const MEMORY: u32 = 1 << 1;
/// In the command register: the device reads and writes memory by itself.
pub const MASTER: u32 = 1 << 2;

/// A device. Only the boot processor uses it.
#[derive(Clone, Copy)]
pub struct Device {
    slot: u8,
}

impl Device {
    /// The device with this number, if it is of this kind: vendor in the lower half, device in the upper one.
    pub fn find(slot: u8, identity: u32) -> Option<Self> {
        let device = Self { slot };
        (device.read(IDENTITY) == identity).then_some(device)
    }

    fn choose(self, register: u8) {
        let place = 1 << 31 | u32::from(self.slot) << 11 | u32::from(register);
        // SAFETY: choosing a register has no other effect, and only the boot processor does it.
        unsafe { arch::write_port_word(CONFIG_ADDRESS, place) };
    }

    fn read(self, register: u8) -> u32 {
        self.choose(register);
        // SAFETY: reading these registers has no effect on the device.
        unsafe { arch::read_port_word(CONFIG_DATA) }
    }

    /// Turns on what the bits of the command register say.
    pub fn enable(self, what: u32) {
        let command = self.read(COMMAND);
        self.choose(COMMAND);
        // SAFETY: the device then answers where the firmware has put it, and uses memory as its driver says.
        unsafe { arch::write_port_word(CONFIG_DATA, command | what) };
    }

    /// Its memory by the 64-bit address register with this number.
    pub fn memory(self, number: u8) -> u64 {
        let register = ADDRESS + 4 * number;
        let (low, high) = (self.read(register), self.read(register + 4));
        (u64::from(high) << 32 | u64::from(low)) & !MEMORY_KIND
    }

    /// The first of its ports by the address register with this number.
    pub fn ports(self, number: u8) -> u16 {
        (self.read(ADDRESS + 4 * number) & !PORT_KIND) as u16
    }
}
