//! What a kernel spends in interrupts, and which instructions that began did not complete.
//!
//! The plugin counts an instruction when it begins. QEMU's log reports every exception and interrupt, and the plugin the
//! first instruction of an interrupt's handler, every IRETQ and every switch to another task.

use crate::model::counts::{FETCH, FIRST_INTERRUPT, Instructions, PAGE_FAULT};

/// General protection.
const GENERAL_PROTECTION: u8 = 13;
/// The exceptions that come between two instructions, or behind one that completed, or end everything: debug, NMI,
/// breakpoint, overflow, double fault, machine check.
const NOT_FAULTS: [u8; 6] = [1, 2, 3, 4, 8, 18];

/// Whether an exception at `address` took back an instruction that had begun. A fetch that faults begins none.
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

/// An interrupt that is being served.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// Instructions of the upper half before its handler's first.
    before: u64,
    /// Instructions of the lower half then: none is executed before it ends.
    user: u64,
    /// How many exceptions and interrupts have not returned, itself included.
    depth: u64,
    /// Instructions of the upper half where the kernel first went on with another task.
    switched: Option<u64>,
}

/// Follows the interrupts of one CPU, and the instructions that did not complete.
#[derive(Debug, Default)]
pub struct Interrupts {
    undone: [u64; 2],
    /// What all of them took; `None` where the handlers are not known.
    spent: Option<u64>,
    delivered: bool,
    open: Option<Open>,
}

impl Interrupts {
    /// From now on the plugin tells where handlers begin.
    pub fn handlers_are_known(&mut self) {
        (self.spent, self.delivered, self.open) = (Some(0), false, None);
    }

    /// An exception or interrupt is delivered at `address`.
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

    /// The first instruction of a handler is next.
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

    /// IRETQ is next.
    pub fn leave(&mut self, counted: Instructions) {
        self.expect_handler();
        self.notice_user(counted);
        let Some(open) = &mut self.open else { return };
        open.depth -= 1;
        if open.depth == 0 {
            // With the IRETQ.
            self.close(self.completed(counted).1 + 1);
        }
    }

    /// The kernel goes on with another task. If that is a thread of the kernel, the interrupted task goes on after it, and
    /// the interrupt with it.
    pub fn switch(&mut self, counted: Instructions) {
        self.expect_handler();
        self.notice_user(counted);
        let kernel = self.completed(counted).1;
        if let Some(open) = &mut self.open {
            open.switched.get_or_insert(kernel);
        }
    }

    /// What of the plugin's counts completed.
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

    /// Ends the interrupt where the kernel went on with another task if that was a program's, which executes now.
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

    /// An interrupt whose handler did not begin where the plugin looks: what interrupts take is not known.
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
        // A fault outside is no interrupt, and its write is undone.
        one.exception(14, 6, false, USER_CODE);
        one.leave(at(11, 110));
        // One with a fault of the kernel's and another interrupt inside.
        one.exception(0xec, 0, false, USER_CODE);
        one.enter(at(20, 200));
        one.exception(14, 0, false, KERNEL_CODE);
        one.leave(at(20, 240));
        one.exception(0x30, 0, false, KERNEL_CODE);
        one.enter(at(20, 250));
        one.leave(at(20, 270));
        one.leave(at(20, 299));
        let counted = one.count(at(30, 400));
        // 99 to the IRETQ, with it 100, less the one that was undone.
        assert_eq!(
            counted,
            Instructions {
                user: 29,
                kernel: 300,
                interrupts: Some(99)
            }
        );
        // One in which a thread of the kernel runs.
        one.exception(0xec, 0, false, KERNEL_CODE);
        one.enter(at(30, 410));
        assert_eq!(one.count(at(30, 460)).interrupts, Some(149));
        one.switch(at(30, 510));
        one.switch(at(30, 550));
        one.leave(at(30, 599));
        assert_eq!(one.count(at(30, 600)).interrupts, Some(289));
        // One from which the kernel goes on with another program, which then makes a system call.
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
