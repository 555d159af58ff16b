//! Pairs the begin and end marks of regions.

use memwright_linux_abi::channel::THE_RUN;

use crate::model::counts::Counts;

/// A pass of a region that has begun.
#[derive(Debug)]
pub struct Open {
    /// The number of the region.
    pub region: u16,
    /// The CPU that executed the begin mark.
    pub cpu: usize,
    /// The thread that executed the begin mark; 0 if the guest has one CPU.
    pub thread: u64,
    /// The counts of `cpu` at the begin mark; for [`THE_RUN`], the counts of every CPU.
    pub before: Vec<Counts>,
}

/// What an end mark ends.
#[derive(Debug)]
pub enum Ended {
    /// The pass that began with these counts.
    Pass(Vec<Counts>),
    /// No pass, because no begin mark of the region is open.
    NoPass {
        /// Whether the end mark discarded a pass that the thread had begun on another CPU.
        moved: bool,
    },
}

/// The passes that have begun. A region belongs to the CPU that began it; [`THE_RUN`] belongs to all CPUs.
#[derive(Debug, Default)]
pub struct OpenPasses(Vec<Open>);

impl OpenPasses {
    /// Begins a pass. Returns whether the region was already open on this CPU.
    pub fn begin(&mut self, pass: Open) -> bool {
        let again = self.find(|one| is_here(one, pass.region, pass.cpu));
        self.0.push(pass);
        again.is_some()
    }

    /// Ends the pass of `region` that `thread` began on `cpu`. The pass of the run is ended by an end mark of any
    /// thread, on any CPU.
    pub fn end(&mut self, region: u16, cpu: usize, thread: u64) -> Ended {
        let is_run = region == THE_RUN;
        let ended = |one: &Open| is_here(one, region, cpu) && (is_run || one.thread == thread);
        if let Some(open) = self.find(ended) {
            return Ended::Pass(open.before);
        }
        let moved = self.find(|one| one.region == region && thread != 0 && one.thread == thread);
        Ended::NoPass {
            moved: moved.is_some(),
        }
    }

    /// Returns the counts of every CPU at the beginning of the run. Returns `None` before the run has begun and after
    /// it has ended.
    pub fn run(&self) -> Option<&[Counts]> {
        let run = self.0.iter().find(|one| one.region == THE_RUN);
        run.map(|run| &run.before[..])
    }

    /// Returns the regions whose passes did not end.
    pub fn regions(&self) -> Vec<u16> {
        let regions = self.0.iter().map(|one| one.region);
        regions.filter(|region| *region != THE_RUN).collect()
    }

    fn find(&mut self, wanted: impl Fn(&Open) -> bool) -> Option<Open> {
        let place = self.0.iter().position(wanted)?;
        Some(self.0.swap_remove(place))
    }
}

fn is_here(one: &Open, region: u16, cpu: usize) -> bool {
    one.region == region && (region == THE_RUN || one.cpu == cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mark: whether it is a begin mark, its region, its CPU and its thread.
    type Mark = (bool, u16, usize, u64);

    #[test]
    fn a_region_belongs_to_its_cpu_and_thread() {
        const RUN: u16 = THE_RUN;
        // Each letter is the expected effect of a mark: b, a pass begins; a, it begins again; e, it ends; n, nothing
        // ends; m (moved), nothing ends, and a pass that the thread began on another CPU is discarded.
        #[rustfmt::skip]
        let rows: [(&str, &[Mark], &str); 8] = [
            ("on its CPU",        &[(true, 1, 1, 9), (false, 1, 1, 9)],                                      "be"),
            ("on both",           &[(true, 1, 0, 8), (true, 1, 1, 9), (false, 1, 0, 8), (false, 1, 1, 9)],   "bbee"),
            ("on another CPU",    &[(true, 1, 0, 8), (false, 1, 1, 8), (false, 1, 0, 8)],                    "bmn"),
            ("of another thread", &[(true, 1, 0, 8), (false, 1, 0, 9), (false, 1, 0, 8)],                    "bne"),
            ("without threads",   &[(true, 1, 0, 0), (false, 1, 1, 0), (false, 1, 0, 0)],                    "bne"),
            ("again",             &[(true, 1, 0, 8), (true, 1, 0, 8), (false, 1, 0, 8), (false, 1, 0, 8)],   "baen"),
            ("two regions",       &[(true, 1, 0, 8), (true, 2, 0, 8), (false, 1, 0, 8), (false, 2, 0, 8)],   "bbee"),
            ("the run",           &[(true, RUN, 0, 8), (false, RUN, 1, 9)],                                  "be"),
        ];
        for (name, marks, expected) in rows {
            let mut passes = OpenPasses::default();
            let found: String = marks
                .iter()
                .map(|(begins, region, cpu, thread)| {
                    let (region, cpu, thread) = (*region, *cpu, *thread);
                    if *begins {
                        let pass = Open {
                            region,
                            cpu,
                            thread,
                            before: Vec::new(),
                        };
                        return if passes.begin(pass) { 'a' } else { 'b' };
                    }
                    match passes.end(region, cpu, thread) {
                        Ended::Pass(_) => 'e',
                        Ended::NoPass { moved: true } => 'm',
                        Ended::NoPass { moved: false } => 'n',
                    }
                })
                .collect();
            assert_eq!(found, expected, "{name}");
            assert!(passes.regions().is_empty(), "{name}");
        }
    }
}
