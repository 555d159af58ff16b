//! The test binaries of the workspace, and the tests that they contain.

use crate::shell;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An executable that cargo built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The name of the package. For integration tests, a slash and the name of the test file follow:
    /// `memwright-sim/cow`.
    pub name: String,
    pub path: PathBuf,
    /// The folder of the package, which is the working directory of tests.
    pub folder: PathBuf,
    /// Whether the executable is a test binary. If it is not, it is a program.
    tests: bool,
}

/// The executables that a build of all tests produced.
pub struct Built {
    pub tests: Vec<Binary>,
    /// The path of the `memwright` command that the tests start.
    pub memwright: PathBuf,
}

/// Builds every test of the workspace.
///
/// # Errors
/// If a package does not build.
pub fn build() -> Result<Built> {
    // The binary of the kernel has no tests, so cargo does not link it for the host.
    let (tests, programs) = executables(&["--workspace"])?;
    let memwright = programs.into_iter().find(|b| b.path.ends_with("memwright"));
    let memwright = memwright.context("cargo built no command")?.path;
    Ok(Built { tests, memwright })
}

/// Builds the tests that these arguments of `cargo test` select.
///
/// # Errors
/// If a package does not build.
pub fn build_chosen(arguments: &[&str]) -> Result<Vec<Binary>> {
    Ok(executables(arguments)?.0)
}

/// Builds with `arguments`, which are arguments of `cargo test`. Returns the test binaries and the programs.
fn executables(arguments: &[&str]) -> Result<(Vec<Binary>, Vec<Binary>)> {
    let mut command = shell::cargo(["test", "--no-run"]);
    command
        .arg("--message-format=json-render-diagnostics")
        .args(arguments);
    shell::step(&shell::line(&command));
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    let text = String::from_utf8_lossy(&output.stdout);
    let (tests, programs): (Vec<Binary>, Vec<Binary>) =
        text.lines().filter_map(executable).partition(|b| b.tests);
    ensure!(!tests.is_empty(), "cargo built no tests");
    Ok((tests, programs))
}

/// Returns the executable that a line of cargo's messages names, if any.
fn executable(line: &str) -> Option<Binary> {
    let value = |key: &str| {
        let (_, rest) = line.split_once(&format!("\"{key}\":\""))?;
        rest.split('"').next()
    };
    let path = PathBuf::from(value("executable")?);
    let folder = Path::new(value("manifest_path")?).parent()?.to_owned();
    let package = folder.file_name()?.to_str()?.to_owned();
    let (_, target) = line.split_once("\"target\":{")?;
    let (_, name) = target.split_once("\"name\":\"")?;
    let integration = target.starts_with("\"kind\":[\"test\"]");
    let name = match integration {
        true => format!("{package}/{}", name.split('"').next()?),
        false => package,
    };
    let (_, profile) = line.split_once("\"profile\":{")?;
    let tests = profile.split('}').next()?.contains("\"test\":true");
    Some(Binary {
        name,
        path,
        folder,
        tests,
    })
}

/// A test in the list that a binary prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    /// The group of tests that share a run of the guest, so that one process runs them; `None` if the test shares none.
    pub group: Option<String>,
}

impl Binary {
    /// Returns the command that starts the binary as cargo does. The command resets signals to their default actions,
    /// because tests send signals, and a task in the background may have been started with some signals ignored.
    pub fn command(&self) -> Command {
        let mut command = Command::new("env");
        command
            .arg("--default-signal=HUP,INT,QUIT,TERM")
            .arg(&self.path)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null());
        command
    }

    /// Lists the tests of the binary.
    ///
    /// # Errors
    /// If the binary fails.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let output = self
            .command()
            .args(["--list", "--format", "terse"])
            .output()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        if !output.status.success() {
            bail!(
                "{} lists no tests: {}",
                self.name,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(listed).collect())
    }
}

/// Parses a line of a list: `NAME: test`, or `[boot] NAME: test` if the test shares a boot with others.
fn listed(line: &str) -> Option<Listed> {
    let name = line.strip_suffix(": test")?;
    let shared = name.strip_prefix("[boot] ");
    let name = shared.unwrap_or(name).to_owned();
    let group = shared.and_then(|name| Some(name.rsplit_once("::")?.0.to_owned()));
    Some(Listed { name, group })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_reports_where_an_executable_is() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/memwright-sim#0.1.0","manifest_path":"/w/crates/memwright-sim/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"name":"cow","src_path":"/w/cow.rs"},"profile":{"opt_level":"1","test":true},"features":[],"filenames":["/t/cow-1"],"executable":"/t/cow-1","fresh":true}"#;
        let cow = Binary {
            name: "memwright-sim/cow".to_owned(),
            path: "/t/cow-1".into(),
            folder: "/w/crates/memwright-sim".into(),
            tests: true,
        };
        assert_eq!(executable(line), Some(cow.clone()));
        let unit = Binary {
            name: "memwright-sim".to_owned(),
            ..cow.clone()
        };
        assert_eq!(
            executable(&line.replace("[\"test\"]", "[\"lib\"]")),
            Some(unit)
        );
        let program = Binary {
            tests: false,
            ..cow
        };
        assert_eq!(
            executable(&line.replace("\"test\":true", "\"test\":false")),
            Some(program)
        );
        assert_eq!(
            executable(&line.replace("\"/t/cow-1\",\"fresh", "null,\"fresh")),
            None
        );
    }

    #[test]
    fn tests_that_share_a_boot_are_one_group() {
        for (line, name, group) in [
            ("a::b: test", "a::b", None),
            ("[boot] a::on_2::b: test", "a::on_2::b", Some("a::on_2")),
        ] {
            let expected = Listed {
                name: name.to_owned(),
                group: group.map(str::to_owned),
            };
            assert_eq!(listed(line), Some(expected));
        }
        assert_eq!(listed("2 tests, 0 benchmarks"), None);
    }
}
