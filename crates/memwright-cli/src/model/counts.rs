//! The counts of a guest. QEMU measures them; the guest's kernel does not.

use serde::{Deserialize, Serialize};

/// The counts of events from the start of a run to some point, or between two points of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Page faults in user mode.
    pub user_faults: Faults,
    /// Page faults in kernel mode. Nearly all of them occur in system calls that copy from or to user memory.
    pub kernel_faults: Faults,
    /// Loads of CR3 with its current value, which flush the TLB. Absent if the CPU that executes a load is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_flushes: Option<u64>,
    /// Loads of CR3 with another value. Absent if the CPU that executes a load is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<u64>,
    /// Writes to CR4: a change of its PGE bit flushes the TLB, including global entries. Absent without the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cr4_writes: Option<u64>,
    /// INVLPG instructions; absent without the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invlpg: Option<u64>,
    /// INVPCID instructions; absent without the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invpcid: Option<u64>,
    /// Interrupts with the vectors by which Linux calls functions on other CPUs, mostly for TLB shootdowns. Absent if
    /// the kernel's vectors are not known; these interrupts are then part of `other_interrupts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_interrupts: Option<u64>,
    /// All other interrupts from devices, timers and CPUs.
    pub other_interrupts: u64,
    /// Instructions; absent if they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Instructions>,
}

impl Counts {
    /// The counts before any event. Of the rows that can be absent, only `call_interrupts` is present.
    const NOTHING: Self = Self {
        user_faults: Faults::NONE,
        kernel_faults: Faults::NONE,
        full_flushes: None,
        switches: None,
        cr4_writes: None,
        invlpg: None,
        invpcid: None,
        call_interrupts: Some(0),
        other_interrupts: 0,
        instructions: None,
    };
}

impl Default for Counts {
    fn default() -> Self {
        Self::NOTHING
    }
}

/// Instructions that completed, by the half of the address space that contains their code. Kernel instructions in
/// interrupts are counted separately if the addresses of the handlers are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instructions {
    /// Instructions in the lower half, except those of a kernel that is loaded there.
    pub user: u64,
    /// Instructions of the kernel, in the upper half or where the kernel is loaded. If `interrupts` is present,
    /// instructions in interrupts are not included.
    pub kernel: u64,
    /// Instructions in the upper half from the first instruction of an interrupt handler to the return from the
    /// interrupt. Instructions of kernel threads that run before the return are included. If another program runs
    /// before the return, the interrupt ends at the switch to that program. Absent if the addresses of the handlers are
    /// not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<u64>,
}

/// Page faults by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Reads where no present entry maps the page.
    pub read: u64,
    /// Writes where no present entry maps the page.
    pub write: u64,
    /// Instruction fetches where no present entry maps the page.
    pub fetch: u64,
    /// Writes to a present page that is not writable.
    pub write_protect: u64,
    /// Other accesses that the entry of a present page does not permit.
    pub refused: u64,
}

impl Faults {
    /// No faults.
    const NONE: Self = Self {
        read: 0,
        write: 0,
        fetch: 0,
        write_protect: 0,
        refused: 0,
    };
}

/// Linux's vectors for function calls on other CPUs (arch/x86/include/asm/irq_vectors.h).
const CALL_VECTORS: [u8; 2] = [0xfb, 0xfc];
/// The first vector that is not an exception.
pub const FIRST_INTERRUPT: u8 = 32;
/// The vector of a page fault.
pub const PAGE_FAULT: u8 = 14;

/// Bits of a page fault's error code (Intel SDM volume 3, 5.7).
const PRESENT: u16 = 1;
const WRITE: u16 = 2;
/// The access was made in user mode.
pub const USER: u16 = 4;
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

    /// Returns the number of faults of each kind. The name of a kind is that of its field.
    pub fn kinds(&self) -> [(&'static str, u64); 5] {
        [
            ("read", self.read),
            ("write", self.write),
            ("fetch", self.fetch),
            ("write_protect", self.write_protect),
            ("refused", self.refused),
        ]
    }
}

/// Returns the name of the kind of a page fault with this error code.
pub fn kind(error: u16) -> &'static str {
    let mut one = Faults::default();
    one.count(error);
    let kind = one.kinds().into_iter().find(|(_, count)| *count > 0);
    kind.map_or("", |(name, _)| name)
}

impl Counts {
    /// Counts an exception or interrupt. `error` is the error code of a page fault. An interrupt that an instruction
    /// raised (`by_instruction`) is not counted.
    pub fn exception(&mut self, vector: u8, error: u16, by_instruction: bool) {
        match vector {
            PAGE_FAULT if error & USER != 0 => self.user_faults.count(error),
            PAGE_FAULT => self.kernel_faults.count(error),
            _ if by_instruction || vector < FIRST_INTERRUPT => {}
            _ => match &mut self.call_interrupts {
                Some(calls) if CALL_VECTORS.contains(&vector) => *calls += 1,
                Some(_) | None => self.other_interrupts += 1,
            },
        }
    }

    /// Returns the difference between these counts and the earlier counts `before`.
    pub fn since(self, before: Self) -> Self {
        self.by(before, |now, before| now - before)
    }

    /// Returns the sum of these counts and `other`.
    pub fn plus(self, other: Self) -> Self {
        self.by(other, |one, other| one + other)
    }

    /// Combines each row with the same row of `other`. A row that is not measured in `self` or in `other` is not
    /// measured in the result.
    pub fn by(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let mut values = self.values();
        for (value, other) in values.iter_mut().zip(other.values()) {
            *value = value.zip(other).map(|(one, other)| combine(one, other));
        }
        Self::of_values(values)
    }

    /// Returns the values of the rows, in the order of [`Counts::rows`].
    pub fn values(&self) -> [Option<u64>; ROWS] {
        let (user, kernel) = (&self.user_faults, &self.kernel_faults);
        let instructions = self.instructions;
        [
            Some(user.read),
            Some(user.write),
            Some(user.fetch),
            Some(user.write_protect),
            Some(user.refused),
            Some(kernel.read),
            Some(kernel.write),
            Some(kernel.fetch),
            Some(kernel.write_protect),
            Some(kernel.refused),
            self.full_flushes,
            self.switches,
            self.cr4_writes,
            self.invlpg,
            self.invpcid,
            self.call_interrupts,
            Some(self.other_interrupts),
            instructions.map(|one| one.user),
            instructions.map(|one| one.kernel),
            instructions.and_then(|one| one.interrupts),
        ]
    }

    /// Returns the counts that have these [`Counts::values`]. A row that every run measures is 0 if its value is
    /// `None`.
    pub fn of_values(values: [Option<u64>; ROWS]) -> Self {
        let faults = |first: usize| {
            let value = |place: usize| values[first + place].unwrap_or_default();
            Faults {
                read: value(0),
                write: value(1),
                fetch: value(2),
                write_protect: value(3),
                refused: value(4),
            }
        };
        let instructions = values[17].zip(values[18]);
        Self {
            user_faults: faults(0),
            kernel_faults: faults(5),
            full_flushes: values[10],
            switches: values[11],
            cr4_writes: values[12],
            invlpg: values[13],
            invpcid: values[14],
            call_interrupts: values[15],
            other_interrupts: values[16].unwrap_or_default(),
            instructions: instructions.map(|(user, kernel)| Instructions {
                user,
                kernel,
                interrupts: values[19],
            }),
        }
    }

    /// Returns the rows of reports: group, title and value.
    pub fn rows(&self) -> [(&'static str, &'static str, Option<u64>); ROWS] {
        let mut rows = TITLES.map(|(group, title)| (group, title, None));
        for (row, value) in rows.iter_mut().zip(self.values()) {
            row.2 = value;
        }
        rows
    }
}

/// The number of rows.
pub const ROWS: usize = 20;
/// The group and the title of each row.
const TITLES: [(&str, &str); ROWS] = [
    (FAULTS, "user, not present, read"),
    (FAULTS, "user, not present, write"),
    (FAULTS, "user, not present, fetch"),
    (FAULTS, "user, write-protect"),
    (FAULTS, "user, refused otherwise"),
    (FAULTS, "kernel, not present, read"),
    (FAULTS, "kernel, not present, write"),
    (FAULTS, "kernel, not present, fetch"),
    (FAULTS, "kernel, write-protect"),
    (FAULTS, "kernel, refused otherwise"),
    (FLUSHES, "CR3 loads, same value"),
    (FLUSHES, "CR3 loads, another value"),
    (FLUSHES, "CR4 writes"),
    (FLUSHES, "INVLPG"),
    (FLUSHES, "INVPCID"),
    (FLUSHES, "call-function interrupts"),
    (OTHERS, "other interrupts"),
    (OTHERS, "instructions, user"),
    (OTHERS, "instructions, kernel"),
    (OTHERS, "instructions, interrupts"),
];
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
        assert_eq!(
            (counts.call_interrupts, counts.other_interrupts),
            (Some(2), 2)
        );
        let mut counts = Counts {
            call_interrupts: None,
            ..Counts::default()
        };
        counts.exception(0xfb, 0, false);
        assert_eq!((counts.call_interrupts, counts.other_interrupts), (None, 1));
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

    /// Each row has a distinct value. A row that can be absent is also tested without a value.
    #[test]
    fn values_are_those_of_the_counts() {
        let mut values = [None; ROWS];
        for (value, number) in values.iter_mut().zip(100..) {
            *value = Some(number);
        }
        assert_eq!(Counts::of_values(values).values(), values);
        for unmeasured in [10, 11, 12, 13, 14, 15, 19] {
            let mut values = values;
            values[unmeasured] = None;
            assert_eq!(Counts::of_values(values).values(), values, "{unmeasured}");
        }
        values[17..].fill(None);
        let without = Counts::of_values(values);
        assert_eq!((without.values(), without.instructions), (values, None));
    }
}
