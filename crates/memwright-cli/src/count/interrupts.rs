//! Counts the instructions that a kernel executes in interrupts, and subtracts instructions that began but did not
//! complete.
//!
//! The plugin counts an instruction when it begins. QEMU's log reports every exception and interrupt. The plugin
//! reports the first instruction of an interrupt's handler, every IRETQ and every switch to another task.

use crate::model::code::Code;
use crate::model::counts::{FETCH, FIRST_INTERRUPT, Instructions, PAGE_FAULT};

/// The vector of the general protection exception.
const GENERAL_PROTECTION: u8 = 13;
/// The exceptions that do not cancel an instruction: debug, NMI, breakpoint, overflow, double fault and machine check.
/// They occur between two instructions, after a completed instruction, or at a failure of the machine.
const NOT_FAULTS: [u8; 6] = [1, 2, 3, 4, 8, 18];

/// Returns whether an exception at the instruction `address` cancelled that instruction after the instruction had
/// begun. An instruction whose fetch faults has not begun.
pub fn undoes(vector: u8, error: u16, by_instruction: bool, address: u64) -> bool {
    let is_fault = !by_instruction && vector < FIRST_INTERRUPT && !NOT_FAULTS.contains(&vector);
    let fetch = match vector {
        PAGE_FAULT => error & FETCH != 0,
        GENERAL_PROTECTION => !is_canonical(address),
        _ => false,
    };
    is_fault && !fetch
}

fn is_canonical(address: u64) -> bool {
    (address.cast_signed() << 16 >> 16).cast_unsigned() == address
}

/// An interrupt that is being handled.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// The number of kernel instructions that completed before the first instruction of the handler.
    before: u64,
    /// The number of user instructions before the first instruction of the handler. It does not increase until the
    /// interrupt ends.
    user: u64,
    /// The number of exceptions and interrupts that have not returned, including this interrupt.
    depth: u64,
    /// The number of kernel instructions when the kernel first switched to another task in this interrupt; `None` if it
    /// has not switched.
    switched: Option<u64>,
}

/// Tracks the interrupts of one CPU, and the instructions that did not complete.
#[derive(Debug, Default)]
pub struct Interrupts {
    /// Whether the run has begun. Before the run, instructions that did not complete are not counted.
    follows: bool,
    undone: [u64; 2],
    /// The kernel's code in the lower half.
    code: Code,
    /// The number of instructions in all interrupts that have ended; `None` if the addresses of the handlers are not
    /// known.
    spent: Option<u64>,
    delivered: bool,
    open: Option<Open>,
}

impl Interrupts {
    /// Returns the state for a kernel that runs alone, whose code can also be in the lower half. Tracking begins at
    /// once, because the plugin counts nothing before the run of such a kernel.
    pub fn of_code(code: &Code) -> Self {
        Self {
            follows: true,
            code: code.clone(),
            ..Self::default()
        }
    }

    /// Starts to track interrupts: from this point on, the plugin reports the first instruction of each handler.
    /// Earlier counts are discarded.
    pub fn handlers_are_known(&mut self) {
        *self = Self {
            spent: Some(0),
            follows: true,
            code: std::mem::take(&mut self.code),
            ..Self::default()
        };
    }

    /// Records that an exception or interrupt is delivered at `address`.
    pub fn exception(&mut self, vector: u8, error: u16, by_instruction: bool, address: u64) {
        if self.follows && undoes(vector, error, by_instruction, address) {
            self.undone[usize::from(self.code.has(address))] += 1;
        }
        self.expect_handler();
        match &mut self.open {
            Some(open) => open.depth += 1,
            None => self.delivered = vector >= FIRST_INTERRUPT && !by_instruction,
        }
    }

    /// Records that the next instruction is the first one of a handler.
    pub fn enter(&mut self, counted: Instructions) {
        self.notice_user(counted);
        if std::mem::take(&mut self.delivered) {
            let (user, before) = self.completed(counted);
            self.open = Some(Open {
                before,
                user,
                depth: 1,
                switched: None,
            });
        }
    }

    /// Records that the next instruction is an IRETQ.
    pub fn leave(&mut self, counted: Instructions) {
        self.expect_handler();
        self.notice_user(counted);
        let Some(open) = &mut self.open else { return };
        open.depth -= 1;
        if open.depth == 0 {
            // The IRETQ itself is counted too.
            self.close(self.completed(counted).1 + 1);
        }
    }

    /// Records that the kernel switches to another task. A kernel thread does not end the interrupt, which continues
    /// when the interrupted task runs again.
    pub fn switch(&mut self, counted: Instructions) {
        self.expect_handler();
        self.notice_user(counted);
        let kernel = self.completed(counted).1;
        if let Some(open) = &mut self.open {
            open.switched.get_or_insert(kernel);
        }
    }

    /// Returns the plugin's counts without the instructions that did not complete. Kernel instructions in interrupts
    /// are a separate count, which includes those of an interrupt that has not ended.
    pub fn count(&mut self, counted: Instructions) -> Instructions {
        self.expect_handler();
        self.count_between(counted)
    }

    /// Like [`Interrupts::count`], but for a point at which another CPU executes. The CPU of `self` may have received
    /// an interrupt whose handler has not begun yet.
    pub fn count_between(&mut self, counted: Instructions) -> Instructions {
        self.notice_user(counted);
        let (user, kernel) = self.completed(counted);
        let under_way = self.open.map_or(0, |open| kernel - open.before);
        let interrupts = self.spent.map(|spent| spent + under_way);
        Instructions {
            user,
            kernel: kernel - interrupts.unwrap_or(0),
            interrupts,
        }
    }

    fn completed(&self, counted: Instructions) -> (u64, u64) {
        let [user, kernel] = self.undone;
        // If the log attributes exceptions to the wrong CPU, a CPU can have more cancelled instructions than
        // instructions.
        let user = counted.user.saturating_sub(user);
        (user, counted.kernel.saturating_sub(kernel))
    }

    /// Ends the open interrupt if user instructions have been executed since it began, because the kernel must then
    /// have switched to a user task. The interrupt ends at that switch. If the plugin reported no switch, the
    /// instructions of interrupts are no longer counted.
    fn notice_user(&mut self, counted: Instructions) {
        let user = self.completed(counted).0;
        match self.open {
            Some(open) if user != open.user => match open.switched {
                Some(switched) => self.close(switched),
                None => (self.open, self.spent) = (None, None),
            },
            Some(_) | None => {}
        }
    }

    fn close(&mut self, now: u64) {
        if let (Some(open), Some(spent)) = (self.open.take(), &mut self.spent) {
            *spent += now - open.before;
        }
    }

    /// Stops counting instructions of interrupts if the handler of the last delivered interrupt did not begin where the
    /// plugin expected it.
    fn expect_handler(&mut self) {
        if std::mem::take(&mut self.delivered) {
            self.spent = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER_CODE: u64 = 0x40_1000;
    const KERNEL_CODE: u64 = 0xffff_ffff_8100_0000;

    fn at(user: u64, kernel: u64) -> Instructions {
        Instructions {
            user,
            kernel,
            interrupts: None,
        }
    }

    #[test]
    fn faults_undo_and_traps_do_not() {
        for (vector, error, by_instruction, address, expected) in [
            (14, 0x6, false, USER_CODE, true),
            (14, 0x7, false, USER_CODE, true),
            (14, 0x14, false, USER_CODE, false),
            (13, 0, false, USER_CODE, true),
            (13, 0, false, 0x8000_0000_0000, false),
            (6, 0, false, USER_CODE, true),
            (0, 0, false, USER_CODE, true),
            (14, 0x2, false, KERNEL_CODE, true),
            (1, 0, false, USER_CODE, false),
            (3, 0, true, USER_CODE, false),
            (0x80, 0, true, USER_CODE, false),
            (0xec, 0, false, USER_CODE, false),
        ] {
            let found = undoes(vector, error, by_instruction, address);
            assert_eq!(
                found, expected,
                "{vector} {error} {by_instruction} {address:x}"
            );
        }
    }

    #[test]
    fn interrupts_are_counted_to_their_return() {
        let mut one = Interrupts::default();
        one.exception(0xec, 0, false, USER_CODE);
        assert_eq!(one.count(at(5, 50)).interrupts, None);
        one.handlers_are_known();
        // A fault outside interrupts does not count as an interrupt. The write that faulted is subtracted.
        one.exception(14, 6, false, USER_CODE);
        one.leave(at(11, 110));
        // An interrupt during which a kernel fault and another interrupt occur.
        one.exception(0xec, 0, false, USER_CODE);
        one.enter(at(20, 200));
        one.exception(14, 0, false, KERNEL_CODE);
        one.leave(at(20, 240));
        one.exception(0x30, 0, false, KERNEL_CODE);
        one.enter(at(20, 250));
        one.leave(at(20, 270));
        one.leave(at(20, 299));
        let counted = one.count(at(30, 400));
        // 99 instructions before the IRETQ and the IRETQ itself, minus the instruction that faulted.
        assert_eq!(
            counted,
            Instructions {
                user: 29,
                kernel: 300,
                interrupts: Some(99)
            }
        );
        // An interrupt during which a kernel thread runs.
        one.exception(0xec, 0, false, KERNEL_CODE);
        one.enter(at(30, 410));
        assert_eq!(one.count(at(30, 460)).interrupts, Some(149));
        one.switch(at(30, 510));
        one.switch(at(30, 550));
        one.leave(at(30, 599));
        assert_eq!(one.count(at(30, 600)).interrupts, Some(289));
        // An interrupt during which the kernel switches to another program, which then makes a system call.
        one.exception(0xec, 0, false, USER_CODE);
        one.enter(at(40, 700));
        one.switch(at(40, 710));
        assert_eq!(one.count(at(41, 800)).interrupts, Some(299));
        one.leave(at(41, 900));
        assert_eq!(one.count(at(41, 900)).interrupts, Some(299));
    }

    #[test]
    fn a_handler_that_is_not_found_makes_interrupts_unknown() {
        let mut one = Interrupts::default();
        one.handlers_are_known();
        one.exception(0xec, 0, false, USER_CODE);
        one.leave(at(1, 10));
        let counted = one.count(at(2, 20));
        assert_eq!(counted, at(2, 20));
    }
}
