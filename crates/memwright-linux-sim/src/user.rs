//! User mode: performs the operations of the program, one after another.

use memwright_linux::run::{Execution, UserThread};
use memwright_linux_abi::arch::x86_64::regs::UserRegs;
use memwright_linux_abi::host::Trap;
use memwright_table::VirtAddr;

use crate::host::{CPU, Simulated};
use crate::program::{ARENA, Argument, CODE, DATA, Operation};
use memwright_sim::locked::locked;
use memwright_sim::mmu::PageFault;

/// The end of the lower half of the address space. Addresses from here to `UPPER_START` are not canonical.
const LOWER_END: u64 = 1 << 47;
const UPPER_START: u64 = LOWER_END.wrapping_neg();

const RT_SIGRETURN: u64 = 15;
const EXIT_GROUP: u64 = 231;

/// The vectors of the exceptions that [`Operation::Exception`] can raise.
const EXCEPTIONS: [u8; 6] = [0, 3, 4, 6, 13, 17];

impl Execution for Simulated {
    fn run_user(&self, thread: &UserThread<'_>) -> Trap {
        if let Some(begins) = locked(&self.more.begins).take() {
            begins();
        }
        loop {
            if let Some(trap) = self.more.interrupt() {
                return trap;
            }
            let in_time = self.more.tick();
            let regs = thread.registers().state().regs;
            let place = regs.rip.wrapping_sub(CODE);
            let end = 2 * self.more.operations.len() as u64;
            let stepped = if place >= end || place % 2 != 0 || !in_time {
                self.elsewhere(thread, regs, place == end || !in_time)
            } else {
                let place = (place / 2) as usize;
                let operations = &self.more.operations;
                if matches!(operations[..place].last(), Some(Operation::Call(..))) {
                    locked(&self.more.calls).returned(&regs);
                }
                self.perform(thread, operations[place], regs)
            };
            if let Some(trap) = stepped {
                return trap;
            }
        }
    }
}

impl Simulated {
    fn perform(
        &self,
        thread: &UserThread<'_>,
        operation: Operation,
        regs: UserRegs,
    ) -> Option<Trap> {
        let next = UserRegs {
            rip: regs.rip + 2,
            ..regs
        };
        let resolve = |argument| resolve(argument, &regs);
        match operation {
            Operation::Call(number, arguments) => {
                let [rdi, rsi, rdx, r10, r8, r9] = arguments.map(resolve);
                locked(&self.more.calls).made(u64::from(number), rsi, rdx);
                thread.registers().state().regs = UserRegs {
                    rdi,
                    rsi,
                    rdx,
                    r10,
                    r8,
                    r9,
                    // R12 to R15 contain the results of the four calls before this one: each call moves each result to
                    // the next register.
                    r12: regs.rax,
                    r13: regs.r12,
                    r14: regs.r13,
                    r15: regs.r14,
                    ..next
                };
                return call(thread, u64::from(number));
            }
            Operation::Store(address, value) => {
                let access = |at| self.machine.on(CPU).write(at, &value.to_le_bytes());
                if let Err(trap) = touch(resolve(address), access) {
                    return Some(trap);
                }
            }
            Operation::Load(address) => {
                let access = |at| self.machine.on(CPU).read(at, &mut [0; 8]);
                if let Err(trap) = touch(resolve(address), access) {
                    return Some(trap);
                }
            }
            Operation::Exception(which) => {
                let vector = EXCEPTIONS[usize::from(which) % EXCEPTIONS.len()];
                thread.registers().state().regs = next;
                return Some(Trap::Exception { vector, error: 0 });
            }
        }
        thread.registers().state().regs = next;
        None
    }

    /// Runs user mode at an address that is no operation of the program. At the end of the program (`ends`), the
    /// program exits. A program that was loaded from a file exits at its first instruction. Otherwise the address is
    /// that of a signal handler, which returns at once.
    fn elsewhere(&self, thread: &UserThread<'_>, regs: UserRegs, ends: bool) -> Option<Trap> {
        if ends {
            locked(&self.more.calls).returned(&regs);
            return call(thread, EXIT_GROUP);
        }
        if let Err(trap) = touch(regs.rip, |at| self.machine.on(CPU).fetch(at).map(drop)) {
            return Some(trap);
        }
        if let Err(trap) = touch(regs.rsp, |at| self.machine.on(CPU).read(at, &mut [0; 8])) {
            return Some(trap);
        }
        if regs.orig_rax == u64::MAX && regs.rax == 0 && regs.rbp == 0 && regs.rdi == 0 {
            // The registers are those of a program that was just loaded from a file.
            return call(thread, EXIT_GROUP);
        }
        thread.registers().state().regs.rsp = regs.rsp.wrapping_add(8);
        call(thread, RT_SIGRETURN)
    }
}

/// Performs a system call. Returns `None` if user mode continues, or the trap that returns to the personality.
fn call(thread: &UserThread<'_>, number: u64) -> Option<Trap> {
    {
        let mut state = thread.registers().state();
        state.regs.orig_rax = number;
        state.regs.rax = number;
    }
    (!thread.serve()).then_some(Trap::Syscall)
}

/// Performs a user-mode access to the 8 bytes at `address`. Returns the trap that it causes, if any.
fn touch(address: u64, access: impl FnOnce(VirtAddr) -> Result<(), PageFault>) -> Result<(), Trap> {
    let fault = |address, write, fetch, present| Trap::PageFault {
        address,
        write,
        fetch,
        present,
    };
    if address >= UPPER_START {
        return Err(fault(address, false, false, true));
    }
    if address > LOWER_END - 8 {
        return Err(Trap::Exception {
            vector: 13,
            error: 0,
        });
    }
    access(VirtAddr::new(address)).map_err(|page_fault| {
        let code = page_fault.code;
        assert!(!code.reserved, "{page_fault:?}");
        let address = page_fault.address.as_u64();
        fault(address, code.write, code.fetch, code.present)
    })
}

fn resolve(argument: Argument, regs: &UserRegs) -> u64 {
    match argument {
        Argument::Value(value) => value,
        Argument::Data(offset) => DATA + u64::from(offset),
        Argument::Arena(page, offset) => ARENA + u64::from(page) * 4096 + u64::from(offset % 4096),
        Argument::Result(back) => match back % 5 {
            0 => regs.rax,
            1 => regs.r12,
            2 => regs.r13,
            3 => regs.r14,
            _ => regs.r15,
        },
    }
}
