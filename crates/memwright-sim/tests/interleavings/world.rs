//! The state of a case, and the functions that run a case in every order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use memwright::MapRequest;
use memwright::object::{ObjectIdentity, Shmem};
use memwright::track::{Categories, Scan, Share};
use memwright::uffd::{Watch, WatchEvents, WatchModes, Watcher};
use memwright_sim::noted_file::NotedFile;
use memwright_sim::process::{Host, Process, Signal, Space};
use memwright_sim::schedule::{self, Case, Explored};
use memwright_sim::{MachineOptions, SimulatedMachine};
use memwright_table::{CpuId, Frame, Page, PageRange};

use crate::support::{FIRST, READ_WRITE, SECOND, at, bytes, map, program, write};

pub const THIRD: CpuId = CpuId::new(2);

/// The state that the threads of a case share.
pub struct World {
    /// The machine. Dropped last, after every process.
    pub host: Arc<Host>,
    pub process: Option<Process>,
    /// Another process, if there is one: created at the start of the case, or by a fork.
    pub other: Mutex<Option<Process>>,
    /// Whether the first thread's call has returned.
    pub over: AtomicBool,
    /// The accesses of the second thread: whether each began after `over` was set, and its result.
    pub seen: Mutex<Vec<(bool, Result<u8, Signal>)>>,
    /// A counter that the case can use.
    pub count: AtomicU64,
    /// A file that the process maps. The file must be notified of the first write to each of its pages.
    pub file: Option<Arc<NotedFile>>,
    /// Shared memory that the process maps, and that a case changes.
    pub shared: Option<Arc<Shmem<SimulatedMachine>>>,
    /// The number of frames in use before the process was created.
    pub used: u64,
    /// Frames that are kept allocated to exhaust the memory. `end` frees them.
    pub hoard: Mutex<Vec<Frame>>,
    /// The userfaultfd that the memory is registered with.
    pub watch: Option<Watch>,
}

impl World {
    pub fn new(cpus: usize, tags: usize, start: impl FnOnce(&Arc<Host>) -> Process) -> Self {
        Self::with_frames(64, cpus, tags, start)
    }

    pub fn with_frames(
        frames: u32,
        cpus: usize,
        tags: usize,
        start: impl FnOnce(&Arc<Host>) -> Process,
    ) -> Self {
        let options = MachineOptions {
            frames,
            cpus,
            tags,
            ..MachineOptions::default()
        };
        Self::on(options, start)
    }

    /// Creates a process on a machine with these options.
    pub fn on(options: MachineOptions, start: impl FnOnce(&Arc<Host>) -> Process) -> Self {
        let host = Host::boot(options);
        let used = host.frames().used();
        let process = start(&host);
        for cpu in host.machine().cpus() {
            process.on(cpu, |_| ());
        }
        Self {
            host,
            process: Some(process),
            other: Mutex::new(None),
            over: AtomicBool::new(false),
            seen: Mutex::new(Vec::new()),
            count: AtomicU64::new(0),
            file: None,
            shared: None,
            used,
            hoard: Mutex::new(Vec::new()),
            watch: None,
        }
    }

    /// Creates a process with `pages` pages of private memory. Every CPU has written to each page and has cached its
    /// translation.
    pub fn written(cpus: usize, pages: u64) -> Self {
        Self::new(cpus, 0, |host| {
            let process = program(host, pages, READ_WRITE);
            for cpu in host.machine().cpus() {
                for page in 0..pages {
                    write(&process, cpu, page, 1).expect("writable");
                }
            }
            process
        })
    }

    /// Creates a process with a page of a file, mapped shared and written by every CPU.
    pub fn of_file() -> Self {
        let mut file = None;
        let mut world = Self::new(2, 0, |host| {
            let process = Process::new(host);
            let noted = Arc::new(NotedFile::new(host.memory().clone(), 1));
            file = Some(noted.clone());
            map(
                &process,
                MapRequest::object(noted, 0, bytes(1), READ_WRITE, true),
                0,
            );
            for cpu in [FIRST, SECOND] {
                write(&process, cpu, 0, 1).expect("writable");
            }
            process
        });
        world.file = file;
        world
    }

    /// Creates a process with a page of shared memory, mapped and written by every CPU.
    pub fn of_shared_memory(start: impl FnOnce(&Host)) -> Self {
        let mut shared = None;
        let mut world = Self::new(2, 0, |host| {
            start(host);
            let process = Process::new(host);
            let identity = ObjectIdentity::default();
            let object = Shmem::new(host.memory().clone(), bytes(1), identity);
            let object = Arc::new(object.expect("heap"));
            shared = Some(object.clone());
            map(
                &process,
                MapRequest::object(object, 0, bytes(1), READ_WRITE, true),
                0,
            );
            for cpu in [FIRST, SECOND] {
                write(&process, cpu, 0, 1).expect("writable");
            }
            process
        });
        world.shared = shared;
        world
    }

    pub fn shared(&self) -> &Shmem<SimulatedMachine> {
        self.shared.as_ref().expect("there until the end")
    }

    pub fn file(&self) -> &NotedFile {
        self.file.as_ref().expect("there until the end")
    }

    /// Creates a process with `pages` pages of private memory that was never accessed.
    pub fn fresh(pages: u64) -> Self {
        Self::new(2, 0, |host| program(host, pages, READ_WRITE))
    }

    /// Creates a process with a shared mapping of the same page of an object at each of the pages `places`.
    pub fn sharing(places: &[u64], start: impl FnOnce(&Process)) -> Self {
        Self::new(2, 0, |host| {
            let process = Process::new(host);
            let identity = ObjectIdentity {
                device: 1,
                inode: 1,
            };
            let object = Shmem::new(host.memory().clone(), bytes(1), identity);
            let object = Arc::new(object.expect("heap"));
            for &page in places {
                let request = MapRequest::object(object.clone(), 0, bytes(1), READ_WRITE, true);
                map(&process, request, page);
            }
            start(&process);
            process
        })
    }

    /// Registers the mapped part of the first `pages` pages with a userfaultfd.
    pub fn watched(mut self, pages: u64, asynchronous: bool, modes: WatchModes) -> Self {
        let watch = Watch::try_new(Watcher {
            number: 1,
            asynchronous,
            unpopulated: true,
            counts_accesses: false.into(),
            events: WatchEvents::empty(),
        });
        let watch = watch.expect("heap");
        self.process().on(FIRST, |space| {
            let watched = space.uffd().watch(at(0), bytes(pages), &watch, modes);
            watched.expect("mapped");
        });
        self.watch = Some(watch);
        self
    }

    /// Returns whether the scan `wanted`, on `cpu`, reports the page.
    pub fn matches(&self, cpu: CpuId, page: Page, wanted: &Scan) -> bool {
        let mut found = false;
        let outcome = self.process().on(cpu, |space| {
            space.tracking().scan(
                PageRange::single(page),
                wanted,
                &mut |run: PageRange, _: Categories, _: Share| {
                    found = true;
                    run.len()
                },
            )
        });
        outcome.expect("watched");
        found
    }

    /// Write-protects the first page, or removes the protection.
    pub fn write_protect(&self, cpu: CpuId, protect: bool) {
        let call = |space: &Space| space.uffd().write_protect(at(0), bytes(1), protect);
        self.process().on(cpu, call).expect("watched");
    }

    /// Calls `work` with the other process.
    pub fn with_other<T>(&self, work: impl FnOnce(&Process) -> T) -> T {
        let other = self.other.lock().unwrap().take().expect("there");
        let result = work(&other);
        *self.other.lock().unwrap() = Some(other);
        result
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("there until the end")
    }

    /// Records that the first thread's call has returned.
    pub fn over(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Writes to a page, as the second thread, and records the result.
    pub fn try_write(&self, page: u64, value: u8) {
        let after = self.over.load(Ordering::SeqCst);
        let outcome = write(self.process(), SECOND, page, value).map(|()| value);
        self.seen.lock().unwrap().push((after, outcome));
    }

    /// Returns the expected value of the page: that of the last successful write that `try_write` recorded, or else
    /// `before`.
    pub fn last_written(&self, before: u8) -> u8 {
        let seen = self.seen.lock().unwrap();
        let last = seen.iter().rev().find_map(|(_, outcome)| outcome.ok());
        last.unwrap_or(before)
    }

    /// Checks the recorded accesses: each access that began after the first thread's call returned has failed, and each
    /// failure is `signal`.
    pub fn none_after(&self, signal: Signal) {
        for (after, outcome) in self.seen.lock().unwrap().iter() {
            assert!(!after || outcome.is_err(), "{outcome:?} afterwards");
            assert!(outcome.is_ok() || *outcome == Err(signal), "{outcome:?}");
        }
    }

    /// Checks that no translation is stale, that the address spaces are consistent, and that no frame has leaked.
    pub fn end(mut self) -> Result<(), String> {
        let stale = self.host.machine().audit();
        if !stale.is_empty() {
            return Err(format!("stale: {stale:?}"));
        }
        let child = self.other.lock().unwrap().take();
        for process in self.process.iter().chain(&child) {
            let consistent = process.space().audit();
            consistent.map_err(|finding| format!("audit: {finding:?}"))?;
        }
        drop((child, self.process.take()));
        drop((self.file.take(), self.shared.take()));
        if self.host.memory().swap().totals().1 != 0 {
            return Err("a slot of swap is left".to_owned());
        }
        for frame in self.hoard.lock().unwrap().drain(..) {
            drop(self.host.frames().adopt(frame));
        }
        let violations = self.host.machine().take_violations();
        if !violations.is_empty() {
            return Err(violations.join("; "));
        }
        let left = self.host.frames().used();
        if left != self.used {
            return Err(format!("{left} frames used, not {}", self.used));
        }
        Ok(())
    }
}

/// Makes the hardware of each CPU walk the page tables, and cache translations of the pages that cases use.
fn walks(world: &World) {
    for cpu in world.host.machine().cpus() {
        for page in 0..2 {
            let _ = world.host.machine().on(cpu).read(at(page), &mut [0]);
        }
    }
}

/// Returns the number of deviations to explore for a case with this number of threads, reduced by `fewer`.
fn bound(threads: usize, fewer: u32) -> u32 {
    let given = std::env::var("MEMWRIGHT_DEVIATIONS");
    let of_two: u32 = given.map_or(2, |text| text.parse().expect("a number"));
    of_two.saturating_sub(u32::from(threads > 2) + fewer)
}

/// Runs a case in every order, or only with the schedule in `MEMWRIGHT_SCHEDULE` if it is set.
pub fn explore(
    begin: &dyn Fn() -> World,
    threads: &[fn(&World)],
    check: fn(World) -> Result<(), String>,
) -> Explored {
    explore_with(0, begin, threads, check)
}

/// Like `explore`, with a bound that is lower by `fewer`, for cases whose runs have thousands of steps.
pub fn explore_with(
    fewer: u32,
    begin: &dyn Fn() -> World,
    threads: &[fn(&World)],
    check: fn(World) -> Result<(), String>,
) -> Explored {
    let case = Case {
        begin,
        threads,
        hardware: walks,
        check,
    };
    if let Ok(text) = std::env::var("MEMWRIGHT_SCHEDULE") {
        let schedule = text.parse().expect("a schedule");
        if let Err(failure) = schedule::replay(&case, bound(threads.len(), fewer), &schedule) {
            panic!("{failure}");
        }
        return Explored::default();
    }
    match schedule::explore(&case, bound(threads.len(), fewer)) {
        Ok(explored) => {
            println!(
                "{} schedules of up to {} steps",
                explored.schedules, explored.longest
            );
            assert!(explored.schedules > 50, "{explored:?}");
            explored
        }
        Err(failure) => panic!("{failure}"),
    }
}
