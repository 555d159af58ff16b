//! The checks of a machine before the first script. Each failure names the method that is wrong.
//!
//! A machine with one of the mistakes that these checks find can corrupt page tables. A script then ends with a
//! difference that says nothing about the cause, or with a fault of the host.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use core::fmt::Display;

use memwright::{MapRequest, Placement, Rights};
use memwright_table::sync::Threads;
use memwright_table::{Architecture, CpuId, FrameKind, FrameRange, Frames, PAGE_SIZE, VirtAddr};

use crate::machine::TestMachine;
use crate::process::{ENDLESS, Host, Process, Signal};

/// The name of a method, and what is wrong with it.
pub(crate) type Wrong = (&'static str, String);

fn wrong<T>(method: &'static str, text: impl Display) -> Result<T, Wrong> {
    Err((method, text.to_string()))
}

/// Checks a machine on which `cpus` CPUs run programs.
pub(crate) fn check<M: TestMachine>(frames: Frames<M>, cpus: usize) -> Result<(), Wrong> {
    check_acting(frames.machine(), cpus)?;
    check_frames(&frames)?;
    let host = Host::boot(&Arc::new(frames), cpus).or_else(|text| wrong("boot", text))?;
    #[cfg(feature = "std")]
    check_answers(&host)?;
    let programs = [Process::new(&host), Process::new(&host)];
    let outcome = check_programs(&programs);
    if cfg!(not(feature = "std")) && outcome.is_err() {
        // The state may be inconsistent, so that a drop would panic, which nothing can catch.
        core::mem::forget(programs);
    }
    outcome
}

fn cpu(index: usize) -> CpuId {
    CpuId::new(index as u16)
}

fn check_acting<M: TestMachine>(machine: &M, cpus: usize) -> Result<(), Wrong> {
    let here = || M::Threads::cpu().index();
    let _outer = machine.act_as(cpu(0));
    for index in 0..cpus {
        let inner = machine.act_as(cpu(index));
        if here() != index {
            let found = here();
            return wrong(
                "act_as",
                format!("Threads::cpu returns {found} to a thread that acts as CPU {index}"),
            );
        }
        drop(inner);
        if here() != 0 {
            let found = here();
            return wrong(
                "act_as",
                format!(
                    "Threads::cpu returns {found} after the guard of CPU {index} was dropped, \
                     not CPU 0 as before"
                ),
            );
        }
    }
    Ok(())
}

/// Returns contents in which no two bytes at a distance of a power of two are equal.
fn pattern(salt: usize) -> [u8; PAGE_SIZE] {
    core::array::from_fn(|index| (index * 7 + index / 256 * 11 + salt * 29 + 1) as u8)
}

/// Checks that the methods that write frames write all of the frames that they are given, and no other frame.
fn check_frames<M: TestMachine>(frames: &Frames<M>) -> Result<(), Wrong> {
    let machine = frames.machine();
    if machine.memory_base() != machine.memory_base() {
        return wrong("memory_base", "two calls return two addresses");
    }
    let taken = (0..3).map(|_| frames.allocate(0, FrameKind::Anonymous));
    let taken: Result<vec::Vec<_>, _> = taken.collect();
    let taken = taken.or_else(|error| wrong("the regions", error))?;
    let [one, two, three] = [0, 1, 2].map(|index| taken[index].frame());
    let fill = || {
        for (salt, frame) in [one, two, three].into_iter().enumerate() {
            frames.write(frame, 0, &pattern(salt));
        }
    };
    let check = |method, expected: [[u8; PAGE_SIZE]; 3]| {
        for (frame, expected) in [one, two, three].into_iter().zip(expected) {
            let mut found = [0; PAGE_SIZE];
            frames.read(frame, 0, &mut found);
            let differs = (0..PAGE_SIZE).find(|&at| found[at] != expected[at]);
            if let Some(at) = differs {
                let (found, expected) = (found[at], expected[at]);
                let call = match method {
                    "copy_frame" => format!("after the copy of {one:?} to {two:?}"),
                    "memory_base" => "after stores to three frames".to_string(),
                    _ => format!("after {two:?} was cleared"),
                };
                return wrong(
                    method,
                    format!("{call}, byte {at} of {frame:?} is {found:#x}, not {expected:#x}"),
                );
            }
        }
        Ok(())
    };
    let [first, second, third] = [0, 1, 2].map(pattern);
    fill();
    check("memory_base", [first, second, third])?;
    machine.clear_frame(two);
    check("clear_frame", [first, [0; PAGE_SIZE], third])?;
    fill();
    machine.clear_frames(FrameRange {
        start: two,
        count: 1,
    });
    check("clear_frames", [first, [0; PAGE_SIZE], third])?;
    machine.copy_frame(one, two);
    check("copy_frame", [first, first, third])
}

/// Checks that an invalidation on another CPU returns, although no thread acts as that CPU.
#[cfg(feature = "std")]
fn check_answers<M: TestMachine>(host: &Arc<Host<M>>) -> Result<(), Wrong> {
    use memwright_table::{CpuSet, Invalidation};
    use std::sync::mpsc;

    const SECONDS: u64 = 10;

    if host.cpus() < 2 {
        return Ok(());
    }
    let (sender, receiver) = mpsc::channel();
    let held = host.clone();
    let thread = std::thread::spawn(move || {
        let acting = held.machine().act_as(cpu(0));
        let targets = CpuSet::single(cpu(1));
        let what = [Invalidation::All];
        held.machine()
            .invalidate_remote(targets, held.idle_root(), &what);
        drop((acting, held));
        // The receiver has left if the call returned too late.
        let _ = sender.send(());
    });
    match receiver.recv_timeout(std::time::Duration::from_secs(SECONDS)) {
        Ok(()) => {
            let _ = thread.join();
            Ok(())
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => wrong("invalidate_remote", "it panics"),
        Err(mpsc::RecvTimeoutError::Timeout) => wrong(
            "invalidate_remote",
            format!(
                "it has not returned after {SECONDS} seconds; it must complete although no thread acts as the target, \
                 because one thread of the kit acts as every CPU"
            ),
        ),
    }
}

const PAGE: u64 = PAGE_SIZE as u64;

fn map<M: TestMachine>(program: &Process<M>, rights: Rights) -> Result<VirtAddr, Wrong> {
    let request = MapRequest::anonymous(PAGE, rights);
    let mapped = program.on(cpu(0), |space| space.map(&request));
    mapped.or_else(|error| wrong("the regions", error))
}

/// Compares the outcome of an access with the expected one. `method` is the method of the machine that is wrong if the
/// two differ.
fn expect<M: TestMachine, T>(
    method: &'static str,
    what: &str,
    found: Result<T, Signal>,
    expected: Result<(), Signal>,
) -> Result<(), Wrong> {
    let found = found.map(drop);
    if found == expected {
        return Ok(());
    }
    if found == Err(Signal::Broken(ENDLESS)) && !M::Arch::FAULT_DROPS_STALE {
        // On this architecture, a fault does not drop the stale translation: the processor uses it until the handler
        // invalidates it.
        return wrong(
            "invalidate_local",
            format!("{what} still faults after many faults that were resolved"),
        );
    }
    let text = |outcome| match outcome {
        Ok(()) => "succeeded".to_string(),
        Err(Signal::Broken(text)) => format!("failed: {text}"),
        Err(signal) => format!("ended with the signal {signal:?}"),
    };
    let should = match expected {
        Ok(()) => "must succeed".to_string(),
        Err(signal) => format!("must end with the signal {signal:?}"),
    };
    wrong(method, format!("{what} {}; it {should}", text(found)))
}

/// Checks accesses to one page and invalidations of it, by one CPU and by two CPUs.
fn check_programs<M: TestMachine>(programs: &[Process<M>; 2]) -> Result<(), Wrong> {
    let [program, other] = programs;
    let cpus = program.host().cpus();
    check_accesses(program)?;
    let both = Rights::READ | Rights::WRITE;
    let mut byte = [0];
    for index in 0..cpus {
        let (here, user) = (cpu(0), cpu(index));
        let at = map(program, both)?;
        let method = match index {
            0 => "invalidate_local",
            _ => "invalidate_remote",
        };
        let stored = program.write(user, at, &[1]);
        expect::<M, _>("store", "a store to a writable page", stored, Ok(()))?;
        let protected = program.on(here, |space| space.protect(at, PAGE, Rights::READ));
        protected.or_else(|error| wrong("the regions", error))?;
        let what = format!("a store by CPU {index} to a page that CPU 0 made read-only");
        let stored = program.write(user, at, &[2]);
        expect::<M, _>(method, &what, stored, Err(Signal::Forbidden))?;
        let loaded = program.read(user, at, &mut byte);
        expect::<M, _>("load", "a load from a read-only page", loaded, Ok(()))?;
        let unmapped = program.on(here, |space| space.unmap(at, PAGE));
        unmapped.or_else(|error| wrong("the regions", error))?;
        let what = format!("a load by CPU {index} from a page that CPU 0 unmapped");
        let loaded = program.read(user, at, &mut byte);
        expect::<M, _>(method, &what, loaded, Err(Signal::Unmapped))?;
    }
    check_switch(program, other)
}

/// Checks that a CPU that has loaded another root uses no translation of the first root. Both programs map one address,
/// at which each has a page of its own.
fn check_switch<M: TestMachine>(one: &Process<M>, other: &Process<M>) -> Result<(), Wrong> {
    let both = Rights::READ | Rights::WRITE;
    let at = map(one, both)?;
    let request = MapRequest {
        placement: Placement::Fixed(at),
        ..MapRequest::anonymous(PAGE, both)
    };
    let mapped = other.on(cpu(0), |space| space.map(&request));
    mapped.or_else(|error| wrong("the regions", error))?;
    for (value, program) in [(1, one), (2, other)] {
        let stored = program.write(cpu(0), at, &[value]);
        expect::<M, _>("load_root", "a store after a switch", stored, Ok(()))?;
    }
    for (value, program) in [(1, one), (2, other)] {
        let mut found = [0];
        let loaded = program.read(cpu(0), at, &mut found);
        expect::<M, _>("load_root", "a load after a switch", loaded, Ok(()))?;
        if found != [value] {
            let [found] = found;
            let text = format!("after a switch of programs, a CPU loads {found}, not {value}");
            return wrong("load_root", text);
        }
    }
    Ok(())
}

/// Checks what a store stores, and which accesses are refused.
fn check_accesses<M: TestMachine>(program: &Process<M>) -> Result<(), Wrong> {
    let (here, contents) = (cpu(0), pattern(5));
    let at = map(program, Rights::READ | Rights::WRITE)?;
    let stored = program.write(here, at, &contents);
    expect::<M, _>("store", "a store to a writable page", stored, Ok(()))?;
    let mut found = [0; PAGE_SIZE];
    let loaded = program.read(here, at, &mut found);
    expect::<M, _>("load", "a load from that page", loaded, Ok(()))?;
    if found != contents {
        return wrong("load", "it does not load the bytes that were stored");
    }
    let mut frame = None;
    let machine = program.host().machine();
    let table = program.space().table();
    machine.translations(table, &mut |page, shown, _| {
        if page == at.page() {
            frame = Some(shown);
        }
    });
    let Some(frame) = frame else {
        return wrong("translations", "a page that was stored to is not visited");
    };
    program.host().frames().read(frame, 0, &mut found);
    if found != contents {
        return wrong(
            "store",
            format!(
                "the bytes are not in {frame:?}, which begins at memory_base() + 4096 * number"
            ),
        );
    }
    let fetched = program.fetch(here, at);
    let what = "a fetch from a page that is not executable";
    expect::<M, _>("fetch", what, fetched, Err(Signal::Forbidden))?;
    // The page has an entry before the first access, which no CPU has cached.
    let request = MapRequest {
        populate: true,
        ..MapRequest::anonymous(PAGE, Rights::READ)
    };
    let mapped = program.on(here, |space| space.map(&request));
    let at = mapped.or_else(|error| wrong("the regions", error))?;
    let what = "a store to a page that is only readable";
    let stored = program.write(here, at, &[1]);
    expect::<M, _>("store", what, stored, Err(Signal::Forbidden))?;
    let loaded = program.read(here, at, &mut found[..8]);
    expect::<M, _>("load", "a load from a read-only page", loaded, Ok(()))?;
    let stored = program.write(here, at, &[1]);
    expect::<M, _>("store", what, stored, Err(Signal::Forbidden))
}
