//! Slot numbers: the encoding of a device and an offset on it.

/// The number of low bits that select the device in a slot number, as in `/proc/PID/pagemap`.
const DEVICE_BITS: u32 = 5;

/// The maximum number of devices.
pub const MOST_DEVICES: usize = 1 << DEVICE_BITS;

/// A slot, identified by its device and its offset on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The number of the device.
    pub device: usize,
    /// The number of the slot on the device.
    pub offset: u32,
}

impl Place {
    /// Decodes the slot number `slot`, as swap entries store it.
    #[must_use]
    pub const fn of(slot: u64) -> Self {
        Self {
            device: (slot & (MOST_DEVICES as u64 - 1)) as usize,
            offset: (slot >> DEVICE_BITS) as u32,
        }
    }

    /// Returns the place of the slot `count` slots further on the same device.
    #[must_use]
    pub const fn after(self, count: u32) -> Self {
        Self {
            offset: self.offset.wrapping_add(count),
            ..self
        }
    }

    /// Encodes the place as the slot number that swap entries store.
    #[must_use]
    pub const fn slot(self) -> u64 {
        (self.offset as u64) << DEVICE_BITS | self.device as u64
    }
}
