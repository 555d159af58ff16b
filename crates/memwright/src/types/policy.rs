//! Policies: choices between implementations. They are made at run time, so that one build can measure each
//! implementation.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use memwright_table::FlushPolicy;

use crate::types::huge::HugeMode;

/// The conditions under which a page that stays mapped may become writable without a write fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WriteUpgrade {
    /// Private pages never become writable without a fault: the next store faults. Shared pages become writable
    /// wherever [`writable`](crate::writable) permits it, as on every version of Linux.
    Off = 0,
    /// A private page becomes writable only if its entry is dirty (Linux 6.0).
    Dirty = 1,
    /// A page becomes writable wherever [`writable`](crate::writable) permits it (Linux 6.2 and later for private
    /// pages).
    On = 2,
}

/// The way in which stores to tracked pages are detected, if there is a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// Arming a page makes its entry not writable: the first store faults, as on Linux.
    Fault,
    /// The entry of a private page stays writable. Arming clears its dirty bit, which the CPU sets at the first store.
    DirtyBit,
}

/// The conditions under which a page that is swapped in may become writable without a write fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapInReuse {
    /// Only a store that swaps the page in makes it writable (Linux before 6.4). If a load swaps it in, the next store
    /// faults.
    WriteOnly,
    /// A load or a store that swaps the page in makes it writable, provided that [`writable`](crate::writable) permits
    /// it.
    On,
}

/// The treatment, by a fork, of the page tables of private anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkTables {
    /// The child gets copies of all entries, as on Linux.
    Copy,
    /// The child shares the last-level tables that have at least this number of entries, until one of these entries
    /// changes.
    Share(u32),
}

/// A fork shares a page table that has at least this number of entries, because copying fewer entries costs less than
/// to stop sharing the table later.
const LEAST_SHARED: u32 = 64;

/// The reason why a policy was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// No policy has the key. [`Policy::KEYS`] lists the keys.
    UnknownKey,
    /// The policy does not have the value.
    UnknownValue {
        /// The key of the policy.
        key: &'static str,
        /// The values of the policy and their meaning, from [`Policy::KEYS`].
        values: &'static str,
    },
}

/// Returns the number of entries that a page table must have for a fork to share it under the policy `fork=value`, or 0
/// if a fork shares no table. Returns `None` if the policy has no such value.
fn least_shared(value: &str) -> Option<u32> {
    match value {
        "copy" => Some(0),
        "share" => Some(LEAST_SHARED),
        number => number.parse().ok(),
    }
}

/// The policies in force. [`set`](Self::set) is called only before or between measurements. But the choice of the areas
/// that get huge pages can be changed by programs at any time ([`set_huge`](Self::set_huge)).
///
/// | key | values | default | what it chooses |
/// |---|---|---|---|
/// | `write-upgrade` | off, dirty or on | `on` | when a private page becomes writable without a write fault |
/// | `tlb` | immediate, gather, elide or elide+grow | `elide+grow` | which page-table changes are flushed from the TLB, and when |
/// | `fault-around` | 1, 2, 4, 8 or 16 | `16` | how many cached pages of a file one read fault maps |
/// | `track` | fault or dirty-bit | `dirty-bit` | how stores to tracked private pages are detected |
/// | `locks` | off or count | `off` | whether locks, and the lock words and cache lines that several CPUs write, are counted |
/// | `swapin-reuse` | write-only or on | `on` | when a page that is swapped in becomes writable without a write fault |
/// | `swapin-around` | off or on | `on` | whether the neighbours of the faulting page are swapped in with it |
/// | `swap-errors` | a number N | `0` | about one in N transfers of a page to or from a swap device fails; 0 for none |
/// | `fork` | copy, share or a number N | `copy` | whether a fork copies the page tables of private anonymous memory, or shares those that have at least 64 or N entries |
/// | `thp` | always, madvise or never | `madvise` | which anonymous memory gets huge pages |
///
/// [`Display`](fmt::Display) writes the policies in the same words, as `write-upgrade=on tlb=elide+grow ...`.
pub struct Policy {
    write_upgrade: AtomicU8,
    fault_around: AtomicU8,
    count_locks: AtomicBool,
    flush: AtomicU8,
    track_by_faults: AtomicBool,
    huge: AtomicU8,
    swapin_write_only: AtomicBool,
    swapin_alone: AtomicBool,
    swap_errors: AtomicU32,
    /// The number in [`ForkTables::Share`]; 0 for [`ForkTables::Copy`].
    fork_shares: AtomicU32,
}

/// The values of `flush`, in the order of their numbers.
const FLUSH: [FlushPolicy; 4] = [
    FlushPolicy::Immediate,
    FlushPolicy::Gather,
    FlushPolicy::Elide,
    FlushPolicy::ElideGrow,
];

impl Default for Policy {
    fn default() -> Self {
        Self {
            write_upgrade: AtomicU8::new(WriteUpgrade::On as u8),
            fault_around: AtomicU8::new(16),
            count_locks: AtomicBool::new(false),
            flush: AtomicU8::new(FlushPolicy::ElideGrow as u8),
            track_by_faults: AtomicBool::new(false),
            huge: AtomicU8::new(HugeMode::Advised as u8),
            swapin_write_only: AtomicBool::new(false),
            swapin_alone: AtomicBool::new(false),
            swap_errors: AtomicU32::new(0),
            fork_shares: AtomicU32::new(0),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |is: bool, [yes, no]: [&'static str; 2]| if is { yes } else { no };
        let upgrade = match self.write_upgrade() {
            WriteUpgrade::Off => "off",
            WriteUpgrade::Dirty => "dirty",
            WriteUpgrade::On => "on",
        };
        let flush = match self.flush() {
            FlushPolicy::Immediate => "immediate",
            FlushPolicy::Gather => "gather",
            FlushPolicy::Elide => "elide",
            FlushPolicy::ElideGrow => "elide+grow",
        };
        let track = word(self.track() == Track::Fault, ["fault", "dirty-bit"]);
        let reuse = self.swapin_reuse() == SwapInReuse::WriteOnly;
        write!(f, "write-upgrade={upgrade} tlb={flush}")?;
        write!(f, " fault-around={} track={track}", self.fault_around())?;
        write!(f, " locks={}", word(self.count_locks(), ["count", "off"]))?;
        write!(f, " swapin-reuse={}", word(reuse, ["write-only", "on"]))?;
        let around = word(self.swapin_around(), ["on", "off"]);
        write!(
            f,
            " swapin-around={around} swap-errors={}",
            self.swap_errors()
        )?;
        match self.fork_tables() {
            ForkTables::Copy => f.write_str(" fork=copy")?,
            ForkTables::Share(least) => write!(f, " fork={least}")?,
        }
        let huge = HugeMode::ALL.iter().find(|(mode, _)| *mode == self.huge());
        write!(f, " thp={}", huge.map_or("", |(_, name)| name))
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Policy({self})")
    }
}

impl Policy {
    /// Every key with its values, for help texts.
    pub const KEYS: [(&'static str, &'static str); 10] = [
        (
            "write-upgrade",
            "off, dirty or on: when a private page becomes writable without a write fault",
        ),
        (
            "tlb",
            "immediate, gather, elide or elide+grow: which page-table changes are flushed from the TLB, and when",
        ),
        (
            "fault-around",
            "1, 2, 4, 8 or 16: how many cached pages of a file one read fault maps",
        ),
        (
            "track",
            "fault or dirty-bit: how stores to tracked private pages are detected",
        ),
        (
            "locks",
            "off or count: whether locks, and the lock words and cache lines that several CPUs write, are counted",
        ),
        (
            "swapin-reuse",
            "write-only or on: when a page that is swapped in becomes writable without a write fault",
        ),
        (
            "swapin-around",
            "off or on: whether the neighbours of the faulting page are swapped in with it",
        ),
        (
            "swap-errors",
            "a number N: about one in N transfers of a page to or from a swap device fails; 0 for none",
        ),
        (
            "fork",
            "copy, share or a number N: whether a fork copies the page tables of private anonymous memory, or shares those \
             that have at least 64 or N entries",
        ),
        (
            "thp",
            "always, madvise or never: which anonymous memory gets huge pages",
        ),
    ];

    /// Sets the policy `key` to `value`. The documentation of [`Policy`] lists the keys and values.
    ///
    /// # Errors
    /// The key or the value is unknown. Nothing is changed.
    pub fn set(&self, key: &str, value: &str) -> Result<(), PolicyError> {
        let known = Self::KEYS.iter().find(|(known, _)| *known == key);
        let &(key, values) = known.ok_or(PolicyError::UnknownKey)?;
        self.set_known(key, value)
            .ok_or(PolicyError::UnknownValue { key, values })
    }

    /// Sets the policy `key`, which is one of [`KEYS`](Self::KEYS). Returns `None`, and changes nothing, if the policy
    /// does not have the value.
    fn set_known(&self, key: &str, value: &str) -> Option<()> {
        match key {
            "write-upgrade" => {
                let upgrade = match value {
                    "off" => WriteUpgrade::Off,
                    "dirty" => WriteUpgrade::Dirty,
                    "on" => WriteUpgrade::On,
                    _ => return None,
                };
                self.write_upgrade.store(upgrade as u8, Ordering::Relaxed);
            }
            "tlb" => {
                let policy = match value {
                    "immediate" => FlushPolicy::Immediate,
                    "gather" => FlushPolicy::Gather,
                    "elide" => FlushPolicy::Elide,
                    "elide+grow" => FlushPolicy::ElideGrow,
                    _ => return None,
                };
                self.flush.store(policy as u8, Ordering::Relaxed);
            }
            "fault-around" => {
                let pages = match value {
                    "1" => 1,
                    "2" => 2,
                    "4" => 4,
                    "8" => 8,
                    "16" => 16,
                    _ => return None,
                };
                self.fault_around.store(pages, Ordering::Relaxed);
            }
            "track" => {
                let faults = match value {
                    "fault" => true,
                    "dirty-bit" => false,
                    _ => return None,
                };
                self.track_by_faults.store(faults, Ordering::Relaxed);
            }
            "locks" => {
                let count = match value {
                    "off" => false,
                    "count" => true,
                    _ => return None,
                };
                self.count_locks.store(count, Ordering::Relaxed);
            }
            "swapin-reuse" => {
                let write_only = match value {
                    "write-only" => true,
                    "on" => false,
                    _ => return None,
                };
                self.swapin_write_only.store(write_only, Ordering::Relaxed);
            }
            "swapin-around" => {
                let alone = match value {
                    "off" => true,
                    "on" => false,
                    _ => return None,
                };
                self.swapin_alone.store(alone, Ordering::Relaxed);
            }
            "swap-errors" => {
                let each = value.parse().ok()?;
                self.swap_errors.store(each, Ordering::Relaxed);
            }
            "fork" => self
                .fork_shares
                .store(least_shared(value)?, Ordering::Relaxed),
            "thp" => {
                let mode = HugeMode::ALL.iter().find(|(_, name)| *name == value);
                self.set_huge(mode?.0);
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns which areas get huge pages.
    #[inline]
    pub fn huge(&self) -> HugeMode {
        HugeMode::of(self.huge.load(Ordering::Relaxed))
    }

    /// Sets which areas get huge pages from now on.
    pub fn set_huge(&self, mode: HugeMode) {
        self.huge.store(mode as u8, Ordering::Relaxed);
    }

    /// Returns the policy that decides which changed entries are flushed from the TLB, and when.
    #[inline]
    pub fn flush(&self) -> FlushPolicy {
        let number = usize::from(self.flush.load(Ordering::Relaxed));
        FLUSH[number % FLUSH.len()]
    }

    /// Returns when a page may become writable without a write fault.
    #[inline]
    pub fn write_upgrade(&self) -> WriteUpgrade {
        match self.write_upgrade.load(Ordering::Relaxed) {
            0 => WriteUpgrade::Off,
            1 => WriteUpgrade::Dirty,
            _ => WriteUpgrade::On,
        }
    }

    /// Returns whether every page may become writable as soon as [`writable`](crate::writable) permits it
    /// (`write-upgrade=on`).
    #[inline]
    pub(crate) fn upgrades_all(&self) -> bool {
        self.write_upgrade.load(Ordering::Relaxed) == WriteUpgrade::On as u8
    }

    /// Returns how stores to tracked private pages are detected.
    pub fn track(&self) -> Track {
        if self.track_by_faults.load(Ordering::Relaxed) {
            Track::Fault
        } else {
            Track::DirtyBit
        }
    }

    /// Returns when a page that is swapped in may become writable without a write fault.
    pub fn swapin_reuse(&self) -> SwapInReuse {
        if self.swapin_write_only.load(Ordering::Relaxed) {
            SwapInReuse::WriteOnly
        } else {
            SwapInReuse::On
        }
    }

    /// Returns whether a swap fault also reads pages next to the one that faulted (swap readahead).
    pub fn swapin_around(&self) -> bool {
        !self.swapin_alone.load(Ordering::Relaxed)
    }

    /// Returns whether a fork shares page tables (`fork=share`).
    pub fn fork_shares(&self) -> bool {
        self.fork_shares.load(Ordering::Relaxed) != 0
    }

    /// Returns what a fork does with the page tables of private anonymous memory.
    pub fn fork_tables(&self) -> ForkTables {
        match self.fork_shares.load(Ordering::Relaxed) {
            0 => ForkTables::Copy,
            least => ForkTables::Share(least),
        }
    }

    /// Returns the rate at which failures of swap devices are injected: about one in this many transfers fails; 0 for
    /// none. The code that creates the devices applies the rate.
    pub fn swap_errors(&self) -> u32 {
        self.swap_errors.load(Ordering::Relaxed)
    }

    /// Returns whether lock statistics are taken from the start of the program.
    pub fn count_locks(&self) -> bool {
        self.count_locks.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of pages that a read fault of a file maps, a power of two.
    pub fn fault_around(&self) -> u64 {
        u64::from(self.fault_around.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::{String, ToString};

    use super::*;

    #[test]
    fn the_documentation_has_every_key_with_its_values_and_its_default() {
        let policy = Policy::default();
        let text = policy.to_string();
        let defaults = text.split(' ').map(|item| item.split_once('=').unwrap());
        let mut rows = String::new();
        for ((key, help), (shown, default)) in Policy::KEYS.iter().zip(defaults) {
            assert_eq!(*key, shown);
            let (values, what) = help.split_once(": ").unwrap();
            rows += &format!("/// | `{key}` | {values} | `{default}` | {what} |\n");
            policy.set(key, default).unwrap();
        }
        assert!(include_str!("policy.rs").contains(&rows), "{rows}");
        assert_eq!(policy.to_string(), text);
        assert_eq!(format!("{policy:?}"), format!("Policy({text})"));
    }

    #[test]
    fn a_policy_is_shown_in_the_words_in_which_it_is_set() {
        let policy = Policy::default();
        let text = "write-upgrade=dirty tlb=gather fault-around=4 track=fault locks=count swapin-reuse=write-only \
                    swapin-around=off swap-errors=7 fork=9 thp=never";
        for item in text.split(' ') {
            let (key, value) = item.split_once('=').unwrap();
            policy.set(key, value).unwrap();
        }
        assert_eq!(policy.to_string(), text);
    }

    #[test]
    fn every_key_is_known_and_has_its_default() {
        let policy = Policy::default();
        assert_eq!(policy.write_upgrade(), WriteUpgrade::On);
        assert_eq!(policy.fault_around(), 16);
        for (key, values) in Policy::KEYS {
            let error = PolicyError::UnknownValue { key, values };
            assert_eq!(policy.set(key, "no such value"), Err(error));
        }
        assert_eq!(
            policy.set("no such key", "on"),
            Err(PolicyError::UnknownKey)
        );
        for (value, upgrade) in [
            ("off", WriteUpgrade::Off),
            ("dirty", WriteUpgrade::Dirty),
            ("on", WriteUpgrade::On),
        ] {
            policy.set("write-upgrade", value).unwrap();
            assert_eq!(policy.write_upgrade(), upgrade);
        }
        for (value, flush) in [
            ("immediate", FlushPolicy::Immediate),
            ("gather", FlushPolicy::Gather),
            ("elide", FlushPolicy::Elide),
            ("elide+grow", FlushPolicy::ElideGrow),
        ] {
            policy.set("tlb", value).unwrap();
            assert_eq!(policy.flush(), flush);
        }
        for (value, track) in [("fault", Track::Fault), ("dirty-bit", Track::DirtyBit)] {
            policy.set("track", value).unwrap();
            assert_eq!(policy.track(), track);
        }
        for (value, reuse) in [
            ("write-only", SwapInReuse::WriteOnly),
            ("on", SwapInReuse::On),
        ] {
            policy.set("swapin-reuse", value).unwrap();
            assert_eq!(policy.swapin_reuse(), reuse);
        }
        for (value, tables) in [
            ("share", ForkTables::Share(LEAST_SHARED)),
            ("1", ForkTables::Share(1)),
            ("copy", ForkTables::Copy),
        ] {
            policy.set("fork", value).unwrap();
            assert_eq!(policy.fork_tables(), tables);
        }
        policy.set("swap-errors", "1000").unwrap();
        assert_eq!(policy.swap_errors(), 1000);
        policy.set("locks", "count").unwrap();
        assert!(policy.count_locks());
        policy.set("fault-around", "4").unwrap();
        assert_eq!(policy.fault_around(), 4);
    }
}
