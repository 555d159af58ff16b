//! Tests of user mode, each with a private root, a page of code and a page of data.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_linux_abi::host::Instruments;
use memwright_linux_abi::host::Registers;

use memwright_linux_abi::arch::x86_64::debug::STATUS_STEP;
use memwright_linux_abi::arch::x86_64::regs::{FpuArea, UserState};
use memwright_linux_abi::host::Trap;
use memwright_linux_base::sync;
use memwright_table::Frame;
use memwright_table::addr::MAX_CPUS;

use super::{Outcomes, check, check_time};
use crate::arch::{self, fpu};
use crate::machine::HARDWARE;
use crate::memory::frames;
use crate::memory::paging::{self, DIRECT_BASE};
use crate::{clock, host, percpu, tlb};

/// Address of the code.
pub const CODE: u64 = 0x40_0000;
/// The address of the data. The next page is not mapped.
pub const DATA: u64 = 0x40_1000;

/// A private root with the code of a test mapped at [`CODE`] and a zeroed page at [`DATA`].
pub struct UserMemory {
    root: u64,
    /// The direct-map address of the lowest-level page table.
    table: u64,
    /// The direct-map address of the page at [`DATA`].
    pub data: u64,
    pages: [u64; 6],
}

impl UserMemory {
    /// Allocates the root, the tables and the pages from frames.
    pub fn new(code: &[u8]) -> Result<Self, &'static str> {
        let mut pages = [0u64; 6];
        for page in &mut pages {
            *page = frames::allocate(0).ok_or("no frame")?;
            for at in 0..512 {
                word(*page, at).store(0, Ordering::Relaxed);
            }
        }
        let [root, third, second, first, text, data] = pages;
        for at in 256..512 {
            let entry = word(DIRECT_BASE + paging::template(), at).load(Ordering::Relaxed);
            word(root, at).store(entry, Ordering::Relaxed);
        }
        const TABLE: u64 = 7; // present, writable, user
        let link = |table, at, page: u64, bits| {
            word(table, at).store((page - DIRECT_BASE) | bits, Ordering::Relaxed);
        };
        link(root, 0, third, TABLE);
        link(third, 0, second, TABLE);
        link(second, 2, first, TABLE);
        link(first, 0, text, 5);
        link(first, 1, data, 7 | 1 << 63);
        // SAFETY: `text` is a frame of this test, larger than the code.
        unsafe {
            core::ptr::copy_nonoverlapping(code.as_ptr(), text as *mut u8, code.len().min(4096));
        }
        Ok(Self {
            root: root - DIRECT_BASE,
            table: first,
            data,
            pages,
        })
    }

    /// Returns the physical address of the root.
    pub fn root(&self) -> u64 {
        self.root
    }

    /// Exchanges the page-table entry of the page at [`DATA`]. Returns the previous entry.
    pub fn exchange_data_entry(&self, entry: u64) -> u64 {
        word(self.table, 1).swap(entry, Ordering::SeqCst)
    }

    /// Frees the root, the tables and the pages. No CPU may have loaded the root.
    pub fn release(self) {
        for page in self.pages {
            frames::release(page);
        }
    }
}

/// Loads `root`, which is the root of a test or the template, on this CPU.
pub fn load(root: u64) {
    // SAFETY: `root` contains the template's upper half, which maps the kernel.
    unsafe { tlb::load(Frame::new((root / 4096) as u32), false) };
}

/// Runs `test` with `code` mapped at [`CODE`] and a cleared page at [`DATA`].
pub fn with_user_memory(code: &[u8], test: impl FnOnce(&mut UserState) -> Outcomes) -> Outcomes {
    let memory = UserMemory::new(code)?;
    load(memory.root());
    let outcome = test(&mut UserState::start(CODE, DATA + 4096));
    load(paging::template());
    memory.release();
    outcome
}

/// Returns word `at` of the page at direct-map address `page`.
pub fn word(page: u64, at: u64) -> &'static AtomicU64 {
    // SAFETY: `page` is the direct-map address of a page table or of a frame of this test.
    unsafe { &*((page + at * 8) as *const AtomicU64) }
}

/// Serves no system call. With this function as `serve`, every call ends user mode.
extern "C" fn serve_nothing(_: *const ()) -> bool {
    false
}

/// Enters user mode and returns the trap that ended it.
pub fn run(user: &mut UserState) -> Trap {
    // SAFETY: the table belongs to the test and is made from the template, the bases are zero or canonical, and the
    // state is not used otherwise.
    unsafe { host::run(user, serve_nothing as *const (), core::ptr::null()) }
}

/// Counts a system call in `served`. Returns whether it is the first one, which is served.
extern "C" fn serve_one(served: *const AtomicU64) -> bool {
    // SAFETY: `run_two_calls` passes a live counter.
    unsafe { &*served }.fetch_add(1, Ordering::Relaxed) == 0
}

/// Enters user mode for two system calls, the first of which returns directly to user mode. If the clock does not count
/// instructions, the first call can take so long that the CPU measures its stretch on the return. The function then
/// enters user mode again.
fn run_two_calls(user: &mut UserState) -> Outcomes {
    let served = AtomicU64::new(0);
    let argument = core::ptr::from_ref(&served).cast();
    loop {
        // SAFETY: the argument of `run` applies; the counter outlives the call.
        let trap = unsafe { host::run(user, serve_one as *const (), argument) };
        let is_measured = !clock::counts_nanoseconds() && served.load(Ordering::Relaxed) == 1;
        if trap != Trap::Syscall || !is_measured {
            return check(
                trap == Trap::Syscall && served.load(Ordering::Relaxed) == 2,
                "not two system calls",
            );
        }
    }
}

/// mov eax, 39; syscall; nop; syscall
const TWO_CALLS: &[u8] = &[0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x90, 0x0f, 0x05];

pub fn registers_survive() -> Outcomes {
    with_user_memory(TWO_CALLS, |user| {
        user.regs.rbx = 1;
        user.regs.rbp = 2;
        user.regs.rdi = 3;
        user.regs.r10 = 4;
        user.regs.r15 = 5;
        user.fs_base = 0x7000_0000_1000;
        user.gs_base = 0x7000_0000_2000;
        let start = *user;
        HARDWARE.load_bases(user);
        check(run(user) == Trap::Syscall, "no system call")?;
        check(
            user.regs.orig_rax == 39 && user.regs.rip == CODE + 7,
            "wrong call",
        )?;
        user.regs.rax = 77;
        // The second return is by IRET: RCX no longer contains the instruction pointer.
        user.regs.rcx = 6;
        check(run(user) == Trap::Syscall, "no second system call")?;
        check(
            user.regs.orig_rax == 77 && user.regs.rip == CODE + 10,
            "wrong second call",
        )?;
        (user.fs_base, user.gs_base) = (0, 0);
        HARDWARE.store_bases(user);
        let mut expected = start;
        expected.regs.rip = user.regs.rip;
        expected.regs.rcx = user.regs.rip;
        expected.regs.r11 = user.regs.rflags;
        expected.regs.rax = 77;
        expected.regs.orig_rax = 77;
        check(*user == expected, "a register changed")
    })?;
    with_user_memory(TWO_CALLS, |user| {
        let regs = &mut user.regs;
        (regs.rbx, regs.rbp, regs.rdx, regs.rsi, regs.rdi) = (1, 2, 3, 4, 5);
        (regs.r8, regs.r9, regs.r10, regs.r12) = (6, 7, 8, 9);
        (regs.r13, regs.r14, regs.r15) = (10, 11, 12);
        let mut expected = *user;
        run_two_calls(user)?;
        expected.regs.rip = CODE + 10;
        expected.regs.rcx = CODE + 10;
        expected.regs.r11 = user.regs.rflags;
        (expected.regs.rax, expected.regs.orig_rax) = (39, 39);
        check(*user == expected, "a system call changed a register")
    })
}

pub fn traps_are_told_apart() -> Outcomes {
    // mov [DATA + 4096], eax
    let write = [0x89, 0x04, 0x25, 0x00, 0x20, 0x40, 0x00];
    with_user_memory(&write, |user| {
        let address = DATA + 4096;
        let fault = Trap::PageFault {
            address,
            write: true,
            fetch: false,
            present: false,
        };
        check(run(user) == fault, "write to nothing")?;
        user.regs.rip = DATA;
        let fault = Trap::PageFault {
            address: DATA,
            write: false,
            fetch: true,
            present: true,
        };
        check(run(user) == fault, "fetch of data")?;
        user.regs.rip = paging::DIRECT_BASE;
        let general = Trap::Exception {
            vector: 13,
            error: 0,
        };
        check(run(user) == general, "jump to the kernel")
    })?;
    with_user_memory(&[0xcc], |user| {
        let breakpoint = Trap::Exception {
            vector: 3,
            error: 0,
        };
        check(
            run(user) == breakpoint && user.regs.rip == CODE + 1,
            "breakpoint",
        )
    })?;
    with_user_memory(&[0xfa], |user| {
        let general = Trap::Exception {
            vector: 13,
            error: 0,
        };
        check(run(user) == general && user.regs.rip == CODE, "cli")
    })?;
    // Single step by the trap flag.
    with_user_memory(&[0x90, 0x90], |user| {
        user.regs.rflags |= 1 << 8;
        let step = Trap::Exception {
            vector: 1,
            error: STATUS_STEP,
        };
        check(
            run(user) == step && user.regs.rip == CODE + 1,
            "single step",
        )
    })
}

/// Enters user mode and returns the number of instructions counted there. Fails unless the trap `expected` ends user
/// mode.
fn count(user: &mut UserState, expected: Trap) -> Result<u64, &'static str> {
    let before = HARDWARE.user_instructions();
    let trap = run(user);
    let counted = HARDWARE.user_instructions() - before;
    if trap == expected {
        Ok(counted)
    } else {
        Err("another trap")
    }
}

/// Tests that the instructions of the two entries to user mode and of the two exits are not counted as the program's.
/// Skipped with several CPUs, because the clock then counts the instructions of all CPUs. Also skipped with a clock
/// that does not count instructions.
pub fn instructions_are_counted() -> Outcomes {
    if percpu::count() > 1 || !clock::counts_nanoseconds() {
        return Ok(());
    }
    // mov ecx, 1000; dec ecx; jnz; syscall; and the same with UD2 at the end
    let code = [
        0xb9, 0xe8, 3, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0x0f, 0x05, //
        0xb9, 0xe8, 3, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0x0f, 0x0b,
    ];
    let invalid = Trap::Exception {
        vector: 6,
        error: 0,
    };
    with_user_memory(&code, |user| {
        let iret_to_call = count(user, Trap::Syscall)?;
        let sysret_to_fault = count(user, invalid)?;
        user.regs.rip = CODE + 11;
        let iret_to_fault = count(user, invalid)?;
        user.regs.rip = CODE;
        user.regs.rcx = CODE;
        user.regs.r11 = user.regs.rflags;
        let sysret_to_call = count(user, Trap::Syscall)?;
        let counts = [iret_to_call, sysret_to_call, iret_to_fault, sysret_to_fault];
        if counts != [2_002, 2_002, 2_001, 2_001] {
            crate::log!("counted {counts:?}");
            return Err("the counts differ from 2,002 with SYSCALL and 2,001 before UD2");
        }
        Ok(())
    })?;
    // mov ecx, 1000; dec ecx; jnz; syscall; twice
    let call = [0xb9, 0xe8, 3, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0x0f, 0x05];
    let mut calls = [0; 22];
    calls[..11].copy_from_slice(&call);
    calls[11..].copy_from_slice(&call);
    with_user_memory(&calls, |user| {
        let before = HARDWARE.user_instructions();
        run_two_calls(user)?;
        let counted = HARDWARE.user_instructions() - before;
        if counted != 4_004 {
            crate::log!("counted {counted}");
            return Err("the count differs from 4,004 with a system call between");
        }
        Ok(())
    })
}

/// Measures the complete path of a null system call, without the personality.
pub fn round_trip_is_short() -> Outcomes {
    with_user_memory(TWO_CALLS, |user| {
        check(run(user) == Trap::Syscall, "no system call")?;
        let before = arch::ticks();
        check(run(user) == Trap::Syscall, "no system call")?;
        let spent = arch::ticks() - before;
        crate::log!("selftest: into user mode and back takes {spent} instructions");
        // Debug builds execute additional checks.
        let most = if cfg!(debug_assertions) { 170 } else { 150 };
        check_time(spent <= most, "it takes more than 150 instructions")
    })
}

pub fn deadline_interrupts() -> Outcomes {
    // jmp to itself
    with_user_memory(&[0xeb, 0xfe], |user| {
        let deadline = clock::now() + 100_000;
        clock::set_deadline(Some(deadline));
        check(run(user) == Trap::Timer, "another trap")?;
        let late = clock::now() - deadline;
        check(user.regs.rip == CODE, "it stopped elsewhere")?;
        check_time(late < 500, "it was late")
    })
}

/// Loads `pattern` into a 256-bit register.
fn set_vector(pattern: &[u64; 4]) {
    // SAFETY: no code of the kernel uses vector registers.
    unsafe { asm!("vmovdqu ymm5, [{}]", in(reg) pattern, options(nostack, readonly)) };
}

/// Returns the contents of the register that `set_vector` loads.
fn vector() -> [u64; 4] {
    let mut pattern = [0; 4];
    // SAFETY: no code of the kernel uses vector registers.
    unsafe { asm!("vmovdqu [{}], ymm5", in(reg) &mut pattern, options(nostack)) };
    pattern
}

pub fn extended_state_survives() -> Outcomes {
    let (one, other) = ([1, 2, 3, 4], [5, 6, 7, 8]);
    let mut area = FpuArea::INITIAL;
    check(
        fpu::size() >= 832 && fpu::size() <= FpuArea::SIZE,
        "unexpected size",
    )?;
    set_vector(&one);
    fpu::save(&mut area);
    set_vector(&other);
    check(vector() == other, "not set")?;
    fpu::restore(&area);
    check(vector() == one, "not restored")?;
    fpu::restore(&FpuArea::INITIAL);
    check(vector() == [0; 4], "the initial state is not clear")
}

/// The time in nanoseconds between two timer interrupts of `spin`. If the clock counts instructions, a CPU keeps its
/// turn for this time.
const TICK: u64 = 1_000_000;

/// For each CPU, the address of the page whose last word is set once the CPU spins in user mode; 0 for none.
static SPINNING: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// Returns whether CPU `index` has reached the loop of [`spin`].
pub fn spins(index: usize) -> bool {
    let data = SPINNING[index].load(Ordering::Acquire);
    data != 0 && word(data, 511).load(Ordering::Relaxed) != 0
}

/// Stays in user mode forever. If QEMU runs the CPUs in turn, the timer interrupts user mode to end this CPU's turn. A
/// request to stop the machine then often arrives while this CPU is in an interrupt handler.
pub fn spin() {
    // mov byte ptr [rsp - 8], 1; jmp to itself
    let Ok(memory) = UserMemory::new(&[0xc6, 0x44, 0x24, 0xf8, 1, 0xeb, 0xfe]) else {
        return;
    };
    load(memory.root());
    SPINNING[sync::cpu().index()].store(memory.data, Ordering::Release);
    let mut user = UserState::start(CODE, DATA + 4096);
    let in_turns = percpu::count() > 1 && clock::counts_nanoseconds();
    loop {
        clock::set_deadline(in_turns.then(|| clock::now() + TICK));
        run(&mut user);
    }
}
