//! Counts the instructions that a kernel spends in interrupts, and those that began but did not complete.
//!
//! The plugin counts an instruction when it begins. QEMU's log reports every exception and interrupt. The plugin
//! reports the first instruction of an interrupt's handler, every IRETQ and every switch to another task.

use crate::model::counts::{FETCH, FIRST_INTERRUPT, Instructions, PAGE_FAULT};

/// General protection.
const GENERAL_PROTECTION: u8 = 13;
/// The exceptions that cancel no instruction: they occur between two instructions, after a completed one, or end the
/// system's operation. They are debug, NMI, breakpoint, overflow, double fault and machine check.
const NOT_FAULTS: [u8; 6] = [1, 2, 3, 4, 8, 18];

/// Returns whether an exception at `address` cancelled an instruction that had begun. A fetch that faults begins no
/// instruction.
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
    /// Kernel instructions before the first one of its handler.
    before: u64,
    /// User instructions at that point. No further ones are executed before the interrupt ends.
    user: u64,
    /// The number of exceptions and interrupts that have not returned, including this one.
    depth: u64,
    /// Kernel instructions when the kernel first switched to another task.
    switched: Option<u64>,
}

/// Tracks the interrupts of one CPU, and the instructions that did not complete.
#[derive(Debug, Default)]
pub struct Interrupts {
    undone: [u64; 2],
    /// Instructions of all completed interrupts; `None` if the handlers are not known.
    spent: Option<u64>,
    delivered: bool,
    open: Option<Open>,
}

impl Interrupts {
    /// Starts to track interrupts: from now on the plugin reports where handlers begin.
    pub fn handlers_are_known(&mut self) {
        (self.spent, self.delivered, self.open) = (Some(0), false, None);
    }

    /// Records that an exception or interrupt is delivered at `address`.
    pub fn exception(&mut self, vector: u8, error: u16, by_instruction: bool, address: u64) {
        if undoes(vector, error, by_instruction, address) {
            self.undone[usize::from(address >> 63 != 0)] += 1;
        }
        self.expect_handler();
        match &mut self.open {
            Some(open) => open.depth += 1,
            None => self.delivered = vector >= FIRST_INTERRUPT && !by_instruction,
        }
    }

    /// Records that the first instruction of a handler is next.
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

    /// Records that an IRETQ is next.
    pub fn leave(&mut self, counted: Instructions) {
        self.expect_handler();
        self.notice_user(counted);
        let Some(open) = &mut self.open else { return };
        open.depth -= 1;
        if open.depth == 0 {
            // Includes the IRETQ.
            self.close(self.completed(counted).1 + 1);
        }
    }

    /// Records that the kernel switches to another task. If that is a kernel thread, the interrupted task continues
    /// after it, and so does the interrupt.
    pub fn switch(&mut self, counted: Instructions) {
        self.expect_handler();
        self.notice_user(counted);
        let kernel = self.completed(counted).1;
        if let Some(open) = &mut self.open {
            open.switched.get_or_insert(kernel);
        }
    }

    /// Returns the plugin's counts without the instructions that did not complete. Kernel instructions in interrupts
    /// are counted separately, including those of an interrupt that is still being handled.
    pub fn count(&mut self, counted: Instructions) -> Instructions {
        self.expect_handler();
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
        (counted.user - user, counted.kernel - kernel)
    }

    /// Closes the open interrupt at the kernel's switch to another task if user instructions have been executed since
    /// then: that task is a user task.
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

    /// Stops counting the instructions of interrupts if the handler of a delivered interrupt did not begin where the
    /// plugin expects it.
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
        // A fault outside interrupts is not an interrupt, and its write is undone.
        one.exception(14, 6, false, USER_CODE);
        one.leave(at(11, 110));
        // An interrupt that contains a kernel fault and another interrupt.
        one.exception(0xec, 0, false, USER_CODE);
        one.enter(at(20, 200));
        one.exception(14, 0, false, KERNEL_CODE);
        one.leave(at(20, 240));
        one.exception(0x30, 0, false, KERNEL_CODE);
        one.enter(at(20, 250));
        one.leave(at(20, 270));
        one.leave(at(20, 299));
        let counted = one.count(at(30, 400));
        // 99 up to the IRETQ, 100 including it, minus the undone one.
        assert_eq!(
            counted,
            Instructions {
                user: 29,
                kernel: 300,
                interrupts: Some(99)
            }
        );
        // An interrupt in which a kernel thread runs.
        one.exception(0xec, 0, false, KERNEL_CODE);
        one.enter(at(30, 410));
        assert_eq!(one.count(at(30, 460)).interrupts, Some(149));
        one.switch(at(30, 510));
        one.switch(at(30, 550));
        one.leave(at(30, 599));
        assert_eq!(one.count(at(30, 600)).interrupts, Some(289));
        // An interrupt from which the kernel switches to another program, which then makes a system call.
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
