//! Tests the workflow of docs/ci.md. Parses its YAML, and executes each `run` step in the same way as a runner of
//! GitHub.
//!
//! Nothing is downloaded. [`uses`] and [`TOOLS`] define the stand-ins for the actions and for the package managers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

const PAGE: &str = include_str!("../../../docs/ci.md");
/// The stand-ins for the programs with which the workflow installs software. `sudo` executes its command. `cargo
/// install` checks the path, and installs the command that was built for this test.
const TOOLS: [(&str, &str); 4] = [
    ("sudo", "exec \"$@\""),
    (
        "apt-get",
        "case $1 in update | install) ;; *) exit 1 ;; esac",
    ),
    ("rustup", "test \"$*\" = 'target add x86_64-unknown-none'"),
    (
        "cargo",
        "test \"$1 $2 $3\" = 'install --locked --path' && grep -q '^name = \"memwright-cli\"' \"$4/Cargo.toml\" && \
         ln -sf \"$MEMWRIGHT\" \"$TOOLS/memwright\"",
    ),
];

/// The parts of the workflow that the steps use. A key that is not one of these fields is an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Workflow {
    name: String,
    on: Vec<String>,
    jobs: BTreeMap<String, Job>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Job {
    runs_on: String,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    name: Option<String>,
    id: Option<String>,
    #[serde(rename = "if")]
    condition: Option<String>,
    uses: Option<String>,
    run: Option<String>,
    #[serde(default)]
    with: BTreeMap<String, Value>,
}

/// Returns the only code block of the page in the language `language`.
fn block(language: &str) -> &'static str {
    let fence = format!("```{language}\n");
    let mut parts = PAGE.split(fence.as_str()).skip(1);
    let (block, _) = parts.next().unwrap().split_once("```").unwrap();
    assert_eq!(parts.count(), 0, "several blocks of {language}");
    block
}

fn steps() -> Vec<Step> {
    let workflow: Workflow = serde_saphyr::from_str(block("yaml")).unwrap();
    assert_eq!((workflow.name.as_str(), workflow.on.len()), ("counts", 2));
    let mut jobs: Vec<Job> = workflow.jobs.into_values().collect();
    assert_eq!(jobs.len(), 1);
    let job = jobs.remove(0);
    assert!(job.runs_on.starts_with("ubuntu-"), "{}", job.runs_on);
    job.steps
}

/// The repository with the program, and the caches and charts that outlive a job.
struct Project {
    source: String,
    caches: RefCell<Vec<(String, PathBuf)>>,
    kept: TempDir,
}

/// The result of a job: the step that failed with its exit code, the summary of the step `Count`, and the text that the
/// step `Count` wrote for the chart.
struct Ended {
    failed: Option<(String, i32)>,
    summary: String,
    benchmark: Value,
    drawn: bool,
}

/// A job that is being executed in a folder.
struct Running<'a> {
    project: &'a Project,
    folder: PathBuf,
    tools: TempDir,
    outputs: BTreeMap<String, String>,
    run_id: String,
    drawn: bool,
}

impl Project {
    fn new(source: String) -> Self {
        Self {
            source,
            caches: RefCell::default(),
            kept: tempfile::tempdir().unwrap(),
        }
    }

    /// Executes the workflow's job for a push to `branch`.
    fn push(&self, branch: &str, run_id: u32) -> Ended {
        // Every job has the same path, as on a runner, and begins with an empty folder.
        let folder = self.kept.path().join("work");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let mut job = Running {
            project: self,
            folder,
            tools: tools(),
            outputs: BTreeMap::new(),
            run_id: run_id.to_string(),
            drawn: false,
        };
        let mut failed = None;
        for step in steps() {
            let holds = match step.condition.as_deref() {
                None => true,
                Some("github.ref == 'refs/heads/main'") => branch == "main",
                Some(other) => panic!("the test does not know the condition {other}"),
            };
            if !holds {
                continue;
            }
            let name = step.name.clone().unwrap_or_default();
            match (&step.uses, &step.run) {
                (Some(action), None) => job.uses(action, &step.with),
                (None, Some(script)) => {
                    let code = job.run(step.id.as_deref(), &name, script);
                    if code != 0 {
                        failed = Some((name, code));
                        break;
                    }
                }
                (Some(_), Some(_)) | (None, None) => panic!("{step:?}"),
            }
        }
        let read = |path: &str| fs::read_to_string(job.folder.join(path)).unwrap();
        Ended {
            failed,
            summary: read(".runner/summary-Count"),
            benchmark: serde_json::from_str(&read("benchmark.json")).unwrap(),
            drawn: job.drawn,
        }
    }
}

/// Returns a folder with [`TOOLS`].
fn tools() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, script) in TOOLS {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

impl Running<'_> {
    /// Executes the stand-in for an action. A checkout without the input `repository` writes the program, and a
    /// checkout of Memwright creates a link to this repository. A cache is a folder.
    fn uses(&mut self, action: &str, with: &BTreeMap<String, Value>) {
        let of = |name: &str| with.get(name).and_then(Value::as_str);
        let path = |name: &str| self.folder.join(of(name).unwrap());
        match (action, of("repository")) {
            ("actions/checkout@v4", None) => {
                fs::write(self.folder.join("prog.c"), &self.project.source).unwrap();
            }
            ("actions/checkout@v4", Some("OWNER/memwright")) => {
                let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
                symlink(repository, path("path")).unwrap();
            }
            ("actions/cache/restore@v4", None) => {
                let [key, start] =
                    ["key", "restore-keys"].map(|name| self.expand(of(name).unwrap()));
                let caches = self.project.caches.borrow();
                let exact = caches.iter().find(|(saved, _)| *saved == key);
                let newest = || caches.iter().rfind(|(saved, _)| saved.starts_with(&start));
                if let Some((_, saved)) = exact.or_else(newest) {
                    copy(saved, &path("path"));
                }
            }
            ("actions/cache/save@v4", None) => {
                let key = self.expand(of("key").unwrap());
                let saved = self.project.kept.path().join(&key);
                copy(&path("path"), &saved);
                self.project.caches.borrow_mut().push((key, saved));
            }
            ("benchmark-action/github-action-benchmark@v1", None) => {
                assert_eq!(of("tool"), Some("customSmallerIsBetter"));
                assert_eq!(of("output-file-path"), Some("benchmark.json"));
                self.drawn = true;
            }
            (other, _) => panic!("the test has nothing that stands for {other}"),
        }
    }

    /// Executes the script of a step as a runner does: `bash -e`, a new summary file, and a file for outputs. Returns
    /// the exit code.
    fn run(&mut self, id: Option<&str>, name: &str, script: &str) -> i32 {
        assert!(
            !script.contains("${{"),
            "the test expands no scripts: {script}"
        );
        let runner = self.folder.join(".runner");
        fs::create_dir_all(&runner).unwrap();
        let [summary, output] =
            ["summary", "output"].map(|kind| runner.join(format!("{kind}-{name}")));
        for file in [&summary, &output] {
            fs::write(file, "").unwrap();
        }
        let path = std::env::var_os("PATH").unwrap();
        let folders = [self.tools.path().to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&path));
        let ran = Command::new("bash")
            .args(["-e", "-c", script])
            .current_dir(&self.folder)
            .env("PATH", std::env::join_paths(folders).unwrap())
            .env("TOOLS", self.tools.path())
            .env("MEMWRIGHT", env!("CARGO_BIN_EXE_memwright"))
            .env("GITHUB_STEP_SUMMARY", &summary)
            .env("GITHUB_OUTPUT", &output)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        for line in fs::read_to_string(output).unwrap().lines() {
            let (key, value) = line.split_once('=').unwrap();
            let key = format!("steps.{}.outputs.{key}", id.unwrap());
            self.outputs.insert(key, value.to_owned());
        }
        let code = ran.status.code().unwrap();
        if code != 0 {
            // The test prints this only if it fails.
            eprintln!("{name}: {}", String::from_utf8_lossy(&ran.stderr));
        }
        code
    }

    /// Replaces the expressions of a text by their values.
    fn expand(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${{") {
            let (name, behind) = after.split_once("}}").unwrap();
            let value = match name.trim() {
                "github.run_id" => &self.run_id,
                name => &self.outputs[name],
            };
            out.push_str(before);
            out.push_str(value);
            rest = behind;
        }
        out + rest
    }
}

/// Copies the files of a folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Returns the value of a row in the file for the chart.
fn value<'a>(benchmark: &'a Value, name: &str) -> &'a Value {
    let mut entries = benchmark.as_array().unwrap().iter();
    let entry = entries.find(|entry| entry["name"] == name);
    entry.unwrap_or_else(|| panic!("no {name} in {benchmark}"))
}

/// The program passes and becomes the baseline. On a branch, a change that faults in one more page fails, and does not
/// become the baseline. A change that faults in one page less passes.
#[test]
fn a_change_that_faults_more_fails() {
    const FAULTS: &str = "region.1.user_faults.write";
    let mut project = Project::new(block("c").to_owned());
    let first = project.push("main", 1);
    assert_eq!(first.failed, None);
    assert!(first.drawn);
    let row = "| region.fill.user\\_faults.write | good | faults | +0% | 256 | 256 | = |\n";
    assert!(
        first.summary.starts_with("### ./prog\n\n**PASSED**\n\n| |"),
        "{}",
        first.summary
    );
    assert!(first.summary.contains(row), "{}", first.summary);
    assert!(first.summary.contains("\nnone of "), "{}", first.summary);
    let entry = value(&first.benchmark, FAULTS);
    let base = fs::read(project.caches.borrow()[0].1.join("base.json")).unwrap();
    let base: Value = serde_json::from_slice(&base).unwrap();
    let kernel = base["kernel"]["sha256"].as_str().unwrap();
    let extra = format!(
        "kernel sha256 {kernel}\nmemwright {}\nlimit +0%",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(
        *entry,
        json!({"name": FAULTS, "unit": "faults", "value": 256, "extra": extra})
    );
    let names: Vec<&Value> = first
        .benchmark
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert!(
        names
            .iter()
            .all(|name| name.as_str().unwrap().starts_with("region.1.")),
        "{names:?}"
    );
    let counted = &base["regions"][0]["counts"]["instructions"]["kernel"];
    assert_eq!(
        value(&first.benchmark, "region.1.instructions.kernel")["value"],
        *counted
    );

    for (pages, run, expected, verdict) in [
        (257, 2, Some(("Count".to_owned(), 1)), "FAILED"),
        (255, 3, None, "PASSED"),
    ] {
        project.source = block("c").replace("PAGES = 256", &format!("PAGES = {pages}"));
        let ended = project.push("change", run);
        assert_eq!(ended.failed, expected, "{}", ended.summary);
        assert!(!ended.drawn && project.caches.borrow().len() == 1);
        let start = format!("### ./prog\n\n**{verdict}**\n");
        assert!(ended.summary.starts_with(&start), "{}", ended.summary);
        assert_eq!(value(&ended.benchmark, FAULTS)["value"], pages);
        if verdict == "FAILED" {
            // The page shows the beginning of this summary.
            assert!(
                ended.summary.starts_with(block("markdown")),
                "{}",
                ended.summary
            );
        }
    }
}
