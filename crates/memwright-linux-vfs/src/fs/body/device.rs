//! Character devices.

use crate::fs::{attributes::DeviceNumber, body::console::CONSOLE_DEVICE};

/// A character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Discards writes; reads return end of file.
    Null,
    /// Discards writes; reads return zeroes.
    Zero,
    /// Writes fail with `ENOSPC`; reads return zeroes.
    Full,
    /// Reads return random bytes.
    Random,
    /// Reads return random bytes.
    Urandom,
    /// Creates userfaultfds.
    Userfaultfd,
    /// The kernel log, behind the device number of `/dev/console`.
    Console,
    /// `/dev/tty`, the controlling terminal of the calling process.
    Terminal,
    /// A device without a driver, for which `mknod` created a node.
    Unknown(DeviceNumber),
}

impl Device {
    /// Returns the device number (`Documentation/admin-guide/devices.txt` of Linux).
    #[must_use]
    pub const fn number(self) -> DeviceNumber {
        match self {
            Self::Null => DeviceNumber::new(1, 3),
            Self::Zero => DeviceNumber::new(1, 5),
            Self::Full => DeviceNumber::new(1, 7),
            Self::Random => DeviceNumber::new(1, 8),
            Self::Urandom => DeviceNumber::new(1, 9),
            Self::Userfaultfd => DeviceNumber::new(10, 126),
            Self::Console => CONSOLE_DEVICE,
            Self::Terminal => DeviceNumber::new(5, 0),
            Self::Unknown(number) => number,
        }
    }

    /// Returns the device with the number `number`.
    #[must_use]
    pub fn from_number(number: DeviceNumber) -> Self {
        let known = [
            Self::Null,
            Self::Zero,
            Self::Full,
            Self::Random,
            Self::Urandom,
            Self::Userfaultfd,
            Self::Console,
            Self::Terminal,
        ];
        let found = known.into_iter().find(|device| device.number() == number);
        found.unwrap_or(Self::Unknown(number))
    }
}
