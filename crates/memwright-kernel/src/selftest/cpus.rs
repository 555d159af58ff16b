//! Several CPUs: that they start, interrupt each other, forget together and stand still.

use core::sync::atomic::{AtomicU64, Ordering};

use memwright_linux::host::{Host, InterruptKind};
use memwright_table::machine::Invalidation;
use memwright_table::sync::{Lock, Rank};
use memwright_table::{CpuId, Frame, Machine};

use super::{Outcomes, check, user};
use crate::machine::HARDWARE;
use crate::{boot::secondary, clock, ipi, paging, percpu};

/// What the other CPUs are to do, as a count of jobs given out: each does every job once.
static GIVEN: AtomicU64 = AtomicU64::new(0);
/// Which job it is.
static JOB: AtomicU64 = AtomicU64::new(0);
/// CPUs that have done the last one: a bit for each.
static DONE: AtomicU64 = AtomicU64::new(0);

/// How many shootdowns each CPU makes.
const ROUNDS: u64 = 100;
/// Nanoseconds after which a test gives up.
const PATIENCE: u64 = 5_000_000_000;

/// Jobs, by number.
const JOBS: [fn(); 3] = [|| {}, shoot_at_all, keep_busy];

/// The life of a CPU that was started for the tests: it answers others and does their jobs.
pub fn secondary() -> ! {
    let mut done = 0;
    loop {
        while GIVEN.load(Ordering::Acquire) > done {
            done += 1;
            JOBS[JOB.load(Ordering::Relaxed) as usize]();
            DONE.fetch_or(1 << own_index(), Ordering::AcqRel);
        }
        HARDWARE.idle();
    }
}

fn own_index() -> usize {
    HARDWARE.cpu().index()
}

fn others() -> impl Iterator<Item = CpuId> {
    (1..percpu::count()).map(|index| CpuId::new(index as u16))
}

/// All CPUs, and all but the first: a bit for each.
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

/// Gives every other CPU a job; the caller waits for `DONE`.
fn give(job: u64) {
    DONE.store(0, Ordering::Relaxed);
    JOB.store(job, Ordering::Relaxed);
    GIVEN.fetch_add(1, Ordering::Release);
    for cpu in others() {
        HARDWARE.kick(cpu);
    }
}

fn wait_for_job() -> Outcomes {
    wait_for(|| DONE.load(Ordering::Acquire) == everybody() & !1)
}

fn taken(cpu: CpuId, kind: InterruptKind) -> u64 {
    HARDWARE.interrupts(cpu, kind)
}

pub fn all_start() -> Outcomes {
    secondary::start_all_for_tests();
    check(percpu::online() == everybody(), "not all are online")?;
    crate::log!("selftest: {} CPUs", percpu::count());
    let report = paging::audit();
    check(
        report.writable_executable == 0,
        "starting them left a page writable and executable",
    )
}

/// Starts the other CPUs, if there are any, and lets each do something else for ever.
pub fn occupy() {
    if percpu::count() > 1 {
        secondary::start_all_for_tests();
        give(2);
        let _ = wait_for_job();
        for _ in 0..100 {
            ipi::relax();
        }
    }
}

/// Stays in user mode, in the kernel with a lock held, or idle.
fn keep_busy() {
    DONE.fetch_or(1 << own_index(), Ordering::AcqRel);
    match own_index() % 3 {
        1 => user::spin(),
        2 => {
            let lock = Lock::new(Rank::Object, ());
            let _guard = lock.lock();
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

/// Asks all other CPUs to forget, again and again.
fn shoot_at_all() {
    let root = Frame::new((paging::template() / 4096) as u32);
    let targets = memwright_table::CpuSet::from_bits(everybody());
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
        let own = taken(HARDWARE.cpu(), InterruptKind::Invalidation);
        own + others()
            .map(|cpu| taken(cpu, InterruptKind::Invalidation))
            .sum::<u64>()
    };
    let before = count();
    give(1);
    shoot_at_all();
    wait_for_job()?;
    crate::log!("selftest: {} interrupts for shootdowns", count() - before);
    // At most one interrupt for each target of each shootdown.
    let cpus = percpu::count() as u64;
    let most = cpus * (cpus - 1) * (ROUNDS + ROUNDS.div_ceil(16));
    check(count() - before <= most, "more interrupts than requests")
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
    // They answer even so.
    let root = Frame::new((paging::template() / 4096) as u32);
    let targets = memwright_table::CpuSet::from_bits(everybody());
    HARDWARE.invalidate_remote(targets, root, &[Invalidation::All]);
    clock::go_on();
    ipi::let_go();
    check(!moved, "a CPU or the clock went on")?;
    check(clock::now() >= before, "the clock went back")?;
    // The job that was given meanwhile is not forgotten.
    wait_for_job()
}
