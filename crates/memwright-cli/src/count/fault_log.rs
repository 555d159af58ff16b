//! Collects page faults from QEMU's log, and places them in the maps of a separate run.
//!
//! The log has the instruction, the address and the address space (CR3) of each fault. The plugin's lines have the
//! system calls of each address space. A fault in kernel mode belongs to the last system call that its address space
//! made. The plugin's lines also show when a process forks, executes another program or exits. From these lines, each
//! address space gets an image number: each exec of the run begins a new image, numbered from 1, and a child has the
//! image of its parent. The maps have the same image numbers (`programs/lab/maps.c`).

use std::collections::{BTreeMap, HashMap};

use crate::count::fault_maps::Maps;
use crate::count::fault_sites::{Place, Site, Sites};
use crate::count::line::{Exception, Line};
use crate::model::counts::{Counts, Faults, PAGE_FAULT, USER, kind};
use crate::model::faults::{EXECVE, UNMAPPED};

/// The system calls that replace the program: `execve` and `execveat`.
const EXEC: [u64; 2] = [59, 322];
/// The system call `fork`.
const FORK: u64 = 57;
/// The system calls after which the caller's address space can be shared: `clone`, `vfork` and `clone3`.
const CLONE: [u64; 3] = [56, 58, 435];
/// The system call `exit_group`.
const EXIT: u64 = 231;
/// The bits of CR3 that contain the address of the page tables.
const TABLES: u64 = 0x000f_ffff_ffff_f000;
/// The prefix of each kind of fault that occurs in kernel mode.
const KERNEL: &str = "kernel_";

/// A system call that an address space has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    instruction: u64,
    /// The number of the call; `None` if QEMU is too old to report it.
    number: Option<u64>,
}

/// An address space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Space {
    /// The number of the address space. Address spaces are numbered in the order of their first use in the run.
    number: u64,
    image: u32,
    call: Option<Call>,
    /// Whether a child or a thread can be using the address space, too.
    is_shared: bool,
    /// Whether the process has exited or executed another program. Its page tables can then have been reused for
    /// another address space.
    has_ended: bool,
}

/// A fault, with its address rounded down to the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Fault {
    space: u64,
    image: u32,
    instruction: Option<u64>,
    /// The number of the system call in which the kernel took the fault; `Some(None)` if the kernel took it in a system
    /// call of unknown number. `None` for a fault in user mode, or if the plugin reports no system calls.
    call: Option<Option<u64>>,
    page: u64,
    kind: (bool, &'static str),
}

/// The page faults of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultLog {
    runs: bool,
    /// A fault whose address space the log has not stated yet: its error code, instruction and address.
    pending: Option<(u16, u64, u64)>,
    loaded: u64,
    spaces: HashMap<u64, Space>,
    numbers: u64,
    images: u32,
    /// The address space whose process last called `execve`.
    executes: Option<u64>,
    forks: Option<u64>,
    /// Whether the plugin reports system calls, and whether it reports their numbers.
    sees_calls: bool,
    has_numbers: bool,
    /// The faults up to the last change of CR3, and the faults since that change.
    faults: BTreeMap<Fault, u64>,
    recent: BTreeMap<Fault, u64>,
}

impl FaultLog {
    /// Processes a line of the log. The marks of the run are reported by [`begin`](Self::begin) and [`end`](Self::end).
    pub fn line(&mut self, line: Line) {
        match line {
            Line::Exception(Exception {
                vector,
                error,
                by_instruction: _,
                at,
                address,
            }) => self.exception(vector, error, at, address),
            Line::HeldCr3(value) => self.settle(value & TABLES),
            Line::Cr3(value) => self.load(value),
            Line::Call { at, cr3, number } => self.call(at, cr3, number),
            Line::Idt(_)
            | Line::Gs(_)
            | Line::TaskState(_)
            | Line::TripleFault
            | Line::Counting
            | Line::Cpu(_)
            | Line::Counts { .. }
            | Line::Apic { .. }
            | Line::Cr3Next { .. }
            | Line::Enter(_)
            | Line::Return(_)
            | Line::Switch(_)
            | Line::Mark { .. } => {}
        }
    }

    /// Starts the run of the program. Earlier faults are discarded.
    pub fn begin(&mut self) {
        *self = Self {
            runs: true,
            loaded: self.loaded,
            ..Self::default()
        };
    }

    /// Ends the run: at the last change of CR3 if `at_last_change` is true, otherwise now.
    pub fn end(&mut self, at_last_change: bool) {
        self.settle(self.loaded);
        if !at_last_change {
            self.keep_recent();
        }
        self.recent.clear();
        self.runs = false;
    }

    fn exception(&mut self, vector: u8, error: u16, at: u64, address: Option<u64>) {
        self.settle(self.loaded);
        if self.runs && vector == PAGE_FAULT {
            self.pending = Some((error, at, address.unwrap_or(0)));
        }
    }

    /// Records a load of CR3.
    fn load(&mut self, value: u64) {
        let value = value & TABLES;
        self.settle(self.loaded);
        let before = std::mem::replace(&mut self.loaded, value);
        if !self.runs || before == value {
            return;
        }
        self.keep_recent();
        let is_known = self
            .spaces
            .get(&value)
            .is_some_and(|space| !space.has_ended);
        if is_known {
            return;
        }
        // An exec loads its new page tables before another process runs. If `executes` is `before`, `value` is
        // therefore the address of the exec's new page tables.
        let image = if self.executes == Some(before) || !self.has_numbers {
            self.executes = None;
            if let Some(old) = self.spaces.get_mut(&before) {
                old.has_ended = !old.is_shared;
            }
            self.images += u32::from(self.has_numbers || self.images == 0);
            self.images
        } else {
            let parent = self.forks.and_then(|parent| self.spaces.get(&parent));
            parent.map_or(0, |parent| parent.image)
        };
        self.enter(value, image);
    }

    /// Records that a process makes a system call. `cr3` is 0 if QEMU is too old to report it.
    fn call(&mut self, instruction: u64, cr3: u64, number: Option<u64>) {
        self.settle(self.loaded);
        self.sees_calls = true;
        self.has_numbers |= number.is_some();
        let value = match cr3 & TABLES {
            0 => self.loaded,
            value => value,
        };
        self.loaded = value;
        let shares = number.is_some_and(|number| CLONE.contains(&number));
        let space = self.space(value);
        space.is_shared |= shares;
        space.call = Some(Call {
            instruction,
            number,
        });
        space.has_ended = number == Some(EXIT);
        if is_exec(number) {
            self.executes = Some(value);
        }
        if number == Some(FORK) || shares {
            self.forks = Some(value);
        }
    }

    fn enter(&mut self, value: u64, image: u32) {
        self.numbers += 1;
        let space = Space {
            number: self.numbers,
            image,
            ..Space::default()
        };
        self.spaces.insert(value, space);
    }

    fn space(&mut self, value: u64) -> &mut Space {
        if !self.spaces.contains_key(&value) {
            let image = self.images;
            self.enter(value, image);
        }
        self.spaces.entry(value).or_default()
    }

    /// Adds the pending fault to the faults of the address space whose CR3 is `value`.
    fn settle(&mut self, value: u64) {
        let Some((error, at, address)) = self.pending.take() else {
            return;
        };
        let space = *self.space(value);
        let by_user = error & USER != 0;
        let (instruction, call) = match (by_user, space.call) {
            (true, _) => (Some(at), None),
            (false, Some(call)) => {
                let instruction = (!is_exec(call.number)).then_some(call.instruction);
                (instruction, Some(call.number))
            }
            // An address space that has made no system call belongs to a program that an exec is still starting.
            (false, None) => (None, self.sees_calls.then_some(Some(EXEC[0]))),
        };
        let fault = Fault {
            space: space.number,
            image: space.image,
            instruction,
            call,
            page: address & !0xfff,
            kind: (by_user, kind(error)),
        };
        *self.recent.entry(fault).or_default() += 1;
    }

    fn keep_recent(&mut self) {
        for (fault, count) in std::mem::take(&mut self.recent) {
            *self.faults.entry(fault).or_default() += count;
        }
    }

    /// Returns the faults by site. They add up to the counts of the run, kind by kind.
    ///
    /// # Errors
    /// If there are more faults than the run counted.
    pub fn sites(&self, maps: &Maps, counts: &Counts) -> anyhow::Result<Sites> {
        let mut sites = Sites::default();
        for (fault, count) in &self.faults {
            let (by_user, kind) = fault.kind;
            let kind = match by_user {
                true => kind.to_owned(),
                false => format!("{KERNEL}{kind}"),
            };
            sites.add(site(fault, maps), &kind, *count, None);
        }
        sites.complete(&kinds(counts))?;
        Ok(sites)
    }
}

fn is_exec(number: Option<u64>) -> bool {
    number.is_some_and(|number| EXEC.contains(&number))
}

fn site(fault: &Fault, maps: &Maps) -> Site {
    let code = fault.instruction.and_then(|address| {
        let area = maps.find(fault.image, address)?;
        Some(Place {
            name: area.name.clone(),
            offset: address - area.start + area.offset,
        })
    });
    let area = maps.find(fault.image, fault.page);
    let area = area.map_or_else(
        || Place {
            name: UNMAPPED.to_owned(),
            offset: 0,
        },
        |area| Place {
            name: area.name.clone(),
            offset: area.offset,
        },
    );
    Site {
        process: Some(fault.space),
        name: maps.name(fault.image).to_owned(),
        instruction: fault.instruction,
        code,
        call: fault.call.map(|number| match number {
            number if is_exec(number) => EXECVE.to_owned(),
            Some(number) => format!("syscall_{number}"),
            None => "a system call".to_owned(),
        }),
        area: Some(area),
    }
}

/// Returns the number of faults of each kind that a run counted.
fn kinds(counts: &Counts) -> Vec<(String, u64)> {
    let of = |faults: &Faults, prefix: &str| {
        faults
            .kinds()
            .map(|(kind, count)| (format!("{prefix}{kind}"), count))
    };
    let user = of(&counts.user_faults, "");
    let kernel = of(&counts.kernel_faults, KERNEL);
    user.into_iter().chain(kernel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: u16 = 2;
    const SHELL: u64 = 0x1000;
    const CHILD: u64 = 0x2000;
    const OTHER: u64 = 0x3000;

    /// A run in which a program forks; the child writes, executes another program, and reads with `read`.
    fn log() -> FaultLog {
        let mut log = FaultLog::default();
        log.exception(PAGE_FAULT, USER, 0x40, Some(1));
        log.line(Line::HeldCr3(0x9000));
        log.begin();
        log.call(0x50, 0x9000, Some(EXEC[0]));
        log.load(SHELL);
        log.exception(PAGE_FAULT, 0, 0xffff_ffff_8100_0000, Some(0x7fff_0000));
        log.line(Line::HeldCr3(SHELL));
        log.exception(PAGE_FAULT, USER | WRITE, 0x40_1000, Some(0x5123));
        log.line(Line::HeldCr3(SHELL));
        log.call(0x40_2000, SHELL, Some(57));
        log.load(CHILD);
        log.exception(PAGE_FAULT, USER | WRITE | 1, 0x40_1000, Some(0x5123));
        log.line(Line::HeldCr3(CHILD));
        log.call(0x40_3000, CHILD, Some(EXEC[0]));
        log.load(OTHER);
        log.call(0x50_1000, OTHER, Some(0));
        log.exception(PAGE_FAULT, WRITE, 0xffff_ffff_8100_0000, Some(0x6000));
        log.line(Line::HeldCr3(OTHER));
        log.call(0x50_1100, OTHER, Some(EXIT));
        log.load(SHELL);
        log.exception(PAGE_FAULT, USER, 0x40_1001, Some(0x9999));
        log.line(Line::HeldCr3(SHELL));
        log
    }

    /// The fields of a fault: address space, image, instruction, number of the call, page and kind.
    type Found = (u64, u32, Option<u64>, Option<u64>, u64, &'static str);

    fn found(log: &FaultLog) -> Vec<Found> {
        let faults = log.faults.keys();
        faults
            .map(|one| {
                let (_, kind) = one.kind;
                (
                    one.space,
                    one.image,
                    one.instruction,
                    one.call.flatten(),
                    one.page,
                    kind,
                )
            })
            .collect()
    }

    #[test]
    fn faults_have_address_spaces_images_and_calls() {
        let mut ended = log();
        ended.end(true);
        // Address space 1 is that of the process that executes the program.
        let expected = [
            (2, 1, None, Some(EXEC[0]), 0x7fff_0000, "read"),
            (2, 1, Some(0x40_1000), None, 0x5000, "write"),
            (3, 1, Some(0x40_1000), None, 0x5000, "write_protect"),
            (4, 2, Some(0x50_1000), Some(0), 0x6000, "write"),
        ];
        assert_eq!(found(&ended), expected);
        let mut ended = log();
        ended.end(false);
        assert_eq!(found(&ended).len(), expected.len() + 1);
    }

    #[test]
    fn an_address_space_that_is_used_again_is_another_one() {
        let mut log = log();
        log.call(0x40_2000, SHELL, Some(57));
        log.load(OTHER);
        log.exception(PAGE_FAULT, USER, 0x40_1000, Some(0x7000));
        log.line(Line::HeldCr3(OTHER));
        log.end(false);
        let again = (5, 1, Some(0x40_1000), None, 0x7000, "read");
        assert!(found(&log).contains(&again));
    }

    #[test]
    fn the_page_tables_of_the_first_process_are_used_again() {
        let mut log = log();
        log.call(0x40_2000, SHELL, Some(FORK));
        log.load(0x9000);
        log.exception(PAGE_FAULT, USER, 0x40_1000, Some(0x7000));
        log.line(Line::HeldCr3(0x9000));
        log.end(false);
        let again = (5, 1, Some(0x40_1000), None, 0x7000, "read");
        assert!(found(&log).contains(&again), "{:?}", found(&log));
    }

    #[test]
    fn sites_are_in_the_maps_of_their_image() {
        let mut log = log();
        log.end(true);
        let mut maps = Maps::default();
        maps.add(b"1 7 sh\n00400000-00403000 r-xp 00001000 00:02 5 /sh\n00005000-00006000 rw-p 00000000 00:00 0 [heap]\n");
        let counts = Counts {
            user_faults: Faults {
                write: 1,
                write_protect: 1,
                ..Faults::default()
            },
            kernel_faults: Faults {
                read: 1,
                write: 1,
                ..Faults::default()
            },
            ..Counts::default()
        };
        let sites = log.sites(&maps, &counts).unwrap();
        let names: Vec<_> = sites
            .iter()
            .map(|(site, _)| {
                let code = site.code.as_ref().map(|place| (&*place.name, place.offset));
                let area = site.area.as_ref().map(|place| &*place.name);
                (site.name.as_str(), code, site.call.as_deref(), area)
            })
            .collect();
        let code = Some(("/sh", 0x2000));
        assert_eq!(
            names,
            [
                ("sh", None, Some(EXECVE), Some(UNMAPPED)),
                ("sh", code, None, Some("[heap]")),
                ("sh", code, None, Some("[heap]")),
                ("", None, Some("syscall_0"), Some(UNMAPPED)),
            ]
        );
        let too_few = Counts::default();
        assert!(log.sites(&maps, &too_few).is_err());
    }
}
