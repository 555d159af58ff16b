//! Resources used by a thread or process, as programs see them.

use memwright_linux_abi::{Space, abi_struct};
use memwright_linux_sched::scheduler::UsageSnapshot;

abi_struct! {
    /// `struct rusage` of `linux/resource.h`.
    pub struct ResourceUsage {
        /// `ru_utime`.
        pub user: memwright_linux_abi::abi::Timeval,
        /// `ru_stime`.
        pub system: memwright_linux_abi::abi::Timeval,
        /// `ru_maxrss` in KiB.
        pub resident_peak: i64,
        /// `ru_ixrss`, `ru_idrss`, `ru_isrss`: unused by Linux.
        pub unused: [i64; 3],
        /// `ru_minflt`.
        pub minor_faults: i64,
        /// `ru_majflt`.
        pub major_faults: i64,
        /// `ru_nswap` to `ru_nsignals`: unused by Linux, or not counted here (`ru_inblock`, `ru_oublock`).
        pub unused_too: [i64; 6],
        /// `ru_nvcsw`.
        pub voluntary: i64,
        /// `ru_nivcsw`.
        pub involuntary: i64,
    }
}

impl From<UsageSnapshot> for ResourceUsage {
    fn from(usage: UsageSnapshot) -> Self {
        Self {
            user: memwright_linux_abi::abi::Timeval::from_nanoseconds(usage.user),
            system: memwright_linux_abi::abi::Timeval::from_nanoseconds(usage.system),
            resident_peak: usage.resident_peak as i64,
            minor_faults: usage.minor_faults as i64,
            major_faults: usage.major_faults as i64,
            voluntary: usage.voluntary as i64,
            involuntary: usage.involuntary as i64,
            ..Self::default()
        }
    }
}

/// Clock ticks per second of `times` and `/proc` (`USER_HZ`).
pub const TICKS_PER_SECOND: u64 = 100;

/// Converts nanoseconds to clock ticks.
pub const fn ticks(nanoseconds: u64) -> u64 {
    nanoseconds / (memwright_linux_abi::abi::SECOND / TICKS_PER_SECOND)
}

/// Returns the peak resident size of an address space in KiB.
pub fn peak_resident_kib(space: &Space) -> u64 {
    space.usage().resident_peak() * 4
}

#[cfg(test)]
mod tests {
    use super::ResourceUsage;
    use memwright_linux_abi::abi::Plain;

    #[test]
    fn rusage_has_the_size_of_the_interface() {
        assert_eq!(ResourceUsage::SIZE, 144);
    }
}
