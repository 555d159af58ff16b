//! Interrupts between CPUs: look at the run queue, forget translations, stand still, end a halt.
//!
//! # Who answers when
//! The kernel runs with interrupts disabled, so an interrupt strikes a CPU in user mode, or while it
//! idles; to a CPU in the kernel it stays pending. Such a CPU answers in every step of a spin wait
//! ([`relax`]), and at the latest when it enables interrupts: `enter_user` does that by the very
//! SYSRET or IRET that begins user mode, and `idle` by the STI before HLT. Neither instruction
//! lets one of user mode through before the pending interrupt is taken (IRET and SYSRET shadow
//! nothing; STI shadows only the HLT, which the interrupt then ends).
//!
//! # Why no stale translation is used after the answer
//! - User mode: the interrupt comes between two of its instructions, and it goes on behind the answer.
//! - User copies: they run with interrupts disabled and wait for nothing between two accesses. If
//!   one faults, the handler may wait and so answer; then the processor walks the tables
//!   again for the access it retries. Nothing remembers a translation but the processor.
//! - A change of the root drops all translations of the old one but the kernel's. A CPU that is asked about a
//!   root that it has not loaded has nothing of it, or with tags forgets what it kept. If it loads that root at the same time: it
//!   put itself into the set of those who are asked before it did, by a full barrier. Either the
//!   one that asks sees it there, or its changes of the table, made before it looked,
//!   are seen by every walk through the root.
//! - A CPU that is being started has loaded the kernel's own table and is asked about no other.
//!
//! # Why no CPU waits for ever
//! A CPU that waits for an answer, a lock, or for others to stand still does so by [`relax`], which
//! answers, or by [`halt`]. A CPU that halts or stands still answers too: the interrupt ends its HLT. What
//! neither waits nor returns to user mode nor idles is a kernel that hangs.
//!
//! # Why no wake is lost
//! A CPU announces that it halts, looks again at what it waits for, and halts, all with interrupts
//! disabled up to the STI right before the HLT. An interrupt of [`wake`] that comes after the announcement is pending
//! by then, or ends the HLT. What else comes during a halt (the end of a time slice, a kick, control
//! bytes) is noted, and [`resume`] interrupts the CPU with it again once its wait is over: not
//! before, or it would end the next halt of the same wait at once.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memwright_kernel_logic::shootdown::{Order, Shootdown, Wait};
use memwright_linux::host::InterruptKind;
use memwright_table::Frame;
use memwright_table::machine::Invalidation;
use memwright_table::sync::{SPINS, stat};

use crate::machine::invalidate_here;
use crate::percpu::{self, PerCpu};
use crate::trap::idt::vector;
use crate::{apic, arch, clock, control, stretch, tlb};

/// In an [`Order`]: the kernel's own translations.
const KERNEL_ROOT: u64 = 0;

static SHOOTDOWN: Shootdown = Shootdown::new();

/// Who made the others stand still: one more than the CPU's index; 0 is nobody.
static HOLDER: AtomicU32 = AtomicU32::new(0);
/// The CPUs that stand still: a bit for each.
static STANDING: AtomicU64 = AtomicU64::new(0);

fn this_index() -> usize {
    percpu::current().index.load(Ordering::Relaxed) as usize
}

/// One step of a spin wait: pauses, and answers what other CPUs ask of this one.
#[inline]
pub fn relax() {
    arch::pause();
    answer_here();
}

/// Answers what other CPUs ask of the calling one.
#[inline]
pub fn answer_here() {
    answer(this_index());
}

/// Answers what other CPUs ask of CPU `index`, which calls.
fn answer(index: usize) {
    if SHOOTDOWN.is_asked(index) {
        forget(index);
    }
    let holder = HOLDER.load(Ordering::Acquire);
    if holder != 0 && holder as usize != index + 1 {
        stand_still(index);
    }
}

fn forget(index: usize) {
    SHOOTDOWN.serve(
        index,
        |order| {
            if order.root == KERNEL_ROOT {
                tlb::invalidate_kernel();
            } else if arch::root_address() == order.root {
                order.what.iter().for_each(invalidate_here);
            } else {
                tlb::forget(Frame::new((order.root / 4096) as u32));
            }
        },
        wake,
    );
}

/// Halts this CPU in a wait, until any interrupt comes or, with a limit, for as many nanoseconds; then
/// answers what other CPUs ask of it. The CPU may hold locks, and interrupts are enabled while it is halted:
/// their handlers take none. The time counts as idle.
#[cold]
pub fn halt(limit: Option<u32>) {
    let cpu = percpu::current();
    let start = clock::ticks();
    match limit {
        Some(limit) => clock::nap(cpu, limit),
        None => arch::wait_for_interrupt(),
    }
    let halted = clock::ticks() - start;
    percpu::add(&cpu.idle_ticks, halted);
    stretch::leave_out(cpu, halted);
    answer(this_index());
}

/// Ends the [`halt`] of CPU `index`.
pub fn wake(index: usize) {
    apic::send(percpu::apic_id(index), vector::WAKE);
}

/// The wait in which this CPU halted is over.
pub fn resume() {
    remind(percpu::current());
}

/// How a CPU waits for others to forget translations.
struct ForAnswers;

impl Wait for ForAnswers {
    fn spin(&mut self) {
        relax();
    }

    fn halt(&mut self) {
        halt(None);
    }
}

/// Whether CPU `index` has halted in its wait for others to forget translations.
pub fn halts_for_answers(index: usize) -> bool {
    SHOOTDOWN.halts(index)
}

/// Makes `targets` (a bit for each CPU) forget translations of `root`, and waits until they have.
pub fn invalidate(targets: u64, root: u64, what: &[Invalidation]) {
    let index = this_index();
    let targets = targets & !(1 << index);
    if targets != 0 {
        let order = Order { root, what };
        let interrupt = |target| apic::send(percpu::apic_id(target), vector::INVALIDATE);
        if SHOOTDOWN.ask(index, targets, &order, interrupt, SPINS, &mut ForAnswers) {
            stat::count_wait(stat::Waits::FlushHalted);
            resume();
        }
    }
}

/// Makes every CPU forget all translations of kernel addresses.
pub fn invalidate_kernel() {
    tlb::invalidate_kernel();
    invalidate(percpu::online(), KERNEL_ROOT, &[Invalidation::AllAndTables]);
}

/// The CPUs that CPU `index` waits for in [`invalidate`]: a bit for each.
pub fn awaited(index: usize) -> u64 {
    SHOOTDOWN.waits_for(index)
}

/// Interrupts a CPU so that it looks at its run queue.
pub fn kick(index: usize) {
    if percpu::is_online(index) {
        apic::send(percpu::apic_id(index), vector::RESCHEDULE);
    }
}

/// Takes the interrupt by which another CPU asks user mode of this one to forget translations. Who makes it
/// stand still interrupts it again.
#[inline]
pub fn asked_to_forget(cpu: &PerCpu) {
    apic::acknowledge();
    cpu.count(InterruptKind::Invalidation);
    forget(cpu.index.load(Ordering::Relaxed) as usize);
}

/// Takes an interrupt from another CPU: `RESCHEDULE`, `INVALIDATE`, `HOLD` or `WAKE`. Who looks at the run
/// queue is the caller's business.
pub fn taken(cpu: &PerCpu, number: u8) {
    apic::acknowledge();
    cpu.count(match number {
        vector::RESCHEDULE => InterruptKind::Reschedule,
        vector::INVALIDATE => InterruptKind::Invalidation,
        _ => InterruptKind::Call,
    });
    answer(cpu.index.load(Ordering::Relaxed) as usize);
}

/// Makes every other CPU stand still, and returns when all do. Ends with [`let_go`].
pub fn hold_others() {
    let index = this_index();
    let others = percpu::online() & !(1 << index);
    if others == 0 {
        return;
    }
    // Another CPU may hold this one first: `relax` stands still then.
    while HOLDER
        .compare_exchange(0, index as u32 + 1, Ordering::AcqRel, Ordering::Relaxed)
        .is_err()
    {
        relax();
    }
    call_all(others);
    while STANDING.load(Ordering::Acquire) != others {
        relax();
    }
}

/// Lets the CPUs go on that [`hold_others`] stopped.
pub fn let_go() {
    let index = this_index();
    if HOLDER.load(Ordering::Relaxed) as usize != index + 1 {
        return;
    }
    HOLDER.store(0, Ordering::Release);
    call_all(percpu::online() & !(1 << index));
    while STANDING.load(Ordering::Acquire) != 0 {
        relax();
    }
}

fn call_all(mut targets: u64) {
    while targets != 0 {
        let target = targets.trailing_zeros() as usize;
        targets &= targets - 1;
        apic::send(percpu::apic_id(target), vector::HOLD);
    }
}

/// Sleeps, with the timer stopped, until the holder lets go. Invalidations are served meanwhile: their
/// interrupt wakes the CPU. It may hold locks here, and interrupts are enabled while it sleeps: their
/// handlers take none.
#[cold]
fn stand_still(index: usize) {
    let cpu = percpu::current();
    apic::set_timer(0);
    STANDING.fetch_or(1 << index, Ordering::AcqRel);
    while HOLDER.load(Ordering::Acquire) != 0 {
        arch::wait_for_interrupt();
    }
    STANDING.fetch_and(!(1 << index), Ordering::AcqRel);
    clock::arm_again(cpu);
    remind(cpu);
}

/// In [`PerCpu::missed`]: somebody must look at the run queue or the deadline.
pub const MISSED_RESCHEDULE: u32 = 1;
/// In [`PerCpu::missed`]: somebody must look at the control bytes.
pub const MISSED_CONTROL: u32 = 2;

/// Interrupts this CPU again for what came while it was halted where nothing looks at it: in
/// a wait for input or for another CPU, or standing still.
pub fn remind(cpu: &PerCpu) {
    let missed = cpu.missed.load(Ordering::Relaxed);
    cpu.missed.store(0, Ordering::Relaxed);
    let own = percpu::apic_id(cpu.index.load(Ordering::Relaxed) as usize);
    if missed & MISSED_RESCHEDULE != 0 {
        apic::send(own, vector::RESCHEDULE);
    }
    if missed & MISSED_CONTROL != 0 && control::is_waiting() {
        apic::send(own, vector::CONTROL);
    }
}
