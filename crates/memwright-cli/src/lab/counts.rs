//! What is counted of a guest from outside.

use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// Counts since some moment, or between two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Page faults in user mode.
    pub user_faults: Faults,
    /// Page faults in kernel mode: in system calls that copy from or to a program, nearly all.
    pub kernel_faults: Faults,
    /// Loads of CR3 with the value that it had: everything is flushed. Absent where it is not told which CPU loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_flushes: Option<u64>,
    /// Loads of CR3 with another value; absent likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<u64>,
    /// CR4 writes: a change of its global bit flushes everything. Absent without the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cr4_writes: Option<u64>,
    /// INVLPG; absent without the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invlpg: Option<u64>,
    /// INVPCID; absent without the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invpcid: Option<u64>,
    /// Interrupts by the vectors that Linux calls functions of other CPUs by, shootdowns of translations above all.
    pub call_interrupts: u64,
    /// All other interrupts from devices, timers and CPUs.
    pub other_interrupts: u64,
    /// Instructions; absent where they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Instructions>,
}

/// Instructions that completed, by the half of the address space that they lie in; of the kernel's those in interrupts apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instructions {
    /// Those in the lower half.
    pub user: u64,
    /// Those in the upper half, outside interrupts where these are counted.
    pub kernel: u64,
    /// Those in the upper half from the first of an interrupt's handler to the return from it, with those of the kernel's
    /// threads that run before; where another program runs before, to the switch to that. Absent where the handlers are
    /// not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<u64>,
}

/// Page faults by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Reads where no entry is present.
    pub read: u64,
    /// Writes where no entry is present.
    pub write: u64,
    /// Fetches of an instruction where no entry is present.
    pub fetch: u64,
    /// Writes to a present page that may not be written.
    pub write_protect: u64,
    /// Other accesses to a present page that refuses them.
    pub refused: u64,
}

/// Linux's vectors for calls of functions on other CPUs (arch/x86/include/asm/irq_vectors.h).
const CALL_VECTORS: [u8; 2] = [0xfb, 0xfc];
/// The first vector that is no exception.
pub const FIRST_INTERRUPT: u8 = 32;
/// A page fault's.
pub const PAGE_FAULT: u8 = 14;

/// Bits of a page fault's error code (Intel SDM volume 3, 5.7).
const PRESENT: u16 = 1;
const WRITE: u16 = 2;
const USER: u16 = 4;
/// The access was a fetch of an instruction.
pub const FETCH: u16 = 16;

impl Faults {
    fn count(&mut self, error: u16) {
        let place = match (error & PRESENT != 0, error & WRITE != 0, error & FETCH != 0) {
            (false, _, true) => &mut self.fetch,
            (false, true, false) => &mut self.write,
            (false, false, false) => &mut self.read,
            (true, true, _) => &mut self.write_protect,
            (true, false, _) => &mut self.refused,
        };
        *place += 1;
    }

    fn since(self, before: Self) -> Self {
        Self {
            read: self.read - before.read,
            write: self.write - before.write,
            fetch: self.fetch - before.fetch,
            write_protect: self.write_protect - before.write_protect,
            refused: self.refused - before.refused,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            read: self.read + other.read,
            write: self.write + other.write,
            fetch: self.fetch + other.fetch,
            write_protect: self.write_protect + other.write_protect,
            refused: self.refused + other.refused,
        }
    }
}

impl Counts {
    /// Counts an exception or interrupt.
    pub fn exception(&mut self, vector: u8, error: u16, by_instruction: bool) {
        match vector {
            PAGE_FAULT if error & USER != 0 => self.user_faults.count(error),
            PAGE_FAULT => self.kernel_faults.count(error),
            _ if by_instruction || vector < FIRST_INTERRUPT => {}
            _ if CALL_VECTORS.contains(&vector) => self.call_interrupts += 1,
            _ => self.other_interrupts += 1,
        }
    }

    /// What was counted from `before` to this.
    pub fn since(self, before: Self) -> Self {
        Self {
            user_faults: self.user_faults.since(before.user_faults),
            kernel_faults: self.kernel_faults.since(before.kernel_faults),
            full_flushes: both(self.full_flushes, before.full_flushes, u64::sub),
            switches: both(self.switches, before.switches, u64::sub),
            cr4_writes: both(self.cr4_writes, before.cr4_writes, u64::sub),
            invlpg: both(self.invlpg, before.invlpg, u64::sub),
            invpcid: both(self.invpcid, before.invpcid, u64::sub),
            call_interrupts: self.call_interrupts - before.call_interrupts,
            other_interrupts: self.other_interrupts - before.other_interrupts,
            instructions: both(self.instructions, before.instructions, |one, other| {
                one.by(other, u64::sub)
            }),
        }
    }

    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            user_faults: self.user_faults.plus(other.user_faults),
            kernel_faults: self.kernel_faults.plus(other.kernel_faults),
            full_flushes: both(self.full_flushes, other.full_flushes, u64::add),
            switches: both(self.switches, other.switches, u64::add),
            cr4_writes: both(self.cr4_writes, other.cr4_writes, u64::add),
            invlpg: both(self.invlpg, other.invlpg, u64::add),
            invpcid: both(self.invpcid, other.invpcid, u64::add),
            call_interrupts: self.call_interrupts + other.call_interrupts,
            other_interrupts: self.other_interrupts + other.other_interrupts,
            instructions: both(self.instructions, other.instructions, |one, other| {
                one.by(other, u64::add)
            }),
        }
    }

    /// The rows of reports: group, title and value.
    pub fn rows(&self) -> Vec<(&'static str, &'static str, Option<u64>)> {
        let (user, kernel) = (&self.user_faults, &self.kernel_faults);
        let measured = [
            (FAULTS, "user, not present, read", user.read),
            (FAULTS, "user, not present, write", user.write),
            (FAULTS, "user, not present, fetch", user.fetch),
            (FAULTS, "user, write-protect", user.write_protect),
            (FAULTS, "user, refused otherwise", user.refused),
            (FAULTS, "kernel, not present, read", kernel.read),
            (FAULTS, "kernel, not present, write", kernel.write),
            (FAULTS, "kernel, not present, fetch", kernel.fetch),
            (FAULTS, "kernel, write-protect", kernel.write_protect),
            (FAULTS, "kernel, refused otherwise", kernel.refused),
        ];
        let instructions = self.instructions;
        let mut rows: Vec<_> = measured
            .map(|(group, title, value)| (group, title, Some(value)))
            .to_vec();
        rows.extend([
            (FLUSHES, "CR3 loads, same value", self.full_flushes),
            (FLUSHES, "CR3 loads, another value", self.switches),
            (FLUSHES, "CR4 writes", self.cr4_writes),
            (FLUSHES, "INVLPG", self.invlpg),
            (FLUSHES, "INVPCID", self.invpcid),
            (
                FLUSHES,
                "call-function interrupts",
                Some(self.call_interrupts),
            ),
            (OTHERS, "other interrupts", Some(self.other_interrupts)),
            (
                OTHERS,
                "instructions, user",
                instructions.map(|one| one.user),
            ),
            (
                OTHERS,
                "instructions, kernel",
                instructions.map(|one| one.kernel),
            ),
            (
                OTHERS,
                "instructions, interrupts",
                instructions.and_then(|one| one.interrupts),
            ),
        ]);
        rows
    }
}

impl Instructions {
    fn by(self, other: Self, by: fn(u64, u64) -> u64) -> Self {
        Self {
            user: by(self.user, other.user),
            kernel: by(self.kernel, other.kernel),
            interrupts: both(self.interrupts, other.interrupts, by),
        }
    }
}

/// What was measured in both.
fn both<T>(one: Option<T>, other: Option<T>, by: fn(T, T) -> T) -> Option<T> {
    one.zip(other).map(|(one, other)| by(one, other))
}

const FAULTS: &str = "Page faults";
const FLUSHES: &str = "Flushes";
const OTHERS: &str = "Instructions and interrupts";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_are_causes() {
        let one = |error, by_user: fn(&mut Faults) -> &mut u64, user: bool| {
            let mut counts = Counts::default();
            counts.exception(PAGE_FAULT, error, false);
            let mut expected = Counts::default();
            let faults = if user {
                &mut expected.user_faults
            } else {
                &mut expected.kernel_faults
            };
            *by_user(faults) = 1;
            assert_eq!(counts, expected, "{error:#x}");
        };
        one(0x4, |faults| &mut faults.read, true);
        one(0x6, |faults| &mut faults.write, true);
        one(0x14, |faults| &mut faults.fetch, true);
        one(0x7, |faults| &mut faults.write_protect, true);
        one(0x5, |faults| &mut faults.refused, true);
        one(0x15, |faults| &mut faults.refused, true);
        one(0x25, |faults| &mut faults.refused, true);
        one(0x0, |faults| &mut faults.read, false);
        one(0x2, |faults| &mut faults.write, false);
        one(0x3, |faults| &mut faults.write_protect, false);
        one(0x10, |faults| &mut faults.fetch, false);
    }

    #[test]
    fn vectors_are_kinds_of_interrupts() {
        let mut counts = Counts::default();
        for (vector, by_instruction) in [
            (0xfb, false),
            (0xfc, false),
            (0xec, false),
            (0x20, false),
            (0x80, true),
            (0x03, true),
            (0x06, false),
            (0x0d, false),
        ] {
            counts.exception(vector, 0, by_instruction);
        }
        assert_eq!((counts.call_interrupts, counts.other_interrupts), (2, 2));
    }

    #[test]
    fn what_is_added_can_be_taken_away() {
        let mut one = Counts::default();
        for error in 0..64 {
            one.exception(PAGE_FAULT, error, false);
        }
        one.invlpg = Some(3);
        one.instructions = Some(Instructions {
            user: 1,
            kernel: 1000,
            interrupts: Some(10),
        });
        assert_eq!(one.plus(one).since(one), one);
    }
}
