//! Counts the events of QEMU's log, in the order in which they happened.

use std::collections::{BTreeMap, BTreeSet};

use memwright_linux_abi::channel::THE_RUN;

use crate::count::apics::Apics;
use crate::count::counted::Counted;
use crate::count::cpu::Cpu;
use crate::count::fault_log::FaultLog;
use crate::count::interrupts::undoes;
use crate::count::line::{Exception, Line};
use crate::count::open_passes::{Ended, Open, OpenPasses};
use crate::count::placement::Placement;
use crate::count::system::Marker;
use crate::model::code::Code;
use crate::model::counts::Counts;
use crate::model::page_tables::PageTables;
use crate::model::passes::Passes;
use crate::model::region::Region;
use crate::model::sent::Sent;

/// Unmapped addresses that the guest's init process accesses just before [`THE_RUN`] begins and just after it has
/// ended. The log contains these page faults even without the plugin.
const RUN_BEGINS: u64 = 0x4d57_0000_0000;
const RUN_ENDS: u64 = 0x4d57_0000_1000;

/// Counts the events of a log.
#[derive(Debug)]
pub struct Tally {
    // One entry per CPU. With several CPUs, one more entry has the events whose CPU is not known.
    each: Vec<Cpu>,
    // The CPU to which the next lines of the log refer.
    told: usize,
    placement: Placement,
    // An exception whose CPU is not known yet.
    pending: Option<Exception>,
    next: (usize, Option<u64>),
    cpus: u8,
    marker: Marker,
    idt: Option<u64>,
    // CR3 and the address of the interrupt descriptor table at the start of the run or, for a kernel that runs alone,
    // at the last mark of a region. `None` before that, and after the caller has taken the values.
    gates: Option<(u64, u64)>,
    // The counts when CR3 last changed, and the number of kernel instructions that had begun at that change.
    at_switch: Option<(Counts, Option<u64>)>,
    // Whether the kernel runs alone. Its handlers are then not known from the start of the run, but from the first mark
    // at which the address of the interrupt descriptor table is known.
    is_alone: bool,
    triple_fault: bool,
    // The regions that began before the handlers were known.
    unhandled: BTreeSet<u16>,
    // The number of kernel instructions that had begun at the end of the run. `None` before the end, and after the
    // caller has taken the number.
    end: Option<u64>,
    counting: bool,
    open: OpenPasses,
    by_cpu: Vec<Counts>,
    apics: Apics,
    sent: Vec<Sent>,
    regions: Vec<Region>,
    passes: BTreeMap<u16, Passes>,
    states: BTreeMap<u16, Option<PageTables>>,
    faults: Option<FaultLog>,
}

impl Tally {
    /// Returns an empty tally for a guest with `cpus` CPUs. With several CPUs, loads of CR3 are counted only with the
    /// plugin, because QEMU's log alone does not state which CPU loads CR3.
    pub fn new(cpus: u8, marker: Marker) -> Self {
        let count = if cpus == 1 { 1 } else { usize::from(cpus) + 1 };
        Self {
            each: (0..count).map(|_| Cpu::new(cpus == 1)).collect(),
            told: 0,
            placement: Placement::default(),
            pending: None,
            next: (0, None),
            cpus,
            marker,
            idt: None,
            gates: None,
            at_switch: None,
            is_alone: false,
            triple_fault: false,
            unhandled: BTreeSet::new(),
            end: None,
            counting: false,
            open: OpenPasses::default(),
            by_cpu: Vec::new(),
            apics: Apics::default(),
            sent: Vec::new(),
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

    /// Returns an empty tally for a guest whose kernel runs alone. The meaning of its interrupt vectors is not known.
    pub fn alone(cpus: u8, code: &Code) -> Self {
        let mut tally = Self::new(cpus, Marker::Kernel);
        for one in &mut tally.each {
            one.run_alone(code);
        }
        tally.is_alone = true;
        tally
    }

    /// Returns whether the guest ended in a triple fault.
    pub fn triple_fault(&self) -> bool {
        self.triple_fault
    }

    /// Processes a line. Returns whether the line is a mark. After a mark, the guest is stopped until the plugin reads
    /// an answer. `look` summarizes the page tables at a value of CR3.
    pub fn line(&mut self, line: Line, look: impl Fn(u64) -> Option<PageTables>) -> bool {
        if let Some(faults) = &mut self.faults {
            faults.line(line);
        }
        match line {
            Line::Exception(exception) => {
                self.place(None);
                self.pending = Some(exception);
                // With one CPU, the exception's CPU is already known.
                if self.cpus == 1 {
                    self.place(None);
                }
            }
            Line::Idt(base) => self.idt = Some(base),
            Line::TripleFault => self.triple_fault = true,
            Line::HeldCr3(_) => {}
            Line::Gs(base) => self.placement.gs(base),
            Line::TaskState(base) => {
                let raised =
                    |one: &Exception| undoes(one.vector, one.error, one.by_instruction, one.at);
                let running = self.pending.filter(raised).map(|_| self.told);
                let cpu = self.placement.cpu(base, running);
                self.place(cpu);
            }
            Line::Cr3(value) => {
                self.place(None);
                self.load_cr3(value);
            }
            line => {
                self.place(None);
                return self.plugin_line(line, look);
            }
        }
        false
    }

    /// Processes a line of the plugin. Returns whether the line is a mark.
    fn plugin_line(&mut self, line: Line, look: impl Fn(u64) -> Option<PageTables>) -> bool {
        match line {
            Line::Enter(counted) => self.each[self.told].interrupts.enter(counted),
            Line::Return(counted) => self.each[self.told].interrupts.leave(counted),
            Line::Switch(counted) => self.each[self.told].interrupts.switch(counted),
            Line::Counting => {
                self.counting = true;
                for one in &mut self.each {
                    one.count_loads(true);
                }
            }
            Line::Cpu(cpu) => self.told = self.known(cpu),
            Line::Counts {
                cpu,
                gs,
                flushes,
                instructions,
            } => {
                let cpu = self.known(cpu);
                if self.placement.know(cpu, gs) {
                    self.start_cpu(cpu);
                }
                let one = &mut self.each[cpu];
                one.take_flushes(flushes);
                one.begun = Some(instructions);
                one.now.instructions = Some(one.interrupts.count_between(instructions));
            }
            Line::Apic { register, value } => {
                let cpus = usize::from(self.cpus);
                self.apics.write(self.told, register, value, cpus);
            }
            Line::Cr3Next {
                cpu,
                holds,
                flushes,
                instructions,
            } => {
                let cpu = self.known(cpu);
                self.next = (cpu, holds);
                self.each[cpu].take(flushes, instructions);
            }
            Line::Mark {
                code,
                cpu,
                cr3,
                thread,
                flushes,
                instructions,
            } => {
                let cpu = self.known(cpu);
                let cr3 = cr3.or(Some(self.each[cpu].cr3).filter(|value| *value != 0));
                // Reading large page tables takes long, so they are read only at the first mark with this code.
                if code >> 1 != THE_RUN && !self.states.contains_key(&code) {
                    let state = cr3.and_then(look);
                    self.states.insert(code, state);
                }
                if self.is_alone && code >> 1 != THE_RUN {
                    self.find_handlers(code, cr3);
                } else if code == THE_RUN << 1 && instructions.is_some() && !self.is_alone {
                    self.gates = cr3.zip(self.idt);
                    for one in &mut self.each {
                        one.interrupts.handlers_are_known();
                        one.now.instructions = one.begun.map(|begun| one.interrupts.count(begun));
                    }
                }
                self.each[cpu].take(flushes, instructions);
                self.mark(code >> 1, code & 1 == 0, cpu, thread);
                return true;
            }
            Line::Call { .. }
            | Line::Exception(_)
            | Line::Idt(_)
            | Line::HeldCr3(_)
            | Line::Gs(_)
            | Line::TaskState(_)
            | Line::Cr3(_)
            | Line::TripleFault => {}
        }
        false
    }

    /// Returns the index in `each` for a CPU number; for a number that no CPU has, the index of the last entry.
    fn known(&self, cpu: usize) -> usize {
        cpu.min(self.each.len() - 1)
    }

    /// Counts the pending exception on the CPU `cpu`. If `cpu` is `None`, counts it on the CPU that executed last.
    fn place(&mut self, cpu: Option<usize>) {
        let Some(one) = self.pending.take() else {
            return;
        };
        let cpu = cpu.unwrap_or(self.told);
        let place = &mut self.each[cpu];
        place
            .interrupts
            .exception(one.vector, one.error, one.by_instruction, one.at);
        match (self.counting, one.address) {
            (false, Some(RUN_BEGINS)) => self.mark(THE_RUN, true, cpu, 0),
            (false, Some(RUN_ENDS)) => self.mark(THE_RUN, false, cpu, 0),
            (_, _) => place
                .now
                .exception(one.vector, one.error, one.by_instruction),
        }
    }

    /// Finds the handlers of a kernel that runs alone, at a mark of a region, because the kernel can have changed its
    /// handlers since the previous mark.
    fn find_handlers(&mut self, code: u16, cr3: Option<u64>) {
        self.gates = cr3.zip(self.idt);
        if self.gates.is_none() && code & 1 == 0 {
            self.unhandled.insert(code >> 1);
        }
    }

    /// Moves the events without a known CPU to `cpu`, which starts during the run, because its first instructions
    /// caused these events.
    fn start_cpu(&mut self, cpu: usize) {
        let rest = self.each.len() - 1;
        let Some(before) = self.open.run().and_then(|run| run.get(rest).copied()) else {
            return;
        };
        if cpu != rest {
            let events = self.each[rest].now.since(before);
            self.each[cpu].now = self.each[cpu].now.plus(events);
            self.each[rest].now = before;
        }
    }

    /// Returns CR3 and the address of the interrupt descriptor table at the start of the run or, for a kernel that runs
    /// alone, at the last mark. Later calls return `None`.
    pub fn take_gates(&mut self) -> Option<(u64, u64)> {
        self.gates.take()
    }

    /// Returns the number of kernel instructions that had begun at the end of the run. Later calls return `None`.
    pub fn take_end(&mut self) -> Option<u64> {
        self.end.take()
    }

    fn load_cr3(&mut self, value: u64) {
        let (cpu, holds) = self.next;
        let one = &mut self.each[cpu];
        let count = if holds.unwrap_or(one.cr3) == value {
            &mut one.now.full_flushes
        } else {
            self.at_switch = Some((one.now, one.begun.map(|begun| begun.kernel)));
            &mut one.now.switches
        };
        if let Some(count) = count {
            *count += 1;
        }
        one.cr3 = value;
    }

    /// Processes a mark that a thread executed on a CPU. A region belongs to the CPU that began it. A begin mark in an
    /// open region restarts the pass. An end mark ends no pass if another thread, or another CPU, executed the begin
    /// mark, unless it is that of [`THE_RUN`].
    fn mark(&mut self, region: u16, begins: bool, cpu: usize, thread: u64) {
        let now = self.counts_at(region, begins, cpu);
        if begins {
            let pass = Open {
                region,
                cpu,
                thread,
                before: now,
            };
            if self.open.begin(pass) {
                self.region(region).marks.begun_again += 1;
            }
            return;
        }
        match self.open.end(region, cpu, thread) {
            Ended::Pass(before) => self.end_pass(region, &before, &now),
            Ended::NoPass { moved } => {
                let marks = &mut self.region(region).marks;
                marks.not_begun += 1;
                marks.not_ended += u64::from(moved);
            }
        }
    }

    /// Returns the counts at a mark: those of the CPU that executed the mark or, at a mark of [`THE_RUN`], those of
    /// every CPU.
    fn counts_at(&mut self, region: u16, begins: bool, cpu: usize) -> Vec<Counts> {
        if region != THE_RUN {
            return vec![self.each[cpu].now];
        }
        if begins {
            if let Some(faults) = &mut self.faults {
                faults.begin();
            }
            self.at_switch = None;
            self.apics.restart();
            if let Some(counted) = &mut self.each[cpu].now.instructions {
                counted.user += self.marker.before_exec();
            }
        }
        let now = self.each.iter().map(|one| one.now).collect();
        if begins {
            return now;
        }
        let is_earlier = self.cpus == 1 && self.marker == Marker::FirstProcess;
        let switch = self.at_switch.filter(|_| is_earlier);
        if let Some(faults) = &mut self.faults {
            faults.end(switch.is_some());
        }
        if self.cpus > 1 {
            return now;
        }
        let begun = self.each[cpu].begun.map(|begun| begun.kernel);
        let (now, begun) = switch.unwrap_or((self.each[cpu].now, begun));
        self.end = begun;
        vec![now]
    }

    fn end_pass(&mut self, region: u16, before: &[Counts], now: &[Counts]) {
        let passed: Vec<Counts> = now
            .iter()
            .zip(before)
            .map(|(now, before)| now.since(*before))
            .collect();
        let sum = passed.iter().copied().reduce(Counts::plus);
        let mut sum = sum.unwrap_or_default();
        if region == THE_RUN && self.cpus > 1 {
            sum = self.place_run(sum, passed);
        }
        self.passes.entry(region).or_default().add(sum);
        let known = self.region(region);
        known.counts = match known.marks.passes {
            0 => sum,
            _ => known.counts.plus(sum),
        };
        known.marks.passes += 1;
    }

    /// Stores the interprocessor interrupts of the run. Also stores its counts by CPU, if they add up to the counts of
    /// the run. The last entry of `passed` has the events without a known CPU. If these events include instructions,
    /// the row of instructions is not measured. Returns the sum over all CPUs.
    fn place_run(&mut self, mut sum: Counts, mut passed: Vec<Counts>) -> Counts {
        self.sent = self.apics.sent();
        let rest = passed.pop().and_then(|rest| rest.instructions);
        if rest.is_some_and(|rest| rest.user + rest.kernel > 0) {
            sum.instructions = None;
            passed.clear();
        }
        let is_known = passed.iter().all(|one| one.instructions.is_some());
        let is_all = passed.iter().copied().reduce(Counts::plus) == Some(sum);
        self.by_cpu = if is_known && is_all {
            passed
        } else {
            Vec::new()
        };
        sum
    }

    /// Returns the entry of a region. Adds the entry if it does not exist.
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
        for region in self.open.regions() {
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
            by_cpu: self.by_cpu,
            sent: self.sent,
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
    use crate::model::counts::Instructions;
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
            // The run ends at the last change of CR3. This is the switch to init, which waits for the program.
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

    /// The bases of GS of two CPUs, as the plugin reports them in decimal and QEMU in hexadecimal.
    const BASES: [&str; 2] = ["18446612682594320384", "18446612682595368960"];
    const IN_KERNEL: [&str; 2] = ["GS =0000 ffff88801f400000", "GS =0000 ffff88801f500000"];
    const IN_USER: &str = "GS =0000 0000000000000000";
    const SEGMENTS: [&str; 2] = ["TR =0040 fffffe0000003000", "TR =0040 fffffe0000083000"];

    /// Returns the lines of a run on two CPUs. `rest` is the number of instructions whose CPU is not known.
    fn on_two_cpus(lines: &[&str], rest: u64) -> Vec<String> {
        let counts = |cpu: usize, user: u64, kernel: u64| {
            let base = BASES.get(cpu).unwrap_or(&"0");
            format!("memwright counts {cpu} {base} {user} 0 0 {user} {kernel}")
        };
        let begin = [counts(0, 10, 100), counts(1, 20, 200), counts(2, 7, 7)];
        let end = [
            counts(0, 15, 160),
            counts(1, 40, 1000),
            counts(2, 7, 7 + rest),
        ];
        let mut all = vec!["memwright count 3".to_owned()];
        all.extend(begin);
        all.push("memwright mark 65534 0 4096 10 0 0 10 100 0".to_owned());
        all.push("memwright cpu 0".to_owned());
        all.extend(lines.iter().map(|line| (*line).to_owned()));
        all.extend(end);
        all.push("memwright mark 65535 1 4096 40 0 0 40 1000 0".to_owned());
        all
    }

    fn counted_on_two(lines: &[&str], rest: u64) -> Counted {
        let lines = on_two_cpus(lines, rest);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        tally_of(2, &lines).finish().unwrap()
    }

    #[test]
    fn each_cpu_has_counts_of_its_own() {
        let fault = "    1: v=0e e=0006 i=0 cpl=3 IP=0033:00401000";
        let counted = counted_on_two(
            &[
                // CPU 1 has received an exception in the kernel, so its task state segment is known.
                "    1: v=ec e=0000 i=0 cpl=0 IP=0010:ffffffff81000000",
                IN_KERNEL[1],
                SEGMENTS[1],
                fault,
                IN_USER,
                SEGMENTS[1],
                // The task state segment of CPU 0 is not known. The plugin's last line was about CPU 0.
                fault,
                IN_USER,
                SEGMENTS[0],
                "memwright cr3 1 4096 20 0 0 20 200",
                "CR3 update: CR3=1000",
            ],
            0,
        );
        let [one, other] = counted.by_cpu[..] else {
            panic!("{counted:?}")
        };
        assert_eq!(
            (one.user_faults.write, other.user_faults.write),
            (1, 1),
            "{counted:?}"
        );
        assert_eq!((one.other_interrupts, other.other_interrupts), (0, 1));
        assert_eq!((one.full_flushes, other.full_flushes), (Some(0), Some(1)));
        assert_eq!((one.invlpg, other.invlpg), (Some(5), Some(20)));
        let [of_one, of_other] = [one, other].map(|one| one.instructions.unwrap());
        // The instruction that faulted did not complete, and the first process executed two.
        assert_eq!((of_one.user, of_one.kernel), (5 - 1 - 2, 60));
        assert_eq!((of_other.user, of_other.kernel), (20 - 1, 800));
        assert_eq!(counted.run, one.plus(other));
    }

    #[test]
    fn a_cpu_that_starts_late_has_its_first_events() {
        let other = 0xffff_8880_1f60_0000_u64;
        let started = format!("memwright counts 1 {other} 30 0 0 30 300");
        let counted = counted_on_two(
            &[
                "memwright cpu 2",
                "memwright cr3 2 4096 7 0 0 7 7",
                "CR3 update: CR3=2000",
                &started,
                "memwright cpu 1",
            ],
            0,
        );
        let [one, other] = counted.by_cpu[..] else {
            panic!("{counted:?}")
        };
        assert_eq!((one.switches, other.switches), (Some(0), Some(1)));
        assert_eq!(counted.run, one.plus(other));
    }

    #[test]
    fn instructions_of_no_known_cpu_are_not_measured() {
        let counted = counted_on_two(&[], 1);
        assert_eq!((counted.run.instructions, counted.by_cpu), (None, vec![]));
        assert_eq!(counted.run.invlpg, Some(25));
    }

    #[test]
    fn interprocessor_interrupts_have_a_sender_and_receivers() {
        let counted = counted_on_two(
            &[
                "apic_register_write register 0x30 = 0x1000000fb",
                "apic_register_write register 0x30 = 0x1000000fb",
                "memwright cpu 1",
                "apic_register_write register 0x0b = 0x0",
                "apic_register_write register 0x30 = 0xfd",
            ],
            0,
        );
        let sent = counted.sent.into_iter();
        let sent: Vec<_> = sent
            .map(|one| (one.from, one.to, one.vector, one.count))
            .collect();
        assert_eq!(sent, [(0, 1, 0xfb, 2), (1, 0, 0xfd, 1)]);
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
