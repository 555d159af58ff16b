//! Inter-processor interrupts. They request a check of the run queue, a TLB shootdown or a stop, or end a halt.
//!
//! # When a CPU answers
//! A CPU answers by serving the requests of other CPUs. The kernel runs with interrupts disabled unless it is halted,
//! so a CPU takes an interrupt only in user mode or while it is halted. At all other times the interrupt stays pending.
//! A CPU with a pending interrupt answers in every step of a spin wait ([`relax`]), and at the latest when it enables
//! interrupts: `enter_user` enables them with the SYSRET or IRET that enters user mode, and `idle` and [`halt`] with
//! the STI before HLT. In neither case does an instruction of user mode execute before the pending interrupt is taken:
//! IRET and SYSRET have no interrupt shadow, and the shadow of STI covers only the HLT, which the interrupt then ends.
//!
//! # Why no stale translation is used after the answer
//! - In user mode, the interrupt arrives between two instructions, and user mode continues after the answer.
//! - A user copy runs with interrupts disabled and does not wait between two accesses. If an access faults, the fault
//!   handler can wait, and the CPU can answer during this wait. The access is then retried, and the processor walks the
//!   tables again, because no translation is cached elsewhere.
//! - Loading another root invalidates all translations of the old root except the kernel's. If a CPU receives a request
//!   for a root that it has not loaded, it has no translations of that root; with PCIDs, it invalidates the
//!   translations that it kept. The CPU may be about to load that root at the same time. In this case, before the load
//!   it has added itself to the set of CPUs to notify, with a full barrier. So there are two possibilities: the
//!   requesting CPU finds this CPU in the set, or every walk through the root sees the changes that the requesting CPU
//!   made to the table before it read the set.
//! - A CPU that is being started has loaded the kernel's own root and receives requests for no other root.
//!
//! # Why no CPU waits forever
//! A CPU that waits for an answer, for a lock, or for other CPUs to stop uses [`relax`], which answers, or [`halt`]. A
//! CPU that is halted or stopped answers too, because the interrupt ends its HLT. If a CPU never waits, never idles and
//! never returns to user mode, the kernel hangs.
//!
//! # Why no wakeup is lost
//! A CPU announces that it halts, checks once more the condition for which it waits, and halts. Interrupts are disabled
//! from the announcement to the STI directly before the HLT. So an interrupt of [`wake`] that arrives after the
//! announcement is pending at the HLT, or ends it. Other events during a halt (the end of a time slice, a kick, control
//! bytes) are recorded, and [`resume`] raises their interrupts again once the wait is over. If they were raised
//! earlier, they would end the next halt of the same wait at once.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memwright_kernel_logic::shootdown::{Order, Shootdown, Wait};
use memwright_linux_abi::host::InterruptKind;
use memwright_linux_base::sync::Threads;
use memwright_table::Frame;
use memwright_table::machine::Invalidation;
use memwright_table::sync::{SPINS, stat};

use crate::arch::{self, vector};
use crate::clock::{self, stretch};
use crate::percpu::{self, PerCpu};
use crate::{apic, control, tlb};

/// The root of an [`Order`] that is about the kernel's own translations.
const KERNEL_ROOT: u64 = 0;

static SHOOTDOWN: Shootdown = Shootdown::new();

/// The CPU that has stopped the others, as its index plus one; 0 for none.
static HOLDER: AtomicU32 = AtomicU32::new(0);
/// The stopped CPUs, as one bit per CPU.
static STANDING: AtomicU64 = AtomicU64::new(0);

fn this_index() -> usize {
    percpu::current().index.load(Ordering::Relaxed) as usize
}

/// Executes one step of a spin wait: pauses, and serves requests of other CPUs.
#[inline]
pub fn relax() {
    arch::pause();
    answer_here();
}

/// Serves the requests that other CPUs have sent to the calling CPU.
#[inline]
pub fn answer_here() {
    answer(this_index());
}

/// Serves the requests that other CPUs have sent to CPU `index`, which is the calling one.
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
                order.what.iter().for_each(tlb::invalidate);
            } else {
                tlb::forget(Frame::new((order.root / 4096) as u32));
            }
        },
        wake,
    );
}

/// Halts this CPU, which waits for another CPU, until any interrupt arrives, or for at most `limit` nanoseconds. Then
/// serves requests of other CPUs. This CPU may hold locks although interrupts are enabled while it is halted, because
/// the interrupt handlers take no locks. The halted time counts as idle.
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

/// Interrupts CPU `index`, which ends its [`halt`].
pub fn wake(index: usize) {
    apic::send(percpu::apic_id(index), vector::WAKE);
}

/// Raises the interrupts again that were recorded while this CPU was halted. Called when the wait for which it halted
/// is over.
pub fn resume() {
    remind(percpu::current());
}

/// The way in which a CPU waits for the answers to a shootdown.
struct ForAnswers;

impl Wait for ForAnswers {
    fn spin(&mut self) {
        relax();
    }

    fn halt(&mut self) {
        halt(None);
    }
}

/// Returns whether CPU `index` is halted in its wait for the answers to a shootdown.
pub fn halts_for_answers(index: usize) -> bool {
    SHOOTDOWN.halts(index)
}

/// Makes the CPUs in `targets` (one bit per CPU) invalidate the translations `what` of `root`, and waits until they
/// have done so. The calling CPU is skipped.
pub fn invalidate(targets: u64, root: u64, what: &[Invalidation]) {
    let index = this_index();
    let targets = targets & !(1 << index);
    if targets != 0 {
        let order = Order { root, what };
        let interrupt = |target| apic::send(percpu::apic_id(target), vector::INVALIDATE);
        if SHOOTDOWN.ask(index, targets, &order, interrupt, SPINS, &mut ForAnswers) {
            stat::count_wait::<Threads>(stat::Waits::FlushHalted);
            resume();
        }
    }
}

/// Invalidates all translations of kernel addresses on every CPU.
pub fn invalidate_kernel() {
    tlb::invalidate_kernel();
    invalidate(percpu::online(), KERNEL_ROOT, &[Invalidation::AllAndTables]);
}

/// Returns the CPUs whose answers CPU `index` waits for in [`invalidate`], as one bit per CPU.
pub fn awaited(index: usize) -> u64 {
    SHOOTDOWN.waits_for(index)
}

/// Interrupts CPU `index`, so that it checks its run queue.
pub fn kick(index: usize) {
    if percpu::is_online(index) {
        apic::send(percpu::apic_id(index), vector::RESCHEDULE);
    }
}

/// Handles a shootdown interrupt that arrived in user mode. Does not serve requests to stop, which arrive by a separate
/// interrupt, `HOLD`.
#[inline]
pub fn asked_to_forget(cpu: &PerCpu) {
    apic::acknowledge();
    cpu.count(InterruptKind::Invalidation);
    forget(cpu.index.load(Ordering::Relaxed) as usize);
}

/// Handles an interrupt from another CPU: `RESCHEDULE`, `INVALIDATE`, `HOLD` or `WAKE`. The caller then checks the run
/// queue.
pub fn taken(cpu: &PerCpu, number: u8) {
    apic::acknowledge();
    cpu.count(match number {
        vector::RESCHEDULE => InterruptKind::Reschedule,
        vector::INVALIDATE => InterruptKind::Invalidation,
        _ => InterruptKind::Call,
    });
    answer(cpu.index.load(Ordering::Relaxed) as usize);
}

/// Stops all other CPUs. Returns when they have stopped. [`let_go`] resumes them.
pub fn hold_others() {
    let index = this_index();
    let others = percpu::online() & !(1 << index);
    if others == 0 {
        return;
    }
    // If another CPU becomes the holder first, it stops this CPU in `relax`.
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

/// Resumes the CPUs that [`hold_others`] stopped.
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

/// Halts this CPU, with its timer stopped, until the holder resumes it. Meanwhile, the CPU serves TLB invalidations,
/// whose interrupts end the HLT. This CPU may hold locks although interrupts are enabled while it is halted, because
/// the interrupt handlers take no locks.
#[cold]
fn stand_still(index: usize) {
    let cpu = percpu::current();
    STANDING.fetch_or(1 << index, Ordering::AcqRel);
    while HOLDER.load(Ordering::Acquire) != 0 {
        // Stop the timer again: the interrupt of an earlier deadline may have been pending, and its handler then has
        // set the timer for the present deadline. Otherwise that timer would expire repeatedly while the clock is
        // stopped, at a rate that depends on the host, and its last interrupt could be taken after the pause.
        apic::set_timer(0);
        arch::wait_for_interrupt();
    }
    STANDING.fetch_and(!(1 << index), Ordering::AcqRel);
    clock::arm_again(cpu);
    remind(cpu);
}

/// The bit of [`PerCpu::missed`] that requires a check of the run queue and the deadline.
pub const MISSED_RESCHEDULE: u32 = 1;
/// The bit of [`PerCpu::missed`] that requires a check of the control bytes.
pub const MISSED_CONTROL: u32 = 2;

/// Raises the interrupts again that this CPU received but did not handle while it waited for input or for another CPU,
/// or while it was stopped.
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
