//! The experiments or workloads that a command line of `memwright bench` names.

use std::fmt;

use crate::cmd::bench::experiments::{EXPERIMENTS, Experiment};
use crate::cmd::bench::workloads::{WORKLOADS, Workload};
use crate::sheet::select;

/// The experiments and workloads that a command line names.
#[derive(Debug)]
pub struct Chosen {
    /// The experiments, in the order of [`EXPERIMENTS`].
    pub experiments: Vec<&'static Experiment>,
    /// The workloads, in the order of the command line.
    pub workloads: Vec<&'static Workload>,
}

/// The error for a name that is neither an experiment's nor a workload's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    name: String,
    /// Similar names, the closest first.
    close: Vec<String>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, close } = self;
        write!(formatter, "no such experiment or workload: {name}")?;
        match close.as_slice() {
            [] => write!(formatter, "; memwright bench --list prints their names"),
            close => write!(formatter, "; close names: {}", close.join(", ")),
        }
    }
}

impl std::error::Error for UnknownName {}

impl Chosen {
    /// Returns the experiments and workloads with these names.
    ///
    /// # Errors
    /// The first unknown name.
    pub fn of(names: &[String]) -> Result<Self, UnknownName> {
        let mut workloads: Vec<&Workload> = Vec::new();
        for name in names {
            let found = WORKLOADS.iter().find(|one| one.name == name);
            if found.is_none() && !EXPERIMENTS.iter().any(|one| one.name == name) {
                let experiments = EXPERIMENTS.iter().map(|one| one.name);
                let all = experiments.chain(WORKLOADS.iter().map(|one| one.name));
                return Err(UnknownName {
                    name: name.clone(),
                    close: select::close(name, &all.collect::<Vec<_>>()),
                });
            }
            let is_new = |one: &&Workload| workloads.iter().all(|other| other.name != one.name);
            workloads.extend(found.filter(is_new));
        }
        let is_named = |one: &&Experiment| names.iter().any(|name| name == one.name);
        Ok(Self {
            experiments: EXPERIMENTS.iter().filter(is_named).collect(),
            workloads,
        })
    }

    /// Returns all experiments and workloads.
    pub fn all() -> Self {
        Self {
            experiments: EXPERIMENTS.iter().collect(),
            workloads: WORKLOADS.iter().collect(),
        }
    }

    /// Returns one line for each experiment, and a section with one line for each workload.
    pub fn list(&self) -> String {
        let mut text = String::new();
        let experiments = self.experiments.iter().map(|one| one.name);
        let names = experiments.chain(self.workloads.iter().map(|one| one.name));
        let width = names.map(str::len).max().unwrap_or_default();
        for one in &self.experiments {
            text.push_str(&format!("{:width$}  {}\n", one.name, one.question));
        }
        if self.workloads.is_empty() {
            return text;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str("Workloads, with the Debian packages that they need:\n");
        for one in &self.workloads {
            let packages = [one.packages(), one.python_packages()].concat().join(" ");
            text.push_str(&format!(
                "{:width$}  {} ({packages})\n",
                one.name,
                one.title()
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select() {
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            Chosen::of(&wanted).map(|found| {
                let experiments = found.experiments.iter().map(|one| one.name);
                let workloads = found.workloads.iter().map(|one| one.name);
                (
                    experiments.collect::<Vec<_>>(),
                    workloads.collect::<Vec<_>>(),
                )
            })
        };
        assert_eq!(names(&[]), Ok((vec![], vec![])));
        assert_eq!(
            names(&["fork-reuse", "basics"]),
            Ok((vec!["basics", "fork-reuse"], vec![]))
        );
        assert_eq!(
            names(&["sqlite-wal", "lua", "sqlite-wal", "swap"]),
            Ok((vec!["swap"], vec!["sqlite-wal", "lua"]))
        );
        for (name, close) in [
            ("sqlite", &["sqlite-wal"][..]),
            ("fork-reus", &["fork-reuse"]),
            ("qqq", &[]),
        ] {
            let unknown = UnknownName {
                name: name.to_owned(),
                close: close.iter().map(|one| (*one).to_owned()).collect(),
            };
            assert_eq!(names(&["basics", name]), Err(unknown));
        }
    }

    #[test]
    fn workloads_are_a_section_of_the_list() {
        let workload = Chosen::of(&["sqlite-wal".to_owned()]).unwrap().list();
        assert_eq!(
            workload,
            "Workloads, with the Debian packages that they need:\n\
             sqlite-wal  20,000 rows inserted in WAL mode, an index, and a query (sqlite3)\n"
        );
        let experiment = Chosen::of(&["basics".to_owned()]).unwrap().list();
        assert_eq!(experiment.lines().count(), 1);
        let all = Chosen::all().list();
        assert_eq!(all.lines().count(), EXPERIMENTS.len() + WORKLOADS.len() + 2);
    }
}
