//! Small races in every order: two or three CPUs, a call each, and all schedules with up to two deviations
//! (see `memwright_sim::schedule`), or as many as `MEMWRIGHT_DEVIATIONS` says; with three CPUs one less. A failure
//! prints its schedule; `MEMWRIGHT_SCHEDULE` with that text runs it again.
//!
//! What each case expects is what a program may see; besides, at the end of every run nothing is stale on any
//! CPU, the tables agree with the areas, and no frame is lost. The machine objects when a frame is filled
//! that some CPU still reaches.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use memwright::object::{ObjectIdentity, Shmem};
use memwright::{
    Access, Advice, AreaFlags, FaultError, MapKind, MapRequest, Placement, RemapRequest, Rights,
};
use memwright_sim::noted_file::NotedFile;
use memwright_sim::process::{Host, Process, Signal};
use memwright_sim::schedule::{self, Case, Explored};
use memwright_sim::{MachineOptions, SimulatedMachine, walk};
use memwright_table::{CpuId, Frame, FrameKind};
use support::{FIRST, READ, READ_WRITE, SECOND, at, bytes, map, program, protect, read, write};

const THIRD: CpuId = CpuId::new(2);

/// What the threads of a case share.
struct World {
    /// The last to go, after every process.
    host: Arc<Host>,
    process: Option<Process>,
    /// Another process, there from the start or made by a fork.
    other: Mutex<Option<Process>>,
    /// Set when the first thread's call has returned.
    over: AtomicBool,
    /// Accesses of the second thread: whether each began after that, and how it ended.
    seen: Mutex<Vec<(bool, Result<u8, Signal>)>>,
    /// What a case counts.
    count: AtomicU64,
    /// A file that the process maps, and must hear of first writes.
    file: Option<Arc<NotedFile>>,
    /// Frames in use before there was a process.
    used: u64,
    /// Frames that nobody else may have, to be given back at the end.
    hoard: Mutex<Vec<Frame>>,
}

impl World {
    fn new(cpus: usize, tags: usize, start: impl FnOnce(&Arc<Host>) -> Process) -> Self {
        let host = Host::boot(MachineOptions {
            frames: 64,
            cpus,
            tags,
            ..MachineOptions::default()
        });
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
            used,
            hoard: Mutex::new(Vec::new()),
        }
    }

    /// `pages` pages of private memory, all of them written and cached by every CPU.
    fn written(cpus: usize, pages: u64) -> Self {
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

    /// A page of a file, mapped shared and written by every CPU.
    fn of_file() -> Self {
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

    fn file(&self) -> &NotedFile {
        self.file.as_ref().expect("there until the end")
    }

    /// `pages` pages of private memory that nobody touched.
    fn fresh(pages: u64) -> Self {
        Self::new(2, 0, |host| program(host, pages, READ_WRITE))
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("there until the end")
    }

    /// The first thread's call has returned.
    fn over(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// A write of the second thread.
    fn try_write(&self, page: u64, value: u8) {
        let after = self.over.load(Ordering::SeqCst);
        let outcome = write(self.process(), SECOND, page, value).map(|()| value);
        self.seen.lock().unwrap().push((after, outcome));
    }

    /// The value that the page must have if those writes were the only ones after `before`.
    fn last_written(&self, before: u8) -> u8 {
        let seen = self.seen.lock().unwrap();
        let last = seen.iter().rev().find_map(|(_, outcome)| outcome.ok());
        last.unwrap_or(before)
    }

    /// No access got through that began after the first thread's call, and those before were refused by
    /// nothing but `signal`.
    fn none_after(&self, signal: Signal) {
        for (after, outcome) in self.seen.lock().unwrap().iter() {
            assert!(!after || outcome.is_err(), "{outcome:?} afterwards");
            assert!(outcome.is_ok() || *outcome == Err(signal), "{outcome:?}");
        }
    }

    /// What must be so after every run.
    fn end(mut self) -> Result<(), String> {
        let stale = self.host.machine().audit();
        if !stale.is_empty() {
            return Err(format!("stale: {stale:?}"));
        }
        let child = self.other.lock().unwrap().take();
        for process in self.process.iter().chain(&child) {
            let consistent = process.space().audit();
            consistent.map_err(|finding| format!("audit: {finding:?}"))?;
        }
        drop((child, self.process.take(), self.file.take()));
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

/// Hardware walks by itself: each CPU fills the pages that cases are about.
fn walks(world: &World) {
    for cpu in world.host.machine().cpus() {
        for page in 0..2 {
            let _ = world.host.machine().on(cpu).read(at(page), &mut [0]);
        }
    }
}

/// Deviations of a case with so many threads.
fn bound(threads: usize) -> u32 {
    let given = std::env::var("MEMWRIGHT_DEVIATIONS");
    let of_two: u32 = given.map_or(2, |text| text.parse().expect("a number"));
    of_two.saturating_sub(u32::from(threads > 2))
}

/// Runs a case in every order, or with `MEMWRIGHT_SCHEDULE` in that one.
fn explore(
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
        if let Err(failure) = schedule::replay(&case, bound(threads.len()), &schedule) {
            panic!("{failure}");
        }
        return Explored::default();
    }
    match schedule::explore(&case, bound(threads.len())) {
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

#[test]
fn fault_and_protect() {
    explore(
        &|| World::written(2, 1),
        &[
            |world| {
                protect(world.process(), FIRST, 0, 1, READ);
                world.over();
            },
            |world| {
                world.try_write(0, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            world.none_after(Signal::Forbidden);
            assert_eq!(read(world.process(), FIRST, 0), Ok(world.last_written(1)));
            assert!(write(world.process(), SECOND, 0, 9).is_err());
            world.end()
        },
    );
}

#[test]
fn fault_and_protect_to_nothing_and_back() {
    explore(
        &|| World::written(2, 1),
        &[
            |world| {
                protect(world.process(), FIRST, 0, 1, Rights::empty());
                protect(world.process(), FIRST, 0, 1, READ_WRITE);
                world.over();
            },
            |world| world.try_write(0, 2),
        ],
        |world| {
            let seen = world.seen.lock().unwrap().clone();
            // With all rights back nothing is refused.
            assert!(!seen[0].0 || seen[0].1.is_ok(), "{seen:?}");
            assert_eq!(read(world.process(), FIRST, 0), Ok(world.last_written(1)));
            world.end()
        },
    );
}

#[test]
fn fault_and_unmap() {
    explore(
        &|| World::written(2, 1),
        &[
            |world| {
                support::unmap(world.process(), FIRST, 0, 1);
                world.over();
            },
            |world| {
                world.try_write(0, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            world.none_after(Signal::Unmapped);
            world.end()
        },
    );
}

/// What a shared object holds does not change after it was unmapped.
#[test]
fn fault_and_unmap_of_shared_memory() {
    let begin = || {
        World::new(2, 0, |host| {
            let process = Process::new(host);
            let identity = ObjectIdentity {
                device: 1,
                inode: 1,
            };
            let object = Arc::new(Shmem::new(host.memory().clone(), bytes(1), identity));
            for page in [0, 4] {
                let kind = MapKind::Object {
                    object: object.clone(),
                    offset: 0,
                    shared: true,
                };
                map(&process, shared(kind), page);
            }
            write(&process, FIRST, 0, 1).expect("writable");
            write(&process, SECOND, 0, 1).expect("writable");
            write(&process, FIRST, 4, 1).expect("writable");
            process
        })
    };
    explore(
        &begin,
        &[
            |world| {
                support::unmap(world.process(), FIRST, 0, 1);
                world.over();
                let now = read(world.process(), FIRST, 4).expect("mapped");
                world.count.store(u64::from(now), Ordering::SeqCst);
            },
            |world| {
                world.try_write(0, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            world.none_after(Signal::Unmapped);
            let now = read(world.process(), FIRST, 4).expect("mapped");
            assert_eq!(now, world.last_written(1));
            assert_eq!(u64::from(now), world.count.load(Ordering::SeqCst));
            world.end()
        },
    );
}

fn shared(kind: MapKind<SimulatedMachine>) -> MapRequest<SimulatedMachine> {
    MapRequest {
        length: bytes(1),
        rights: READ_WRITE,
        max_rights: Rights::all(),
        kind,
        placement: Placement::Anywhere,
        flags: AreaFlags::empty(),
        populate: false,
    }
}

/// The first thread of the cases with a fork.
fn fork(world: &World) {
    let child = support::fork(world.process(), FIRST);
    *world.other.lock().unwrap() = Some(child);
    world.over();
}

/// The other CPU faults in a page that was never touched: the child has it or not, and never shares it.
#[test]
fn fault_and_fork() {
    explore(
        &|| World::fresh(1),
        &[fork, |world| world.try_write(0, 2)],
        |world| {
            let after = world.seen.lock().unwrap()[0].0;
            let child = world.other.lock().unwrap().take().expect("forked");
            let inherited = read(&child, FIRST, 0).expect("mapped");
            assert!(inherited == 0 || inherited == 2 && !after, "{inherited}");
            write(world.process(), SECOND, 0, 3).expect("writable");
            assert_eq!(read(&child, FIRST, 0), Ok(inherited));
            *world.other.lock().unwrap() = Some(child);
            world.end()
        },
    );
}

/// The other CPU writes two words, one after the other, through what it has cached: the child has them as they were
/// at one moment, and they stay so.
#[test]
fn fork_and_write() {
    explore(
        &|| World::written(2, 1),
        &[fork, |world| {
            for value in [2, 3] {
                world.try_write(0, value);
                let second = at(0).as_u64() + 8;
                let second = memwright_table::VirtAddr::new(second);
                world
                    .process()
                    .write(SECOND, second, &[value])
                    .expect("writable");
            }
        }],
        |world| {
            let child = world.other.lock().unwrap().take().expect("forked");
            let mut line = [0; 9];
            let pair = |process: &Process, line: &mut [u8; 9]| {
                process.read(FIRST, at(0), line).expect("mapped");
                (line[0], line[8])
            };
            let (first, second) = pair(&child, &mut line);
            let moment = [(1, 0), (2, 0), (2, 2), (3, 2), (3, 3)];
            assert!(moment.contains(&(first, second)), "{first} {second}");
            assert_eq!(pair(world.process(), &mut line), (3, 3));
            // What began after the fork is the parent's alone.
            let seen = world.seen.lock().unwrap().clone();
            for (after, value) in seen {
                assert!(
                    !after || value.is_ok_and(|value| first < value),
                    "the child saw {value:?}"
                );
            }
            *world.other.lock().unwrap() = Some(child);
            world.end()
        },
    );
}

/// Parent and child write a page that they share at the same time: each has its own, and neither write is lost.
#[test]
fn copy_and_copy() {
    let begin = || {
        let world = World::written(2, 1);
        let child = support::fork(world.process(), FIRST);
        child.on(SECOND, |_| ());
        *world.other.lock().unwrap() = Some(child);
        world
    };
    explore(
        &begin,
        &[
            |world| write(world.process(), FIRST, 0, 2).expect("writable"),
            |world| {
                let child = world.other.lock().unwrap().take().expect("there");
                write(&child, SECOND, 0, 3).expect("writable");
                *world.other.lock().unwrap() = Some(child);
            },
        ],
        |world| {
            let child = world.other.lock().unwrap().take().expect("there");
            assert_eq!(read(world.process(), FIRST, 0), Ok(2));
            assert_eq!(read(&child, SECOND, 0), Ok(3));
            *world.other.lock().unwrap() = Some(child);
            world.end()
        },
    );
}

/// One CPU copies a page that a child shares, another writes the copy, a third reads: once the write is done
/// nobody reads the page that it replaced.
#[test]
fn copy_and_write_and_read() {
    let begin = || {
        let world = World::written(3, 1);
        *world.other.lock().unwrap() = Some(support::fork(world.process(), FIRST));
        for cpu in world.host.machine().cpus() {
            assert_eq!(read(world.process(), cpu, 0), Ok(1));
        }
        world
    };
    explore(
        &begin,
        &[
            |world| write(world.process(), FIRST, 0, 2).expect("writable"),
            |world| {
                write(world.process(), SECOND, 0, 3).expect("writable");
                world.over();
            },
            |world| {
                let after = world.over.load(Ordering::SeqCst);
                let found = read(world.process(), THIRD, 0).expect("readable");
                assert!(!after || found != 1, "{found} after a write");
            },
        ],
        World::end,
    );
}

/// The first write of a clean page meets a protection change: if it got through, the entry says so.
#[test]
fn protect_and_first_write() {
    let begin = || {
        World::new(2, 0, |host| {
            let process = Process::new(host);
            let identity = ObjectIdentity {
                device: 1,
                inode: 1,
            };
            let object = Arc::new(Shmem::new(host.memory().clone(), bytes(1), identity));
            let kind = MapKind::Object {
                object,
                offset: 0,
                shared: true,
            };
            map(&process, shared(kind), 0);
            for cpu in [FIRST, SECOND] {
                assert_eq!(read(&process, cpu, 0), Ok(0));
            }
            process
        })
    };
    explore(
        &begin,
        &[
            |world| protect(world.process(), FIRST, 0, 1, READ),
            |world| world.try_write(0, 2),
        ],
        |world| {
            let written = world.last_written(0);
            assert_eq!(read(world.process(), FIRST, 0), Ok(written));
            let machine = world.host.machine();
            let root = machine.loaded_root(FIRST).expect("loaded");
            let page = at(0).page().number();
            let entry = walk::look(machine.memory(), root, page);
            let dirty = entry.is_some_and(|entry| entry.is_ok_and(|entry| entry.dirty));
            assert_eq!(dirty, written != 0);
            world.end()
        },
    );
}

/// Both CPUs fault at one page: it gets one frame, and neither write is lost.
#[test]
fn fault_and_fault() {
    explore(
        &|| World::fresh(1),
        &[
            |world| write(world.process(), FIRST, 0, 1).expect("writable"),
            |world| {
                let next = memwright_table::VirtAddr::new(at(0).as_u64() + 1);
                world.process().write(SECOND, next, &[2]).expect("writable");
            },
        ],
        |world| {
            let mut both = [0; 2];
            world.process().read(FIRST, at(0), &mut both).unwrap();
            assert_eq!(both, [1, 2]);
            assert_eq!(world.host.frames().used_by(FrameKind::Anonymous), 1);
            world.end()
        },
    );
}

/// One reads and finds the zero frame, the other writes.
#[test]
fn read_fault_and_write_fault() {
    explore(
        &|| World::fresh(1),
        &[
            |world| {
                let first = read(world.process(), FIRST, 0).expect("readable");
                let second = read(world.process(), FIRST, 0).expect("readable");
                assert!(first <= second, "{first}, then {second}");
            },
            |world| world.try_write(0, 2),
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, 0), Ok(2));
            world.end()
        },
    );
}

#[test]
fn protect_and_protect_of_neighbours() {
    explore(
        &|| World::written(2, 2),
        &[
            |world| protect(world.process(), FIRST, 0, 1, READ),
            |world| {
                protect(world.process(), SECOND, 1, 1, Rights::empty());
                protect(world.process(), SECOND, 1, 1, READ);
            },
        ],
        |world| {
            for page in 0..2 {
                assert_eq!(read(world.process(), SECOND, page), Ok(1));
                assert_eq!(
                    write(world.process(), FIRST, page, 2),
                    Err(Signal::Forbidden)
                );
            }
            world.end()
        },
    );
}

fn move_page(world: &World, to: u64) {
    let request = RemapRequest {
        old: at(0),
        old_length: bytes(1),
        new_length: bytes(1),
        may_move: true,
        fixed: Some(at(to)),
        dont_unmap: false,
    };
    world
        .process()
        .on(FIRST, |space| space.remap(request))
        .expect("room");
    world.over();
}

/// What was written at the old place is at the new one.
#[test]
fn move_and_fault() {
    explore(
        &|| World::written(2, 1),
        &[
            |world| move_page(world, 6),
            |world| {
                world.try_write(0, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            world.none_after(Signal::Unmapped);
            assert_eq!(read(world.process(), SECOND, 6), Ok(world.last_written(1)));
            world.end()
        },
    );
}

/// A write that began after the call is there; an earlier one may be gone.
#[test]
fn drop_and_fault() {
    explore(
        &|| World::written(2, 1),
        &[
            |world| {
                world
                    .process()
                    .on(FIRST, |space| {
                        space.advise(at(0), bytes(1), Advice::DontNeed)
                    })
                    .expect("mapped");
                world.over();
            },
            |world| {
                world.try_write(0, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            let seen = world.seen.lock().unwrap().clone();
            let now = read(world.process(), FIRST, 0).expect("mapped");
            assert!(seen.iter().all(|(_, outcome)| outcome.is_ok()), "{seen:?}");
            assert!(now == 3 || now == 0 && !seen[1].0, "{now}, {seen:?}");
            world.end()
        },
    );
}

/// Write-back cleans a page that another CPU writes: the file hears of every write that is not in its copy.
#[test]
fn clean_and_write() {
    explore(
        &World::of_file,
        &[
            |world| {
                world.file().clean();
                world.over();
            },
            |world| {
                world.try_write(0, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            assert_eq!(world.file().check(), None, "not announced");
            assert_eq!(read(world.process(), FIRST, 0), Ok(3));
            let after = world.seen.lock().unwrap()[1].0;
            assert!(!after || world.file().dirty() == [0]);
            world.end()
        },
    );
}

/// A page of a file goes while another CPU faults it in: afterwards it is not there.
#[test]
fn truncate_and_fault() {
    let begin = || {
        let world = World::of_file();
        support::unmap(world.process(), FIRST, 0, 1);
        let file = world.file.clone().expect("there");
        let request = MapRequest::object(file, 0, bytes(1), READ_WRITE, true);
        map(world.process(), request, 0);
        world
    };
    explore(
        &begin,
        &[
            |world| {
                world.file().truncate(0);
                world.over();
            },
            |world| {
                for _ in 0..2 {
                    let after = world.over.load(Ordering::SeqCst);
                    let outcome = read(world.process(), SECOND, 0);
                    world.seen.lock().unwrap().push((after, outcome));
                }
            },
        ],
        |world| {
            world.none_after(Signal::Bus);
            assert_eq!(read(world.process(), FIRST, 0), Err(Signal::Bus));
            world.end()
        },
    );
}

/// The area is cut in three: what lies beside the cut is writable all the time.
#[test]
fn split_and_fault() {
    explore(
        &|| World::fresh(3),
        &[
            |world| protect(world.process(), FIRST, 1, 1, READ),
            |world| {
                world.try_write(2, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            let seen = world.seen.lock().unwrap().clone();
            assert_eq!(seen, [(false, Ok(2)), (false, Ok(3))]);
            assert_eq!(read(world.process(), FIRST, 2), Ok(2));
            world.end()
        },
    );
}

/// Memory is so short that the frame which one CPU frees is the one that another gets, while a third still
/// writes the old page.
#[test]
fn gather_and_free_and_allocate() {
    let begin = || {
        let world = World::written(3, 1);
        let other = program(&world.host, 1, READ_WRITE);
        // Its tables, so that it lacks nothing but the page.
        map(&other, MapRequest::anonymous(bytes(1), READ_WRITE), 1);
        write(&other, SECOND, 1, 5).expect("writable");
        let frames = world.host.frames();
        let mut hoard = world.hoard.lock().unwrap();
        let _running = world.host.machine().run_on(SECOND);
        while let Ok(frame) = frames.allocate(0, FrameKind::Kernel) {
            hoard.push(frame.into_raw());
        }
        drop(hoard);
        *world.other.lock().unwrap() = Some(other);
        world
    };
    explore(
        &begin,
        &[
            |world| support::unmap(world.process(), FIRST, 0, 1),
            |world| {
                let other = world.other.lock().unwrap().take().expect("there");
                let got = write(&other, SECOND, 0, 2);
                assert!(matches!(got, Ok(()) | Err(Signal::OutOfMemory)), "{got:?}");
                if got.is_ok() {
                    world.count.fetch_add(1, Ordering::SeqCst);
                }
                *world.other.lock().unwrap() = Some(other);
            },
            |world| {
                let _ = write(world.process(), THIRD, 0, 9);
            },
        ],
        |world| {
            if world.count.load(Ordering::SeqCst) > 0 {
                let other = world.other.lock().unwrap().take().expect("there");
                assert_eq!(read(&other, SECOND, 0), Ok(2));
                *world.other.lock().unwrap() = Some(other);
            }
            world.end()
        },
    );
}

/// A CPU with tags leaves the address space and comes back to what it kept, while a page of it goes.
#[test]
fn unmap_and_return_to_a_kept_root() {
    let begin = || {
        let world = World::new(2, 2, |host| {
            let process = program(host, 2, READ_WRITE);
            for cpu in [FIRST, SECOND] {
                write(&process, cpu, 0, 1).expect("writable");
            }
            process
        });
        let other = program(&world.host, 1, READ_WRITE);
        *world.other.lock().unwrap() = Some(other);
        world
    };
    explore(
        &begin,
        &[
            |world| {
                support::unmap(world.process(), FIRST, 0, 1);
                world.over();
            },
            |world| {
                let other = world.other.lock().unwrap().take().expect("there");
                other.on(SECOND, |_| ());
                *world.other.lock().unwrap() = Some(other);
                world.try_write(0, 2);
            },
        ],
        |world| {
            world.none_after(Signal::Unmapped);
            world.end()
        },
    );
}

/// Two system calls fault a page in for themselves while it goes: neither sees what is not there.
#[test]
fn kernel_fault_and_unmap() {
    explore(
        &|| World::fresh(1),
        &[
            |world| support::unmap(world.process(), FIRST, 0, 1),
            |world| {
                let access = Access {
                    user: false,
                    ..Access::WRITE
                };
                let outcome = world
                    .process()
                    .on(SECOND, |space| space.fault(at(0), access));
                assert!(
                    matches!(outcome, Ok(_) | Err(FaultError::NoArea)),
                    "{outcome:?}"
                );
            },
        ],
        World::end,
    );
}
