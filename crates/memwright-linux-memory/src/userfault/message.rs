//! The messages that programs read from a userfaultfd.

use linux_raw_sys::general as raw;
use memwright::{Access, uffd::WatchedFault};
use memwright_linux_abi::abi_struct;
use memwright_table::PageSize;

use super::Features;

abi_struct! {
    /// `struct uffd_msg` of `linux/userfaultfd.h`.
    pub struct Message {
        /// `UFFD_EVENT_...`.
        pub event: u8,
        /// Always zero.
        pub reserved: [u8; 7],
        /// For a fault, `UFFD_PAGEFAULT_FLAG_...`.
        pub flags: u64,
        /// For a fault, the faulting address or the address of its page.
        pub address: u64,
        /// For a fault, the ID of the faulting thread, if the program enabled the feature.
        pub thread: u64,
    }
}

/// `UFFD_PAGEFAULT_FLAG_RWP` of Linux 7.3.
const FLAG_READ_WRITE_PROTECTED: u32 = 1 << 3;

impl Message {
    /// Creates the message that reports a fault (`userfault_msg`).
    pub fn of_fault(
        features: Features,
        (address, unit): (u64, PageSize),
        access: Access,
        fault: WatchedFault,
        thread: u32,
    ) -> Self {
        let mut flags = 0;
        if access.write {
            flags |= raw::UFFD_PAGEFAULT_FLAG_WRITE;
        }
        flags |= match fault {
            WatchedFault::Missing => 0,
            WatchedFault::Minor => raw::UFFD_PAGEFAULT_FLAG_MINOR,
            WatchedFault::WriteProtected => raw::UFFD_PAGEFAULT_FLAG_WP,
            WatchedFault::ReadWriteProtected => FLAG_READ_WRITE_PROTECTED,
        };
        let exact = features.contains(Features::EXACT);
        let named = features.contains(Features::THREAD);
        Self {
            event: raw::UFFD_EVENT_PAGEFAULT as u8,
            reserved: [0; 7],
            flags: flags.into(),
            address: if exact {
                address
            } else {
                address & !(unit.bytes() - 1)
            },
            thread: if named { thread.into() } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memwright_linux_abi::abi::Plain;

    #[test]
    fn a_message_tells_what_was_agreed_on() {
        let of = |features| {
            Message::of_fault(
                features,
                (0x1234, PageSize::Size4K),
                Access::WRITE,
                WatchedFault::WriteProtected,
                7,
            )
        };
        let plain = of(Features::empty());
        assert_eq!(Message::SIZE, 32);
        assert_eq!((plain.event, plain.flags), (0x12, 3));
        assert_eq!((plain.address, plain.thread), (0x1000, 0));
        let full = of(Features::EXACT | Features::THREAD);
        assert_eq!((full.address, full.thread), (0x1234, 7));
    }
}
