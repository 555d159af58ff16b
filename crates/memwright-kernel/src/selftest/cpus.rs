//! Tests several CPUs: they must start, interrupt each other, answer shootdowns and stop.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use memwright_linux_abi::host::Cpus;
use memwright_linux_abi::host::UserAccess;

use memwright_linux_abi::arch::x86_64::regs::UserState;
use memwright_linux_abi::host::{InterruptKind, Trap};
use memwright_linux_base::sync::{self, Lock, Rank};
use memwright_table::addr::MAX_CPUS;
use memwright_table::machine::Invalidation;
use memwright_table::sync::stat::{self, Waits};
use memwright_table::{CpuId, CpuSet, Frame, Machine, PageSize, VirtAddr};

use super::user::{self, UserMemory, with_user_memory};
use super::{Outcomes, check};
use crate::arch::debug::KEPT_WITHOUT_BREAKPOINTS;
use crate::machine::HARDWARE;
use crate::memory::paging;
use crate::percpu::PerCpu;
use crate::{arch, clock, ipi, percpu, smp};

/// The earliest counter value at which one of the other CPUs began its first stretch.
static EARLIEST_STRETCH: AtomicU64 = AtomicU64::new(u64::MAX);
/// The number of jobs given to the other CPUs so far. Each of these CPUs executes every job once.
static GIVEN: AtomicU64 = AtomicU64::new(0);
/// The number of the current job.
static JOB: AtomicU64 = AtomicU64::new(0);
/// The CPUs that have begun the current job, as one bit per CPU.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// The CPUs that have completed the current job, as one bit per CPU.
static DONE: AtomicU64 = AtomicU64::new(0);

/// The number of shootdowns that each CPU sends.
const ROUNDS: u64 = 100;
/// The time in nanoseconds after which a test fails.
const PATIENCE: u64 = 5_000_000_000;

/// The jobs, by number.
const JOBS: [fn(); 6] = [
    || {},
    shoot_at_all,
    keep_busy,
    wait_in_user_mode,
    write_to_shared,
    answer_late,
];

/// The number of changes or kicks in each race test.
const CHANGES: u64 = 100;
/// The time in nanoseconds between two interrupts of a CPU that runs a loop.
const TICK: u64 = 20_000;

/// Physical address of the root that the CPUs share.
static SHARED_ROOT: AtomicU64 = AtomicU64::new(0);
/// Whether [`wait_in_user_mode`] and [`write_to_shared`] must return.
static STOP: AtomicBool = AtomicBool::new(false);
/// The CPUs that hold a lock forever, in [`keep_busy`], as one bit per CPU.
static LOCKED: AtomicU64 = AtomicU64::new(0);
/// The number of kicks that ended user mode, per CPU.
static KICKED: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// Serves requests and executes jobs on a CPU that was started for the tests.
pub fn secondary() -> ! {
    let begun = percpu::current().changed.load(Ordering::Relaxed);
    EARLIEST_STRETCH.fetch_min(begun, Ordering::AcqRel);
    DONE.fetch_or(1 << own_index(), Ordering::AcqRel);
    let mut done = 0;
    loop {
        while GIVEN.load(Ordering::Acquire) > done {
            done += 1;
            BEGUN.fetch_or(1 << own_index(), Ordering::AcqRel);
            JOBS[JOB.load(Ordering::Relaxed) as usize]();
            DONE.fetch_or(1 << own_index(), Ordering::AcqRel);
        }
        HARDWARE.idle();
    }
}

fn own_index() -> usize {
    sync::cpu().index()
}

fn others() -> impl Iterator<Item = CpuId> {
    (1..percpu::count()).map(|index| CpuId::new(index as u16))
}

/// Returns the set of all CPUs, as one bit per CPU.
fn everybody() -> u64 {
    u64::MAX >> (64 - percpu::count())
}

fn wait_for(condition: impl Fn() -> bool) -> Outcomes {
    let end = clock::now() + PATIENCE;
    while !condition() {
        check(clock::now() < end, "a CPU does not answer")?;
        ipi::relax();
    }
    Ok(())
}

/// Gives the job `job` to every other CPU. The caller then waits for `DONE`.
fn give(job: u64) {
    BEGUN.store(0, Ordering::Relaxed);
    DONE.store(0, Ordering::Relaxed);
    JOB.store(job, Ordering::Relaxed);
    GIVEN.fetch_add(1, Ordering::Release);
    for cpu in others() {
        HARDWARE.kick(cpu);
    }
}

/// Waits until every other CPU has taken the interrupt that announces the job.
fn wait_for_begin() -> Outcomes {
    wait_for(|| BEGUN.load(Ordering::Acquire) == everybody() & !1)
}

fn wait_for_job() -> Outcomes {
    wait_for(|| DONE.load(Ordering::Acquire) == everybody() & !1)
}

fn taken(cpu: CpuId, kind: InterruptKind) -> u64 {
    HARDWARE.interrupts(cpu, kind)
}

pub fn all_start() -> Outcomes {
    let before = arch::ticks();
    smp::start_all_for_tests();
    check(percpu::online() == everybody(), "not all are online")?;
    wait_for_job()?;
    check(
        EARLIEST_STRETCH.load(Ordering::Acquire) >= before,
        "a first stretch includes the time before the CPU started",
    )?;
    let mut cpus = (0..percpu::count()).filter_map(percpu::of);
    let kept = |cpu: &PerCpu| cpu.debug.kept_flags.load(Ordering::Relaxed);
    check(
        cpus.all(|cpu| kept(cpu) == KEPT_WITHOUT_BREAKPOINTS),
        "a CPU does not keep the flags of user mode",
    )?;
    crate::log!("selftest: {} CPUs", percpu::count());
    let report = paging::audit();
    check(
        report.writable_executable == 0,
        "starting them left a page writable and executable",
    )
}

/// Starts the other CPUs, if there are any. Keeps each of them busy forever in one of the ways of [`keep_busy`].
pub fn occupy() {
    if percpu::count() > 1 {
        smp::start_all_for_tests();
        give(2);
        let _ = wait_for(|| {
            others().all(|cpu| match cpu.index() % 3 {
                1 => user::spins(cpu.index()),
                2 => LOCKED.load(Ordering::Acquire) & 1 << cpu.index() != 0,
                _ => DONE.load(Ordering::Acquire) & 1 << cpu.index() != 0,
            })
        });
    }
}

/// Keeps this CPU busy in a way that depends on its index. The CPU stays in user mode, or stays in the kernel with a
/// lock held. Otherwise the function returns, so that the CPU idles.
fn keep_busy() {
    match own_index() % 3 {
        1 => user::spin(),
        2 => {
            let lock = Lock::new(Rank::Object, ());
            let _guard = lock.lock();
            LOCKED.fetch_or(1 << own_index(), Ordering::AcqRel);
            loop {
                ipi::relax();
            }
        }
        _ => {}
    }
}

pub fn kicks_arrive() -> Outcomes {
    for round in 1..=20 {
        let before: u64 = others()
            .map(|cpu| taken(cpu, InterruptKind::Reschedule))
            .sum();
        give(0);
        wait_for_job()?;
        let after: u64 = others()
            .map(|cpu| taken(cpu, InterruptKind::Reschedule))
            .sum();
        let wanted = percpu::count() as u64 - 1;
        if after - before != wanted {
            crate::log!("round {round}: {} interrupts, not {wanted}", after - before);
            return Err("a job took another number of interrupts");
        }
    }
    Ok(())
}

/// Sends `ROUNDS` shootdowns to all other CPUs.
fn shoot_at_all() {
    let root = Frame::new((paging::template() / 4096) as u32);
    let targets = CpuSet::from_bits(everybody());
    for round in 0..ROUNDS {
        let what = if round % 2 == 0 {
            Invalidation::All
        } else {
            Invalidation::AllAndTables
        };
        HARDWARE.invalidate_remote(targets, root, &[what]);
        if round % 16 == 0 {
            ipi::invalidate_kernel();
        }
    }
}

pub fn shootdowns_cross() -> Outcomes {
    let count = || {
        let own = taken(sync::cpu(), InterruptKind::Invalidation);
        own + others()
            .map(|cpu| taken(cpu, InterruptKind::Invalidation))
            .sum::<u64>()
    };
    let before = count();
    give(1);
    shoot_at_all();
    wait_for_job()?;
    crate::log!("selftest: {} interrupts for shootdowns", count() - before);
    // A shootdown sends at most one interrupt to each target.
    let cpus = percpu::count() as u64;
    let most = cpus * (cpus - 1) * (ROUNDS + ROUNDS.div_ceil(16));
    check(count() - before <= most, "more interrupts than requests")
}

/// Serves no request until the first CPU halts because it waits for the answers to its shootdown.
fn answer_late() {
    while !ipi::halts_for_answers(0) {
        arch::pause();
    }
}

pub fn long_wait_is_counted() -> Outcomes {
    give(5);
    wait_for_begin()?;
    let before = stat::waits(Waits::FlushHalted);
    let root = Frame::new((paging::template() / 4096) as u32);
    let targets = CpuSet::from_bits(everybody());
    HARDWARE.invalidate_remote(targets, root, &[Invalidation::All]);
    let counted = stat::waits(Waits::FlushHalted) - before;
    wait_for_job()?;
    check(counted == 1, "it was counted otherwise")
}

pub fn others_stand_still() -> Outcomes {
    ipi::hold_others();
    let before = clock::now();
    clock::stop();
    let stopped = clock::now();
    give(0);
    for _ in 0..1_000 {
        ipi::relax();
    }
    let moved = DONE.load(Ordering::Acquire) != 0 || clock::now() != stopped;
    // CPUs that are stopped serve shootdowns.
    let root = Frame::new((paging::template() / 4096) as u32);
    let targets = CpuSet::from_bits(everybody());
    HARDWARE.invalidate_remote(targets, root, &[Invalidation::All]);
    clock::go_on();
    ipi::let_go();
    check(!moved, "a CPU or the clock went on")?;
    check(clock::now() >= before, "the clock went back")?;
    // The CPUs have not lost the job that was given while they were stopped.
    wait_for_job()
}

/// Stays in user mode until the job is stopped, and counts the kicks that interrupt user mode.
fn wait_in_user_mode() {
    let kicked = &KICKED[own_index()];
    let _ = with_user_memory(&[0xeb, 0xfe], |user| {
        while !STOP.load(Ordering::Acquire) {
            clock::set_deadline(Some(clock::now() + TICK));
            if user::run(user) == Trap::Reschedule {
                kicked.fetch_add(1, Ordering::AcqRel);
            }
        }
        Ok(())
    });
    clock::set_deadline(None);
}

pub fn kicks_end_user_mode() -> Outcomes {
    STOP.store(false, Ordering::Relaxed);
    give(3);
    let outcome = wait_for_begin().and_then(|()| kick_all());
    STOP.store(true, Ordering::Release);
    outcome.and(wait_for_job())
}

fn kick_all() -> Outcomes {
    for _ in 0..CHANGES / 10 {
        for cpu in others() {
            let kicked = &KICKED[cpu.index()];
            let before = kicked.load(Ordering::Acquire);
            HARDWARE.kick(cpu);
            wait_for(|| kicked.load(Ordering::Acquire) > before)?;
        }
    }
    Ok(())
}

/// Writes to the shared page repeatedly: by instructions in user mode on every second CPU, and by user copies on the
/// other CPUs. After a fault, the next attempt begins.
fn write_to_shared() {
    user::load(SHARED_ROOT.load(Ordering::Acquire));
    let mut state = UserState::start(user::CODE, user::DATA + 4096);
    while !STOP.load(Ordering::Acquire) {
        if own_index() % 2 == 1 {
            clock::set_deadline(Some(clock::now() + TICK));
            user::run(&mut state);
            // End the turn of this CPU. Otherwise, if the clock counts instructions, a CPU that faults repeatedly would
            // keep its turn.
            ipi::relax();
        } else {
            let _ = HARDWARE.copy_to_user(user::DATA + 64, &[7; 32]);
            let _ = HARDWARE.copy_to_user(user::DATA + 64, &[8; 32]);
            ipi::relax();
        }
    }
    clock::set_deadline(None);
    user::load(paging::template());
}

/// The time after which the test no longer waits for a CPU to write, as a multiple of [`TICK`].
const LATE: u64 = 100;

/// Unmaps the page repeatedly. Checks that the frame of the page is no longer written once every CPU has invalidated
/// the translation.
fn take_away(memory: &UserMemory) -> Outcomes {
    let root = Frame::new((memory.root() / 4096) as u32);
    let targets = CpuSet::from_bits(everybody());
    let what = Invalidation::Pages {
        first: VirtAddr::new(user::DATA).page(),
        count: 1,
        stride: PageSize::Size4K,
    };
    let counters = || [0, 8].map(|at| user::word(memory.data, at).load(Ordering::Relaxed));
    let mut written = 0;
    let mut last = counters();
    for round in 0..CHANGES {
        let entry = memory.exchange_data_entry(0);
        HARDWARE.invalidate_remote(targets, root, &[what]);
        let before = counters();
        for _ in 0..10 {
            ipi::relax();
        }
        let after = counters();
        // Clear the accessed and the dirty bit, which the processor may have set. The frame does not change.
        const SET_BY_HARDWARE: u64 = 1 << 5 | 1 << 6;
        memory.exchange_data_entry(entry & !SET_BY_HARDWARE);
        check(
            before == after,
            "a page was written after it was taken away",
        )?;
        written += u64::from(before != last);
        last = before;
        // Wait until the other CPUs have written. A busy host can delay them.
        let end = clock::now() + TICK * (1 + round % 3);
        let late = end + LATE * TICK;
        while clock::now() < end || counters() == after && clock::now() < late {
            ipi::relax();
        }
    }
    crate::log!("selftest: {written} of {CHANGES} times the page had been written");
    check(written > 0, "the other CPUs never wrote")
}

pub fn pages_are_taken_away() -> Outcomes {
    // lock inc qword ptr [DATA]; jmp
    let code = [0xf0, 0x48, 0xff, 0x04, 0x25, 0, 0x10, 0x40, 0, 0xeb, 0xf5];
    let memory = UserMemory::new(&code)?;
    SHARED_ROOT.store(memory.root(), Ordering::Release);
    STOP.store(false, Ordering::Relaxed);
    give(4);
    let outcome = wait_for_begin().and_then(|()| take_away(&memory));
    STOP.store(true, Ordering::Release);
    wait_for_job()?;
    memory.release();
    outcome
}
