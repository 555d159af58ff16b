//! What a bench runs, divided into cells. A cell is one run on one kernel: a run of an experiment, of a workload, or of
//! a program with one combination of its parameters' values. Cells are independent of each other, so that several
//! workers can share them.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::model::hash::{hash_part, hexadecimal};
use crate::model::hashed_file::HashedFile;
use crate::model::{bench, parameter, sweep};

/// The version of the document's format. It increases when a name in the JSON is removed or changes its meaning, but
/// not when one is added.
pub const SCHEMA: u32 = 1;
/// The value of `kind` in the document.
pub const KIND: &str = "cell-plan";

/// What a bench runs. The document contains everything on which the results depend, and how the results are printed.
/// Workers of one bench therefore write equal documents, unless they have different tools, kernels or programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellPlan {
    /// The version of the document's format: [`SCHEMA`].
    pub schema: u32,
    /// The kind of the document: [`KIND`].
    pub kind: String,
    /// The command that runs the cells.
    pub tool: Tool,
    /// Whether every run is made twice.
    pub verify: bool,
    /// Whether tables also have the rows that did not change (`--all`).
    pub all: bool,
    /// The patterns of `--rows`, which select the rows of the table; empty if no pattern was given.
    pub rows: Vec<String>,
    /// The experiments, or the program whose events QEMU counts.
    pub work: Work,
}

/// A build of this command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// The version of the command.
    pub version: String,
    /// SHA-256 of the command's file.
    pub sha256: String,
    /// SHA-256 of the image of Memwright's kernel that the command uses.
    pub kernel_sha256: String,
}

/// What a bench runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Experiments: programs that measure and print their own results.
    Experiments(Experiments),
    /// A program or workloads whose events QEMU counts.
    Program(Program),
}

/// The experiments of a bench, which measure and print their own results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Experiments {
    /// For each column, its policies in the syntax of `--policy`; empty for none.
    pub policies: Vec<String>,
    /// The document of the bench, without results.
    pub document: bench::Document,
}

/// A program or workloads whose events QEMU counts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Program {
    /// The columns of the tables, one for each kernel and set of options.
    pub columns: Vec<Column>,
    /// The version and SHA-256 of the QEMU for each column.
    pub qemu: Vec<String>,
    /// SHA-256 of the program's standard input.
    pub stdin_sha256: String,
    /// The folder and the files that each program needs to start. The key is the program's name in the command.
    pub programs: BTreeMap<String, Needs>,
    /// The files of `--file` at each point, each with its hash. For a workload, they are its script and its data. Empty
    /// if there are no files.
    pub files: Vec<Vec<String>>,
    /// The document of the sweep, without points.
    pub document: sweep::Document,
}

/// The folder and the files that a program needs to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// The folder in which the program starts.
    pub folder: String,
    /// The program, its interpreters and its libraries.
    pub files: Vec<HashedFile>,
}

/// A column: a kernel, and the guest options whose values differ from those of the command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Column {
    /// The name of the column in tables.
    pub name: String,
    /// SHA-256 of the image.
    pub sha256: String,
    /// The version text of the image.
    pub version: String,
    /// SHA-256 of its configuration, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
    /// The options whose values differ from those of the command, as `KEY=VALUE`.
    pub changes: Vec<String>,
    /// The program that the column runs instead of the command's; `None` if it runs the command's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// One run on one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// For experiments, the index of the run among all runs of all experiments. For a sweep, the index of the point.
    pub run: usize,
    /// The index of the kernel.
    pub column: usize,
    /// The text that distinguishes the cell from the other cells of the bench.
    pub title: String,
    /// SHA-256 of everything on which the result of the cell depends. The names of the kernel and of the run are not
    /// included.
    pub address: String,
}

/// The maximum number of cells of a bench.
pub const MOST_CELLS: usize = 2_000_000;

impl CellPlan {
    /// Parses the document.
    ///
    /// # Errors
    /// If the bytes are not such a document, or if it has more than [`MOST_CELLS`] cells.
    pub fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let plan: Self = serde_json::from_slice(text).context("no plan of a bench")?;
        ensure!(
            plan.kind == KIND && plan.schema == SCHEMA,
            "no plan of a bench, or of another version"
        );
        ensure!(
            plan.is_consistent(),
            "no plan of a bench: its parts do not fit together"
        );
        plan.check_size()?;
        Ok(plan)
    }

    /// Returns whether all lists with one entry per column have the same length, and the document contains no results.
    fn is_consistent(&self) -> bool {
        match &self.work {
            Work::Experiments(work) => {
                let mut runs = work.document.experiments.iter().flat_map(|one| &one.runs);
                work.policies.len() == work.document.columns.len()
                    && runs.all(|run| run.records.is_empty() && run.differs.is_empty())
            }
            Work::Program(work) => {
                work.qemu.len() == work.columns.len() && work.document.points.is_empty()
            }
        }
    }

    /// Checks that there are at most [`MOST_CELLS`] cells.
    ///
    /// # Errors
    /// If there are more.
    pub fn check_size(&self) -> anyhow::Result<()> {
        let (runs, columns) = match &self.work {
            Work::Experiments(work) => {
                let experiments = work.document.experiments.iter();
                let runs = experiments.map(|one| one.runs.len()).sum();
                (Some(runs), work.document.columns.len())
            }
            Work::Program(work) => (
                parameter::count(&work.document.parameters),
                work.columns.len(),
            ),
        };
        let cells = runs.and_then(|runs: usize| runs.checked_mul(columns));
        ensure!(
            cells.is_some_and(|cells| cells <= MOST_CELLS),
            "more than {MOST_CELLS} runs"
        );
        Ok(())
    }

    /// Returns every cell, in the order in which a bench runs them.
    pub fn cells(&self) -> Vec<Cell> {
        let mut start = Sha256::new();
        for part in [
            &*self.tool.version,
            &*self.tool.sha256,
            &*self.tool.kernel_sha256,
            if self.verify { "twice" } else { "once" },
        ] {
            hash_part(&mut start, part.as_bytes());
        }
        match &self.work {
            Work::Experiments(work) => work.cells(&start),
            Work::Program(work) => work.cells(&start),
        }
    }

    /// Returns the document as JSON.
    ///
    /// # Errors
    /// Errors of serialization.
    pub fn text(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

impl Experiments {
    fn cells(&self, start: &Sha256) -> Vec<Cell> {
        let mut cells = Vec::new();
        let experiments = self.document.experiments.iter();
        let runs = experiments.flat_map(|one| one.runs.iter().map(move |run| (one, run)));
        for (index, (experiment, run)) in runs.enumerate() {
            let mut of_run = start.clone();
            let [cpus, nodes, memory] =
                [u64::from(run.cpus), u64::from(run.nodes), run.memory].map(|n| n.to_string());
            for part in [
                "experiment",
                &experiment.program_sha256,
                &cpus,
                &nodes,
                &memory,
                &run.swap,
                &run.qemu.version,
                &run.qemu.sha256,
            ] {
                hash_part(&mut of_run, part.as_bytes());
            }
            hash_list(&mut of_run, &run.arguments);
            let label = match run.label.as_str() {
                "" => String::new(),
                label => format!(" ({label})"),
            };
            let columns = self.document.columns.iter().zip(&self.policies);
            for (column, (kernel, policies)) in columns.enumerate() {
                let mut hash = of_run.clone();
                for part in [&kernel.sha256, &kernel.append, policies] {
                    hash_part(&mut hash, part.as_bytes());
                }
                cells.push(Cell {
                    run: index,
                    column,
                    title: format!("{}{label} on {}", experiment.experiment, kernel.name),
                    address: hexadecimal(&hash.finalize()),
                });
            }
        }
        cells
    }
}

impl Program {
    /// Returns the points of the sweep.
    pub fn points(&self) -> Vec<Vec<String>> {
        parameter::points(&self.document.parameters)
    }

    /// Returns the name of the program that a column runs at a point of the sweep.
    pub fn program(&self, column: &Column, point: &[String]) -> String {
        let first = self.document.command.first().map(String::as_str);
        let parameters = &self.document.parameters;
        match &column.program {
            Some(program) => program.clone(),
            None => parameter::word(first.unwrap_or_default(), parameters, point),
        }
    }

    fn cells(&self, start: &Sha256) -> Vec<Cell> {
        let parameters = &self.document.parameters;
        let mut start = start.clone();
        for part in ["program", &self.stdin_sha256] {
            hash_part(&mut start, part.as_bytes());
        }
        let mut cells = Vec::new();
        for (index, point) in self.points().iter().enumerate() {
            let mut of_point = start.clone();
            let words = self.document.command.iter();
            let words = words.map(|word| parameter::word(word, parameters, point));
            hash_list(&mut of_point, &words.collect::<Vec<_>>());
            hash_list(
                &mut of_point,
                self.files.get(index).map_or(&[], Vec::as_slice),
            );
            let place = match parameter::title(parameters, point) {
                title if title.is_empty() => self.document.command.join(" "),
                title => title,
            };
            for (column, (kernel, qemu)) in self.columns.iter().zip(&self.qemu).enumerate() {
                let mut hash = of_point.clone();
                hash_part(&mut hash, kernel.sha256.as_bytes());
                hash_part(&mut hash, qemu.as_bytes());
                hash_list(&mut hash, &kernel.changes);
                if let Some(needs) = self.programs.get(&self.program(kernel, point)) {
                    hash_part(&mut hash, needs.folder.as_bytes());
                    let files = needs.files.iter();
                    let parts = files.flat_map(|file| [file.path.clone(), file.sha256.clone()]);
                    hash_list(&mut hash, &parts.collect::<Vec<_>>());
                }
                cells.push(Cell {
                    run: index,
                    column,
                    title: format!("{place} on {}", kernel.name),
                    address: hexadecimal(&hash.finalize()),
                });
            }
        }
        cells
    }
}

fn hash_list(hash: &mut Sha256, list: &[String]) {
    hash_part(hash, list.len().to_string().as_bytes());
    for one in list {
        hash_part(hash, one.as_bytes());
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::model::kernel_run::Qemu;

    fn text(text: &str) -> String {
        text.to_owned()
    }

    /// Returns the plan of two experiments with three runs on two kernels.
    pub fn experiments() -> CellPlan {
        let run = |label: &str, cpus| bench::MeasuredRun {
            label: text(label),
            arguments: vec![text(label)],
            cpus,
            nodes: 1,
            memory: 1 << 30,
            swap: String::new(),
            qemu: Qemu {
                version: text("7.2.0"),
                sha256: text("qq"),
            },
            repeats: None,
            differs: Vec::new(),
            records: Vec::new(),
        };
        let measured = |name: &str, runs| bench::Measured {
            experiment: text(name),
            question: text("?"),
            program_sha256: text(name),
            runs,
        };
        let kernel = |name: &str| bench::Kernel {
            name: text(name),
            sha256: format!("{name}{name}"),
            version: text("1"),
            append: String::new(),
            config_sha256: None,
        };
        plan(Work::Experiments(Experiments {
            policies: vec![String::new(); 2],
            document: bench::Document {
                schema: bench::SCHEMA,
                kind: text(bench::KIND),
                columns: vec![kernel("a"), kernel("b")],
                experiments: vec![
                    measured("one", vec![run("", 1)]),
                    measured("two", vec![run("x", 1), run("y", 2)]),
                ],
            },
        }))
    }

    /// Returns the plan of a program with a parameter of two values, on two kernels.
    fn program() -> CellPlan {
        let column = |name: &str, program: Option<&str>| Column {
            name: text(name),
            sha256: format!("{name}{name}"),
            version: text("1"),
            config_sha256: None,
            changes: program
                .iter()
                .map(|path| format!("program={path}"))
                .collect(),
            program: program.map(text),
        };
        let needs = |name: &str| {
            let files = vec![HashedFile {
                path: text(name),
                sha256: text(name),
            }];
            let folder = text("/");
            (text(name), Needs { folder, files })
        };
        plan(Work::Program(Program {
            columns: vec![column("a", None), column("b", Some("/other"))],
            qemu: vec![text("7.2.0 qq"); 2],
            stdin_sha256: text("00"),
            programs: [needs("./p1"), needs("./p2"), needs("/other")].into(),
            files: Vec::new(),
            document: sweep::Document {
                schema: sweep::SCHEMA,
                kind: text(sweep::KIND),
                command: vec![text("./p{n}"), text("-n{n}")],
                parameters: vec!["n=1,2".parse().unwrap()],
                points: Vec::new(),
            },
        }))
    }

    fn plan(work: Work) -> CellPlan {
        CellPlan {
            schema: SCHEMA,
            kind: text(KIND),
            tool: Tool {
                version: text("0.1.0"),
                sha256: text("tt"),
                kernel_sha256: text("kk"),
            },
            verify: true,
            all: false,
            rows: Vec::new(),
            work,
        }
    }

    /// Sets the value at `pointer` in the JSON of the plan, and returns the indices of the cells whose addresses then
    /// differ.
    fn changed(plan: &CellPlan, pointer: &str, value: serde_json::Value) -> Vec<usize> {
        let mut other = serde_json::to_value(plan).unwrap();
        *other.pointer_mut(pointer).expect(pointer) = value;
        let other = CellPlan::parse(other.to_string().as_bytes()).unwrap();
        let pairs = plan.cells().into_iter().zip(other.cells());
        let differ = pairs
            .enumerate()
            .filter(|(_, (one, other))| one.address != other.address);
        differ.map(|(index, _)| index).collect()
    }

    #[test]
    fn an_address_of_an_experiment_covers_its_run() {
        let all: Vec<usize> = (0..6).collect();
        let plan = experiments();
        for (pointer, value, expected) in [
            ("/tool/sha256", "x".into(), all.clone()),
            ("/tool/version", "x".into(), all.clone()),
            ("/tool/kernel_sha256", "x".into(), all.clone()),
            ("/verify", false.into(), all),
            ("/all", true.into(), vec![]),
            (
                "/work/experiments/policies/1",
                "tlb=gather".into(),
                vec![1, 3, 5],
            ),
            (
                "/work/experiments/document/columns/0/name",
                "x".into(),
                vec![],
            ),
            (
                "/work/experiments/document/columns/0/version",
                "x".into(),
                vec![],
            ),
            (
                "/work/experiments/document/columns/0/sha256",
                "x".into(),
                vec![0, 2, 4],
            ),
            (
                "/work/experiments/document/experiments/1/experiment",
                "x".into(),
                vec![],
            ),
            (
                "/work/experiments/document/experiments/1/program_sha256",
                "x".into(),
                vec![2, 3, 4, 5],
            ),
            (
                "/work/experiments/document/experiments/1/runs/0/label",
                "z".into(),
                vec![],
            ),
            (
                "/work/experiments/document/experiments/1/runs/0/arguments/0",
                "z".into(),
                vec![2, 3],
            ),
            (
                "/work/experiments/document/experiments/1/runs/1/cpus",
                4.into(),
                vec![4, 5],
            ),
            (
                "/work/experiments/document/experiments/0/runs/0/memory",
                1.into(),
                vec![0, 1],
            ),
            (
                "/work/experiments/document/experiments/0/runs/0/qemu/sha256",
                "x".into(),
                vec![0, 1],
            ),
        ] {
            assert_eq!(changed(&plan, pointer, value), expected, "{pointer}");
        }
    }

    #[test]
    fn an_address_of_a_program_covers_its_files() {
        let plan = program();
        for (pointer, value, expected) in [
            ("/work/program/columns/1/name", "x".into(), vec![]),
            ("/work/program/columns/1/sha256", "x".into(), vec![1, 3]),
            (
                "/work/program/columns/0/changes",
                vec!["memory=1G"].into(),
                vec![0, 2],
            ),
            ("/work/program/qemu/0", "x".into(), vec![0, 2]),
            ("/work/program/stdin_sha256", "x".into(), vec![0, 1, 2, 3]),
            (
                "/work/program/programs/.~1p2/files/0/sha256",
                "x".into(),
                vec![2],
            ),
            (
                "/work/program/programs/~1other/folder",
                "/x".into(),
                vec![1, 3],
            ),
            (
                "/work/program/document/command/1",
                "{n}".into(),
                vec![0, 1, 2, 3],
            ),
            (
                "/work/program/document/parameters/0/values/1",
                "3".into(),
                vec![2, 3],
            ),
        ] {
            assert_eq!(changed(&plan, pointer, value), expected, "{pointer}");
        }
    }

    #[test]
    fn cells_have_different_titles_and_addresses() {
        for (plan, title) in [(experiments(), "two (x) on b"), (program(), "n=2 on a")] {
            let cells = plan.cells();
            assert!(cells.iter().any(|cell| cell.title == title));
            for key in [
                |cell: &Cell| cell.title.clone(),
                |cell: &Cell| cell.address.clone(),
            ] {
                let mut keys: Vec<String> = cells.iter().map(key).collect();
                keys.sort();
                keys.dedup();
                assert_eq!(keys.len(), cells.len());
            }
        }
    }

    #[test]
    fn other_plans_are_refused() {
        let mut plan = program();
        if let Work::Program(work) = &mut plan.work {
            let values: Vec<String> = (0..2000).map(|number: u32| number.to_string()).collect();
            for name in ["a", "b", "c", "d", "e", "f", "g"] {
                let values = values.clone();
                let name = text(name);
                work.document
                    .parameters
                    .push(parameter::Parameter { name, values });
            }
        }
        let written = serde_json::to_vec(&plan).unwrap();
        let error = CellPlan::parse(&written).unwrap_err().to_string();
        assert!(error.contains("more than 2000000 runs"), "{error}");
        for wrong in ["", "{}", "[[[[", r#"{"schema":9}"#] {
            assert!(CellPlan::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let mut plan = experiments();
        if let Work::Experiments(work) = &mut plan.work {
            work.policies.pop();
        }
        let error = CellPlan::parse(&serde_json::to_vec(&plan).unwrap()).unwrap_err();
        assert!(error.to_string().contains("do not fit together"), "{error}");
    }
}
