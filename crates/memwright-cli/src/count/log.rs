//! Counts the events of QEMU's log, in the order in which they happened.

use std::collections::{BTreeMap, BTreeSet};

use memwright_linux_abi::channel::THE_RUN;

use crate::count::fault_log::FaultLog;
use crate::count::interrupts::Interrupts;
use crate::count::line::Line;
use crate::count::system::Marker;
use crate::model::code::Code;
use crate::model::counts::{Counts, Instructions};
use crate::model::page_tables::PageTables;
use crate::model::passes::Passes;
use crate::model::region::Region;

/// The counts of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The counts of the program's run.
    pub run: Counts,
    /// The counts of each region that the program marked, by number; `None` without the plugin, which alone detects
    /// marks.
    pub regions: Option<Vec<Region>>,
    /// The regions of a kernel that runs alone that began before its handlers were known. No profile of them is
    /// possible.
    pub unhandled: BTreeSet<u16>,
    /// The page faults of the run; `None` if they are not collected.
    pub faults: Option<FaultLog>,
}

/// Unmapped addresses that the guest's init process accesses just before [`THE_RUN`] begins and just after it has
/// ended. The log contains these page faults even without the plugin.
const RUN_BEGINS: u64 = 0x4d57_0000_0000;
const RUN_ENDS: u64 = 0x4d57_0000_1000;

/// Counts the events of a log.
#[derive(Debug)]
pub struct Tally {
    now: Counts,
    cr3: Vec<u64>,
    next: (usize, Option<u64>),
    cpus: u8,
    marker: Marker,
    interrupts: Interrupts,
    idt: Option<u64>,
    // CR3 and the address of the interrupt descriptor table at the start of the run; `None` before it, and once the
    // caller has taken them.
    gates: Option<(u64, u64)>,
    // The counts when CR3 last changed, and the number of kernel instructions that had begun at that point.
    at_switch: Option<(Counts, Option<u64>)>,
    begun: Option<u64>,
    // Whether the kernel runs alone. The handlers are then known from the first mark on at which the interrupt
    // descriptor table is, and not from the start of the run.
    is_alone: bool,
    triple_fault: bool,
    // The regions that began before the handlers were known.
    unhandled: BTreeSet<u16>,
    // The value of `begun` at the end of the run; `None` before it, and once the caller has taken it.
    end: Option<u64>,
    counting: bool,
    open: Vec<(u16, Counts)>,
    regions: Vec<Region>,
    passes: BTreeMap<u16, Passes>,
    states: BTreeMap<u16, Option<PageTables>>,
    faults: Option<FaultLog>,
}

impl Tally {
    /// Returns an empty tally for a guest with `cpus` CPUs. With several CPUs, loads of CR3 are counted only with the
    /// plugin: without it, the log does not contain the CPU.
    pub fn new(cpus: u8, marker: Marker) -> Self {
        let told = (cpus == 1).then_some(0);
        Self {
            now: Counts {
                full_flushes: told,
                switches: told,
                ..Counts::default()
            },
            cr3: Vec::new(),
            next: (0, None),
            cpus,
            marker,
            interrupts: Interrupts::default(),
            idt: None,
            gates: None,
            at_switch: None,
            begun: None,
            is_alone: false,
            triple_fault: false,
            unhandled: BTreeSet::new(),
            end: None,
            counting: false,
            open: Vec::new(),
            regions: Vec::new(),
            passes: BTreeMap::new(),
            states: BTreeMap::new(),
            faults: None,
        }
    }

    /// Makes the tally collect page faults, too.
    pub fn with_faults(self) -> Self {
        Self {
            faults: Some(FaultLog::default()),
            ..self
        }
    }

    /// Returns an empty tally for a guest with a kernel that runs alone. The vectors of its interrupts mean nothing.
    pub fn alone(cpus: u8, code: &Code) -> Self {
        let mut tally = Self::new(cpus, Marker::Kernel);
        tally.now.call_interrupts = None;
        tally.interrupts = Interrupts::of_code(code);
        tally.is_alone = true;
        tally
    }

    /// Returns whether the guest ended in a triple fault.
    pub fn triple_fault(&self) -> bool {
        self.triple_fault
    }

    /// Processes a line. Returns whether it is a mark. After a mark, the guest is stopped until the plugin reads an
    /// answer. `look` summarizes the page tables at a value of CR3.
    pub fn line(&mut self, line: Line, look: impl Fn(u64) -> Option<PageTables>) -> bool {
        if let Some(faults) = &mut self.faults {
            faults.line(line);
        }
        match line {
            Line::Exception {
                vector,
                error,
                by_instruction,
                at,
                address,
            } => {
                self.interrupts.exception(vector, error, by_instruction, at);
                match (self.counting, address) {
                    (false, Some(RUN_BEGINS)) => self.mark(THE_RUN, true),
                    (false, Some(RUN_ENDS)) => self.mark(THE_RUN, false),
                    (_, _) => self.now.exception(vector, error, by_instruction),
                }
            }
            Line::Idt(base) => self.idt = Some(base),
            Line::TripleFault => self.triple_fault = true,
            Line::HeldCr3(_) | Line::Call { .. } => {}
            Line::Enter(counted) => self.interrupts.enter(counted),
            Line::Return(counted) => self.interrupts.leave(counted),
            Line::Switch(counted) => self.interrupts.switch(counted),
            Line::Counting => {
                self.counting = true;
                (self.now.full_flushes, self.now.switches) = (Some(0), Some(0));
            }
            Line::Cr3Next {
                cpu,
                holds,
                flushes,
                instructions,
            } => {
                self.next = (cpu, holds);
                self.take(flushes, instructions);
            }
            Line::Cr3(value) => self.load_cr3(value),
            Line::Mark {
                code,
                cpu,
                cr3,
                flushes,
                instructions,
            } => {
                // Reading large page tables takes long, so they are read for the first pass of each mark only.
                if code >> 1 != THE_RUN && !self.states.contains_key(&code) {
                    let cr3 = cr3.or_else(|| self.cr3.get(cpu).copied());
                    let state = cr3.and_then(look);
                    self.states.insert(code, state);
                }
                if self.is_alone && code >> 1 != THE_RUN {
                    self.find_handlers(code, cr3.or_else(|| self.cr3.get(cpu).copied()));
                } else if code == THE_RUN << 1 && instructions.is_some() && !self.is_alone {
                    let cr3 = cr3.or_else(|| self.cr3.get(cpu).copied());
                    self.gates = cr3.zip(self.idt);
                    self.interrupts.handlers_are_known();
                }
                self.take(flushes, instructions);
                self.mark(code >> 1, code & 1 == 0);
                return true;
            }
        }
        false
    }

    /// Finds the handlers of a kernel that runs alone, at a mark of a region. They can be others than at the mark
    /// before.
    fn find_handlers(&mut self, code: u16, cr3: Option<u64>) {
        self.gates = cr3.zip(self.idt);
        if self.gates.is_none() && code & 1 == 0 {
            self.unhandled.insert(code >> 1);
        }
    }

    /// Returns CR3 and the address of the interrupt descriptor table at the start of the run or, of a kernel that runs
    /// alone, at the last mark. Later calls return `None`.
    pub fn take_gates(&mut self) -> Option<(u64, u64)> {
        self.gates.take()
    }

    /// Returns the number of kernel instructions that had begun at the end of the run. Later calls return `None`.
    pub fn take_end(&mut self) -> Option<u64> {
        self.end.take()
    }

    /// Stores the plugin's counts as the current ones.
    fn take(&mut self, flushes: [u64; 3], instructions: Option<Instructions>) {
        self.begun = instructions.map(|counted| counted.kernel);
        [self.now.invlpg, self.now.invpcid, self.now.cr4_writes] = flushes.map(Some);
        self.now.instructions = instructions.map(|counted| self.interrupts.count(counted));
    }

    fn load_cr3(&mut self, value: u64) {
        let (cpu, holds) = self.next;
        if self.cr3.len() <= cpu {
            self.cr3.resize(cpu + 1, 0);
        }
        let last = &mut self.cr3[cpu];
        let count = if holds.unwrap_or(*last) == value {
            &mut self.now.full_flushes
        } else {
            self.at_switch = Some((self.now, self.begun));
            &mut self.now.switches
        };
        if let Some(count) = count {
            *count += 1;
        }
        *last = value;
    }

    /// Processes a mark. A begin mark in an open region restarts the pass; an end mark without a begin mark ends no
    /// pass.
    fn mark(&mut self, region: u16, begins: bool) {
        let open = self.open.iter().position(|(other, _)| *other == region);
        let now = match (region, begins) {
            (THE_RUN, true) => {
                if let Some(faults) = &mut self.faults {
                    faults.begin();
                }
                self.at_switch = None;
                if let Some(counted) = &mut self.now.instructions {
                    counted.user += self.marker.before_exec();
                }
                self.now
            }
            (THE_RUN, false) => {
                let is_earlier = self.cpus == 1 && self.marker == Marker::FirstProcess;
                let switch = self.at_switch.filter(|_| is_earlier);
                if let Some(faults) = &mut self.faults {
                    faults.end(switch.is_some());
                }
                let (now, begun) = switch.unwrap_or((self.now, self.begun));
                self.end = begun;
                now
            }
            (_, _) => self.now,
        };
        match (begins, open) {
            (true, None) => self.open.push((region, now)),
            (true, Some(place)) => {
                self.open[place].1 = now;
                self.region(region).marks.begun_again += 1;
            }
            (false, None) => self.region(region).marks.not_begun += 1,
            (false, Some(place)) => {
                let (_, before) = self.open.swap_remove(place);
                let passed = now.since(before);
                self.passes.entry(region).or_default().add(passed);
                let known = self.region(region);
                known.counts = match known.marks.passes {
                    0 => passed,
                    _ => known.counts.plus(passed),
                };
                known.marks.passes += 1;
            }
        }
    }

    /// Returns the entry of a region, which is added if it does not exist.
    fn region(&mut self, region: u16) -> &mut Region {
        let known = self.regions.iter().position(|one| one.region == region);
        let place = known.unwrap_or_else(|| {
            self.regions.push(Region {
                region,
                ..Region::default()
            });
            self.regions.len() - 1
        });
        &mut self.regions[place]
    }

    /// Returns the counts, or `None` if the log does not contain the end of the run.
    pub fn finish(mut self) -> Option<Counted> {
        let is_run = |one: &Region| one.region == THE_RUN && one.marks.passes > 0;
        let run = self.regions.iter().position(is_run)?;
        let run = self.regions.swap_remove(run);
        let open = std::mem::take(&mut self.open);
        for (region, _) in open.into_iter().filter(|(region, _)| *region != THE_RUN) {
            self.region(region).marks.not_ended += 1;
        }
        self.regions.sort_by_key(|one| one.region);
        for one in &mut self.regions {
            let state = |code| self.states.get(&code).copied().flatten();
            one.at_beginning = state(one.region << 1);
            one.at_end = state(one.region << 1 | 1);
            one.each = self.passes.get(&one.region).and_then(Passes::each);
        }
        Some(Counted {
            run: run.counts,
            regions: self.counting.then_some(self.regions),
            unhandled: self.unhandled,
            faults: self.faults,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::line::parse;
    use crate::model::region::Marks;

    fn tally(lines: &[&str]) -> Tally {
        tally_of(1, lines)
    }

    fn tally_of(cpus: u8, lines: &[&str]) -> Tally {
        let mut tally = Tally::new(cpus, Marker::FirstProcess);
        for line in lines {
            if let Some(line) = parse(line.as_bytes()) {
                tally.line(line, |cr3| {
                    Some(PageTables {
                        tables: cr3,
                        ..PageTables::default()
                    })
                });
            }
        }
        tally
    }

    /// Returns the counts of a run with two passes of its region, and one end mark without a begin mark.
    fn passed_twice() -> Counted {
        tally(&[
            "memwright count 1",
            "CR3 update: CR3=1000",
            "    1: v=0e e=0006 i=0 cpl=3 IP=0033:00401000",
            "memwright mark 65534 0 0 1 0 0 100 200",
            "    2: v=0e e=0006 i=0 cpl=3 IP=0033:00401000",
            "memwright mark 2 0 0 1 0 0 110 220",
            "    3: v=0e e=0007 i=0 cpl=3 IP=0033:00401000",
            "CR3 update: CR3=1000",
            "memwright mark 3 0 0 2 0 0 111 225",
            "memwright mark 3 0 0 2 0 0 111 225",
            "memwright mark 2 0 0 2 0 0 120 230",
            "CR3 update: CR3=2000",
            "memwright mark 3 0 0 2 0 0 121 231",
            // The run ends at the last change of CR3, which is the switch to init: init waits for the program.
            "memwright cr3 0 0 4 0 0 200 400",
            "CR3 update: CR3=3000",
            "memwright mark 65535 0 0 5 0 0 210 450",
        ])
        .finish()
        .unwrap()
    }

    #[test]
    fn regions_are_counted_between_their_marks() {
        let Counted { run, regions, .. } = passed_twice();
        assert_eq!(
            (run.user_faults.write, run.user_faults.write_protect),
            (1, 1)
        );
        assert_eq!(
            (run.full_flushes, run.switches, run.invlpg),
            (Some(1), Some(1), Some(3))
        );
        let regions = regions.unwrap();
        assert_eq!(
            run.instructions,
            // The two instructions that faulted, and those of the init process before the exec, are not counted.
            Some(Instructions {
                user: 100 - 2 - Marker::FirstProcess.before_exec(),
                kernel: 200,
                interrupts: Some(0),
            })
        );
        assert_eq!(regions.len(), 1);
        let one = &regions[0];
        let marks = Marks {
            passes: 2,
            not_begun: 1,
            ..Marks::default()
        };
        assert_eq!((one.region, one.marks), (1, marks));
        assert_eq!(one.counts.user_faults.write_protect, 1);
        assert_eq!(
            (one.counts.full_flushes, one.counts.switches),
            (Some(1), Some(1))
        );
        assert_eq!(
            one.counts.instructions,
            // The instruction that faulted is not counted.
            Some(Instructions {
                user: 1,
                kernel: 6,
                interrupts: Some(0),
            })
        );
    }

    #[test]
    fn a_region_has_its_first_and_its_extreme_passes() {
        let regions = passed_twice().regions.unwrap();
        let one = &regions[0];
        // The second pass contains a switch, and one instruction in each half of the address space.
        let each = one.each.unwrap();
        let second = Counts {
            switches: Some(1),
            instructions: Some(Instructions {
                user: 1,
                kernel: 1,
                interrupts: Some(0),
            }),
            ..each.least
        };
        assert_eq!(each.first.plus(second), one.counts);
        assert_eq!(
            (
                each.least.user_faults.write_protect,
                each.most.user_faults.write_protect
            ),
            (0, 1)
        );
        // The page tables are from the first pass only.
        assert_eq!(one.at_beginning.map(|state| state.tables), Some(0x1000));
        assert_eq!(one.at_end.map(|state| state.tables), Some(0x1000));
    }

    #[test]
    fn marks_that_do_not_pair_are_counted() {
        // Each mark is executed a hundred user instructions after the previous one.
        let mark = |(place, code): (usize, u16)| {
            let user = 100 * (place + 1);
            format!("memwright mark {code} 0 0 0 0 0 {user} 0")
        };
        let none = Marks::default();
        #[rustfmt::skip]
        let rows: [(&str, &[u16], Marks); 6] = [
            ("passed twice",           &[2, 3, 2, 3],    Marks { passes: 2, ..none }),
            ("begun twice",            &[2, 2, 3],       Marks { passes: 1, begun_again: 1, ..none }),
            ("in itself",              &[2, 2, 3, 3],    Marks { passes: 1, begun_again: 1, not_begun: 1, ..none }),
            ("ended alone",            &[3],             Marks { not_begun: 1, ..none }),
            ("begun alone",            &[2],             Marks { not_ended: 1, ..none }),
            ("begun alone after all",  &[2, 3, 2],       Marks { passes: 1, not_ended: 1, ..none }),
        ];
        for (name, codes, expected) in rows {
            let codes = [&[65534][..], codes, &[65535]].concat();
            let lines: Vec<String> = codes.into_iter().enumerate().map(mark).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let first = ["memwright count 1"];
            let counted = tally(&[&first[..], &lines].concat()).finish().unwrap();
            let regions = counted.regions.unwrap();
            let found: Vec<_> = regions.iter().map(|one| (one.region, one.marks)).collect();
            assert_eq!(found, [(1, expected)], "{name}");
        }
    }

    #[test]
    fn each_cpu_has_a_cr3_of_its_own() {
        let Counted { run, .. } = tally_of(
            2,
            &[
                "memwright count 1",
                "memwright mark 65534 0 0 0 0 0",
                "memwright cr3 0 0 0 0 0",
                "CR3 update: CR3=1000",
                "memwright cr3 1 0 0 0 0",
                "CR3 update: CR3=2000",
                "memwright cr3 0 0 0 0 0",
                "CR3 update: CR3=1000",
                "memwright mark 65535 0 0 0 0 0",
            ],
        )
        .finish()
        .unwrap();
        assert_eq!((run.full_flushes, run.switches), (Some(1), Some(2)));
    }

    #[test]
    fn what_cr3_held_goes_before_what_the_cpu_loaded_last() {
        let Counted { run, .. } = tally(&[
            "memwright mark 65534 0 4096 0 0 0",
            "memwright cr3 0 4096 0 0 0",
            "CR3 update: CR3=1000",
            "memwright cr3 0 8192 0 0 0",
            "CR3 update: CR3=1000",
            "memwright cr3 0 8192 0 0 0",
            "CR3 update: CR3=1000",
            "memwright mark 65535 0 4096 0 0 0",
        ])
        .finish()
        .unwrap();
        assert_eq!((run.full_flushes, run.switches), (Some(1), Some(1)));
        assert_eq!(run.instructions, None);
    }

    #[test]
    fn without_the_plugin_the_log_tells_faults_and_no_marks() {
        let lines = [
            "    1: v=0e e=0006 i=0 cpl=3 IP=0033:00401000 CR2=0000000000001000",
            "CR3 update: CR3=1000",
            "    2: v=0e e=0000 i=0 cpl=0 IP=0033:00401000 CR2=00004d5700000000",
            "    3: v=0e e=0007 i=0 cpl=3 IP=0033:00401000 CR2=0000000000001000",
            "CR3 update: CR3=1000",
            "CR3 update: CR3=2000",
            "CR3 update: CR3=3000",
            "    4: v=0e e=0000 i=0 cpl=0 IP=0033:00401000 CR2=00004d5700001000",
            "    5: v=0e e=0007 i=0 cpl=3 IP=0033:00401000 CR2=0000000000001000",
        ];
        let counted = tally(&lines).finish().unwrap();
        let mut expected = Counts {
            full_flushes: Some(1),
            switches: Some(1),
            ..Counts::default()
        };
        expected.user_faults.write_protect = 1;
        assert_eq!((counted.run, counted.regions), (expected, None));
        (expected.full_flushes, expected.switches) = (None, None);
        assert_eq!(tally_of(2, &lines).finish().unwrap().run, expected);
    }

    #[test]
    fn a_run_without_end_counts_nothing() {
        assert!(
            tally(&["memwright mark 65534 0 0 0 0 0 0 0"])
                .finish()
                .is_none()
        );
    }
}
