//! Devices on the first PCI bus, accessed through configuration ports.

use crate::arch;

const CONFIG_ADDRESS: u16 = 0xcf8;
const CONFIG_DATA: u16 = 0xcfc;

/// The register with the vendor ID and the device ID.
const IDENTITY: u8 = 0;
/// The command register.
const COMMAND: u8 = 4;
/// The first base address register.
const ADDRESS: u8 = 0x10;
/// The type bits of a base address register that contains a memory address.
const MEMORY_KIND: u64 = 0xf;
/// The type bits of a base address register that contains a port.
const PORT_KIND: u32 = 3;

/// The bit of the command register that makes the device respond at its ports.
pub const PORTS: u32 = 1 << 0;
/// The bit of the command register that makes the device respond at its memory.
pub const MEMORY: u32 = 1 << 1;
/// The bit of the command register that permits the device to access memory (bus master).
pub const MASTER: u32 = 1 << 2;

/// A device. Only the boot processor accesses its configuration.
#[derive(Clone, Copy)]
pub struct Device {
    slot: u8,
}

impl Device {
    /// Returns the device in `slot` if it has `identity`, which contains the vendor ID in the lower half and the device
    /// ID in the upper half.
    pub fn find(slot: u8, identity: u32) -> Option<Self> {
        let device = Self { slot };
        (device.read(IDENTITY) == identity).then_some(device)
    }

    fn choose(self, register: u8) {
        let place = 1 << 31 | u32::from(self.slot) << 11 | u32::from(register);
        // SAFETY: selecting a register has no other effect, and only the boot processor selects one.
        unsafe { arch::write_port_word(CONFIG_ADDRESS, place) };
    }

    fn read(self, register: u8) -> u32 {
        self.choose(register);
        // SAFETY: reading these registers has no effect on the device.
        unsafe { arch::read_port_word(CONFIG_DATA) }
    }

    /// Sets the bits `what` of the command register.
    pub fn enable(self, what: u32) {
        let command = self.read(COMMAND);
        self.choose(COMMAND);
        // SAFETY: the device then responds at the addresses that the firmware has set, and accesses memory at its
        // driver's request.
        unsafe { arch::write_port_word(CONFIG_DATA, command | what) };
    }

    /// Returns the physical address in the 64-bit base address register with the number `number`.
    pub fn memory(self, number: u8) -> u64 {
        let register = ADDRESS + 4 * number;
        let (low, high) = (self.read(register), self.read(register + 4));
        (u64::from(high) << 32 | u64::from(low)) & !MEMORY_KIND
    }

    /// Returns the first port in the base address register with the number `number`.
    pub fn ports(self, number: u8) -> u16 {
        (self.read(ADDRESS + 4 * number) & !PORT_KIND) as u16
    }
}
