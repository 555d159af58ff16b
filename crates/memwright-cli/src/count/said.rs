//! The results of a run on any kernel: the program's output, how it ended, and the counts.

use memwright_linux_abi::channel::Outcome;

use crate::count::counted::Counted;
use crate::count::fault_log::FaultLog;
use crate::count::raw::Raw;
use crate::model::counts::Counts;
use crate::model::region::{Marks, Region};
use crate::model::region_names::RegionNames;
use crate::model::statistic::Pass;
use crate::sheet::NOT_MEASURED;

/// The results of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    /// The program's standard output.
    pub output: Vec<u8>,
    /// The program's standard error.
    pub errors: Vec<u8>,
    /// What the guest's init process could not set up for the program, with one line for each failure.
    pub warnings: Vec<u8>,
    /// The absolute paths that the program looked up and that the guest lacked; empty if this was not requested.
    pub not_found: Vec<Vec<u8>>,
    /// The maps of the program's processes, one frame of `programs/lab/maps.c` each; empty if this was not requested.
    pub maps: Vec<Vec<u8>>,
    /// The kernel's build ID; `None` if the kernel does not report one.
    pub build_id: Option<String>,
    /// How the program ended.
    pub outcome: Outcome,
    /// Whether the guest, of a kernel that runs alone, ended in a triple fault.
    pub triple_fault: bool,
    /// The counts; `None` if nothing was counted.
    pub counted: Option<Counted>,
    /// The plugin's profile of the kernel; `None` if no profile was requested.
    pub profile: Option<Raw>,
}

impl Said {
    /// Sets the names that the program gives its regions.
    pub fn with_names(mut self, names: &RegionNames) -> Self {
        let regions = self.counted.as_mut().and_then(|one| one.regions.as_mut());
        if let Some(regions) = regions {
            names.give(regions);
        }
        self
    }

    /// Returns the page faults of the run; `None` if they were not collected.
    pub fn faults(&self) -> Option<&FaultLog> {
        self.counted.as_ref()?.faults.as_ref()
    }

    /// Returns the titles of the results and rows that differ between two runs.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (what, differs) in [
            ("output", self.output != other.output),
            ("standard error", self.errors != other.errors),
            (
                "outcome",
                (self.outcome, self.triple_fault) != (other.outcome, other.triple_fault),
            ),
            ("functions", !same_profile(&self.profile, &other.profile)),
            ("page faults by cause", self.faults() != other.faults()),
        ] {
            if differs {
                found.push(what.to_owned());
            }
        }
        let sent = |said: &Self| said.counted.as_ref().map(|one| one.sent.clone());
        if sent(self) != sent(other) {
            found.push("interprocessor interrupts".to_owned());
        }
        let regions = |said: &Self| -> Vec<Region> {
            let counted = said.counted.iter();
            counted
                .flat_map(|one| one.regions.clone().unwrap_or_default())
                .collect()
        };
        let (mine, others) = (self.columns(), other.columns());
        let names = |columns: &[(String, Marks, Counts)]| -> Vec<(String, Marks)> {
            columns
                .iter()
                .map(|(name, marks, _)| (name.clone(), *marks))
                .collect()
        };
        if names(&mine) != names(&others) {
            found.push("marks".to_owned());
            return found;
        }
        let states = |said: &Self| -> Vec<_> {
            let regions = regions(said);
            let states = regions.iter().map(|one| (one.at_beginning, one.at_end));
            states.collect()
        };
        if states(self) != states(other) {
            found.push("page tables at marks".to_owned());
        }
        for ((name, _, counts), (.., other)) in mine.iter().zip(&others) {
            for ((group, title, value), (.., again)) in counts.rows().into_iter().zip(other.rows())
            {
                if value != again {
                    let text = |value: Option<u64>| {
                        value.map_or_else(|| NOT_MEASURED.to_owned(), |value| value.to_string())
                    };
                    found.push(format!(
                        "{name}{group}: {title}: {} and {}",
                        text(value),
                        text(again)
                    ));
                }
            }
        }
        found
    }

    /// Returns the counts of the run, of each CPU, of each region, and of each statistic of a region's passes. Each
    /// entry has the prefix of its rows' titles, its marks, and its counts.
    fn columns(&self) -> Vec<(String, Marks, Counts)> {
        let once = Marks {
            passes: 1,
            ..Marks::default()
        };
        let Some(counted) = &self.counted else {
            return Vec::new();
        };
        let of_cpu = |(cpu, counts): (usize, &Counts)| (format!("CPU {cpu}: "), once, *counts);
        let of_region = |one: &Region| {
            let name = format!("{}: ", one.title());
            let each = one.each.iter().flat_map(|each| {
                Pass::ALL.map(|pass| (format!("{name}{}: ", pass.name()), each.of(pass)))
            });
            let all = [(name.clone(), one.counts)].into_iter().chain(each);
            all.map(|(name, counts)| (name, one.marks, counts))
                .collect::<Vec<_>>()
        };
        [(String::new(), once, counted.run)]
            .into_iter()
            .chain(counted.by_cpu.iter().enumerate().map(of_cpu))
            .chain(counted.regions.iter().flatten().flat_map(of_region))
            .collect()
    }
}

fn same_profile(one: &Option<Raw>, other: &Option<Raw>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.equals(other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::passes::Each;

    fn said() -> Said {
        let region = Region {
            region: 1,
            marks: Marks {
                passes: 2,
                ..Marks::default()
            },
            ..Region::default()
        };
        Said {
            output: b"x".to_vec(),
            errors: Vec::new(),
            warnings: Vec::new(),
            not_found: Vec::new(),
            maps: Vec::new(),
            build_id: None,
            outcome: Outcome::Exited(0),
            triple_fault: false,
            counted: Some(Counted {
                run: Counts::default(),
                by_cpu: Vec::new(),
                sent: Vec::new(),
                regions: Some(vec![region]),
                unhandled: std::collections::BTreeSet::new(),
                faults: None,
            }),
            profile: None,
        }
    }

    #[test]
    fn what_differs_is_named() {
        assert!(said().differences(&said()).is_empty());
        let mut other = said();
        other.output = b"y".to_vec();
        let counted = other.counted.as_mut().unwrap();
        counted.run.invlpg = Some(3);
        counted.regions.as_mut().unwrap()[0]
            .counts
            .user_faults
            .write = 1;
        assert_eq!(
            said().differences(&other),
            [
                "output",
                "Flushes: INVLPG: not measured and 3",
                "region 1: Page faults: user, not present, write: 0 and 1"
            ]
        );
        // The sums are equal, but the maximum of the passes differs.
        let with_most = |most| {
            let mut said = said();
            let counted = said.counted.as_mut().unwrap();
            let mut each = Each::default();
            each.most.other_interrupts = most;
            counted.regions.as_mut().unwrap()[0].each = Some(each);
            said
        };
        assert_eq!(
            with_most(1).differences(&with_most(2)),
            ["region 1: max: Instructions and interrupts: other interrupts: 1 and 2"]
        );
        let mut other = said();
        let counted = other.counted.as_mut().unwrap();
        counted.regions.as_mut().unwrap()[0].marks.passes = 3;
        assert_eq!(said().differences(&other), ["marks"]);
    }
}
