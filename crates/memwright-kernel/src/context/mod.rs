//! Kernel stacks and context switches.
//!
//! A context is a slot in the area of stacks. The stack is at the upper end of the slot. The pages below the stack are
//! unmapped, so that an overflow faults. Context 0 is the exception: it is the boot stack, which the idle loop of the
//! first CPU uses later. The idle loops of the other CPUs have slots.

pub mod depth;

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use memwright_linux_abi::host::{ContextId, OutOfMemory, StackDepth};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::MAX_CPUS;

use crate::clock::stretch;
use crate::memory::frames;
use crate::memory::paging::{self, BOOT_STACK_SIZE, STACKS_BASE};
use crate::trace::Kind;
use crate::{arch, ipi, percpu, usercopy};

/// The number of slots, and so of contexts in addition to the boot context.
const SLOTS: usize = 8192;
/// The maximum number of contexts for threads. Each CPU also needs a context for its idle loop, and may still hold a
/// context that it has just left.
pub const MOST: usize = SLOTS - 2 * MAX_CPUS;
/// Size of a slot in bytes.
const SLOT_SIZE: u64 = 64 * 1024;
/// Number of pages in a stack.
const STACK_PAGES: u64 = 8;
const PAGE: u64 = 4096;
/// The maximum number of mapped stacks that are kept for future contexts.
const SPARE: usize = 64;
/// The maximum number of mapped stacks that a machine with a single CPU keeps, because such a machine creates and
/// destroys few stacks at a time.
const SPARE_OF_ONE: usize = 8;
/// The maximum number of stacks that are unmapped together. Each batch interrupts every CPU once.
const BATCH: usize = 16;

/// The saved stack pointer of each context, by the number of the context.
static SAVED: [AtomicU64; SLOTS + 1] = [const { AtomicU64::new(0) }; SLOTS + 1];

struct Slots {
    /// One bit for each slot in use.
    used: [u64; SLOTS / 64],
    /// Mapped slots that are not in use.
    spare: [u32; SPARE + 1],
    spares: usize,
}

static SLOT_TABLE: Lock<Slots> = Lock::new(
    Rank::Leaf,
    Slots {
        used: [0; SLOTS / 64],
        spare: [0; SPARE + 1],
        spares: 0,
    },
);

/// Returns the address of the first byte past the stack of a slot.
const fn top(slot: u32) -> u64 {
    STACKS_BASE + (slot as u64 + 1) * SLOT_SIZE
}

const fn bottom(slot: u32) -> u64 {
    top(slot) - STACK_PAGES * PAGE
}

/// Fills the unused part of the boot stack with the pattern of [`depth`].
pub fn fill_boot_stack() {
    /// The number of bytes below the stack pointer that this function and its callees may use.
    const OWN: u64 = 4096;
    let pointer = arch::stack_pointer();
    if let Some((bottom, _)) = stack_of(pointer) {
        // SAFETY: no frame uses memory so far below the stack pointer.
        unsafe { depth::fill(bottom, (pointer - OWN) & !7) };
    }
}

/// Measures the depth of the calling thread's stack after the system call `number`.
pub fn after_call(number: u64) {
    if let Some((bottom, top)) = stack_of(arch::stack_pointer()) {
        // SAFETY: this CPU runs on the stack.
        unsafe { depth::after_call(bottom, top, number) };
    }
}

/// Returns the largest depth of any stack; `None` without debug assertions.
pub fn deepest_stack() -> Option<StackDepth> {
    if cfg!(debug_assertions) {
        look_at_all();
    }
    depth::known()
}

/// Measures the largest depth reached on each mapped stack.
fn look_at_all() {
    let guard = paging::image().guard;
    // SAFETY: the boot stack is always mapped.
    unsafe { depth::look(guard + PAGE, guard + PAGE + BOOT_STACK_SIZE as u64, None) };
    for slot in 0..SLOTS as u32 {
        let slots = SLOT_TABLE.lock();
        let used = slots.used[slot as usize / 64] & (1 << (slot % 64)) != 0;
        let mapped = used || slots.spare[..slots.spares].contains(&slot);
        drop(slots);
        if mapped {
            // SAFETY: the stack is mapped; the run is over, and no context is created or destroyed.
            unsafe { depth::look(bottom(slot), top(slot), None) };
        }
    }
}

/// Returns the bounds of the stack that contains `address`: its lowest byte and one past its highest byte.
pub fn stack_of(address: u64) -> Option<(u64, u64)> {
    let guard = paging::image().guard;
    let boot = (guard + PAGE, guard + PAGE + BOOT_STACK_SIZE as u64);
    if (boot.0..boot.1).contains(&address) {
        return Some(boot);
    }
    let slot = slot_of(address)?;
    (address >= bottom(slot)).then_some((bottom(slot), top(slot)))
}

fn slot_of(address: u64) -> Option<u32> {
    let slot = address.checked_sub(STACKS_BASE)? / SLOT_SIZE;
    (slot < SLOTS as u64).then_some(slot as u32)
}

/// Returns whether `address` is in a guard page. An access to a guard page is an overflow of the stack above it.
pub fn is_guard(address: u64) -> bool {
    let guard = paging::image().guard;
    (guard..guard + PAGE).contains(&address)
        || slot_of(address).is_some_and(|slot| address < bottom(slot))
}

global_asm!(
    r#"
    // context_switch(save: *mut u64, next: *const u64): the load of RSP is the instruction by which Linux switches
    // tasks, so a plugin that counts instructions from outside recognises it (plugin/count.c)
    .balign 32
    .globl context_switch
context_switch:
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    mov [rdi], rsp
    .byte 0x48, 0x8b, 0xa6          // mov rsp, [rsi + 0]
    .long 0
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret

    .balign 32
    .globl context_begin
context_begin:
    mov rdi, rbx
    jmp context_main                // RBP and the return address are zero: the end of every backtrace
"#
);

unsafe extern "C" {
    fn context_switch(save: *mut u64, next: *const u64);
    fn context_begin();
}

#[unsafe(no_mangle)]
extern "C" fn context_main(argument: usize) -> ! {
    reap();
    match usercopy::events() {
        Some(events) => events.context_start(argument),
        None => panic!("a context started before the personality"),
    }
}

/// Creates a context for the idle loop of a CPU that is about to be started. The CPU starts on it at [`stack_top`].
///
/// # Errors
/// The errors of [`create`].
pub fn create_idle() -> Result<ContextId, OutOfMemory> {
    map_new().map(|slot| ContextId(slot + 1))
}

/// Returns the first byte past the stack of `context`, which is not the boot context.
pub fn stack_top(context: ContextId) -> u64 {
    top(context.0 - 1)
}

/// Creates a context. The first switch to it calls `KernelEvents::context_start` with `argument`.
///
/// # Errors
/// [`OutOfMemory`] if there is no free slot, or no frame for its stack.
pub fn create(argument: usize) -> Result<ContextId, OutOfMemory> {
    reap();
    let spare = {
        let mut slots = SLOT_TABLE.lock();
        slots.spares.checked_sub(1).map(|last| {
            slots.spares = last;
            let slot = slots.spare[last];
            slots.mark(slot, true);
            slot
        })
    };
    let slot = match spare {
        Some(slot) => slot,
        None => map_new()?,
    };
    // The values that the first switch pops: six registers, which include `argument` in RBX, and the entry point.
    let begin = context_begin as *const () as usize as u64;
    let initial = [0, 0, 0, 0, argument as u64, 0, begin, 0];
    let stack = top(slot) - size_of_val(&initial) as u64;
    // SAFETY: the stack is mapped and not in use.
    unsafe { (stack as *mut [u64; 8]).write(initial) };
    SAVED[slot as usize + 1].store(stack, Ordering::Relaxed);
    Ok(ContextId(slot + 1))
}

impl Slots {
    fn mark(&mut self, slot: u32, used: bool) {
        let bit = 1 << (slot % 64);
        let word = &mut self.used[slot as usize / 64];
        if used { *word |= bit } else { *word &= !bit }
    }

    /// Takes the lowest slot that is neither in use nor spare. Returns its number, or `None` if there is none.
    fn take(&mut self) -> Option<u32> {
        let spare = &self.spare[..self.spares];
        let word_count = self.used.len() as u32;
        let slot = (0..word_count)
            .filter(|&word| self.used[word as usize] != u64::MAX)
            .flat_map(|word| (0..64).map(move |bit| (word, bit)))
            .filter(|&(word, bit)| self.used[word as usize] & (1 << bit) == 0)
            .map(|(word, bit)| word * 64 + bit)
            .find(|slot| !spare.contains(slot))?;
        self.mark(slot, true);
        Some(slot)
    }
}

/// Takes a slot and maps its stack. Returns the number of the slot.
fn map_new() -> Result<u32, OutOfMemory> {
    // Allocate the frames before taking the lock: those of the stack, and two for page tables.
    const NEEDED: usize = STACK_PAGES as usize + 2;
    let mut pages = [0; NEEDED];
    for at in 0..NEEDED {
        match frames::allocate(0) {
            Some(page) => pages[at] = page - paging::DIRECT_BASE,
            None => {
                give_back(&pages[..at]);
                return Err(OutOfMemory);
            }
        }
    }
    let mut left = NEEDED;
    let mut slots = SLOT_TABLE.lock();
    let taken = slots.take();
    if let Some(slot) = taken {
        for page in 0..STACK_PAGES {
            left -= 1;
            let physical = pages[left];
            let mut table = || {
                left = left.checked_sub(1)?;
                Some(pages[left])
            };
            // Mapping the first page may need both page tables; the other pages use the same tables.
            let mapped = paging::map_stack_page(bottom(slot) + page * PAGE, physical, &mut table);
            debug_assert!(mapped.is_some());
        }
    }
    drop(slots);
    give_back(&pages[..left]);
    if let Some(slot) = taken {
        // SAFETY: the stack was just mapped and is not in use yet.
        unsafe { depth::fill(bottom(slot), top(slot)) };
    }
    taken.ok_or(OutOfMemory)
}

fn give_back(pages: &[u64]) {
    for page in pages {
        frames::release(paging::DIRECT_BASE + page);
    }
}

/// Saves the running context as `from` and resumes `to`. Returns when another context switches back to `from`.
#[inline]
pub fn switch(from: ContextId, to: ContextId) {
    let cpu = percpu::current();
    let changed = cpu.changed.load(Ordering::Relaxed);
    cpu.ring
        .record(Kind::Switch, u64::from(to.0), u64::from(from.0), changed);
    cpu.end_interrupt();
    stretch::end(cpu);
    let next = SAVED[to.0 as usize].as_ptr().cast_const();
    let (fs_base, gs_base) = arch::user_bases();
    // Keep these values on the stack of the context. The context needs them to return to user mode, possibly on another
    // CPU.
    let user_state = cpu.user_state.load(Ordering::Relaxed);
    let kernel_stack = cpu.kernel_stack.load(Ordering::Relaxed);
    // SAFETY: the personality passes the running context as `from`, and a context that is not running as `to`. The
    // saved stack pointer was stored by `create` or by an earlier switch away from `to`. The bases were read from the
    // processor.
    unsafe {
        context_switch(SAVED[from.0 as usize].as_ptr(), next);
        arch::load_user_bases(fs_base, gs_base);
    }
    // The context may have moved to another CPU.
    let cpu = percpu::current();
    cpu.user_state.store(user_state, Ordering::Relaxed);
    cpu.kernel_stack.store(kernel_stack, Ordering::Relaxed);
    reap();
}

/// Frees a context that will not run again. If it is the running context, it is freed once this CPU has left its stack.
pub fn destroy(context: ContextId) {
    let cpu = percpu::current();
    let Some(slot) = context.0.checked_sub(1) else {
        return; // the boot context stays
    };
    reap();
    if slot_of(arch::stack_pointer()) == Some(slot) {
        cpu.leaving.store(u64::from(context.0), Ordering::Relaxed);
    } else {
        free(slot);
    }
}

/// Frees the context that this CPU has left for the last time, if there is one.
#[inline(always)]
fn reap() {
    let cpu = percpu::current();
    let leaving = cpu.leaving.load(Ordering::Relaxed);
    if leaving != 0 && slot_of(arch::stack_pointer()) != Some(leaving as u32 - 1) {
        cpu.leaving.store(0, Ordering::Relaxed);
        free(leaving as u32 - 1);
    }
}

#[cold]
fn free(slot: u32) {
    let (most, batch) = if percpu::count() == 1 {
        (SPARE_OF_ONE, 1)
    } else {
        (SPARE, BATCH)
    };
    let surplus = {
        let mut slots = SLOT_TABLE.lock();
        slots.mark(slot, false);
        let at = slots.spares;
        slots.spare[at] = slot;
        slots.spares += 1;
        slots.take_surplus(most, batch)
    };
    unmap(&surplus.0[..surplus.1]);
}

impl Slots {
    /// If there are more than `most` spare stacks, removes `batch` of them. The slots of these stacks are marked as
    /// used until the stacks are unmapped.
    fn take_surplus(&mut self, most: usize, batch: usize) -> ([u32; BATCH], usize) {
        let mut surplus = [0; BATCH];
        if self.spares <= most {
            return (surplus, 0);
        }
        self.spares -= batch;
        for (to, at) in surplus[..batch].iter_mut().zip(self.spares..) {
            *to = self.spare[at];
            self.mark(*to, true);
        }
        (surplus, batch)
    }
}

/// Unmaps stacks that are not in use. Frees their slots and frames once no CPU has translations for them.
fn unmap(slots: &[u32]) {
    if slots.is_empty() {
        return;
    }
    if cfg!(debug_assertions) {
        for &slot in slots {
            // SAFETY: the stack is mapped until the code below unmaps it; no other code unmaps it.
            unsafe { depth::look(bottom(slot), top(slot), None) };
        }
    }
    let mut pages = [[0; STACK_PAGES as usize]; BATCH];
    for (&slot, pages) in slots.iter().zip(&mut pages) {
        for (at, page) in pages.iter_mut().enumerate() {
            let address = bottom(slot) + at as u64 * PAGE;
            *page = paging::unmap_stack_page(address).expect("a spare stack is mapped");
        }
    }
    if percpu::count() == 1 {
        for &slot in slots {
            for address in (bottom(slot)..top(slot)).step_by(PAGE as usize) {
                arch::invalidate_page(address);
            }
        }
    } else {
        ipi::invalidate_kernel();
    }
    {
        let mut table = SLOT_TABLE.lock();
        for &slot in slots {
            table.mark(slot, false);
        }
    }
    for pages in &pages[..slots.len()] {
        give_back(pages);
    }
}
