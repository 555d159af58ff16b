//! The source files that `cargo xtask house` measures.

use std::path::Path;

use anyhow::{Context, Result};

use crate::shell;

/// A tracked text file.
pub struct Source {
    /// The path, relative to the root of the workspace.
    pub path: String,
    /// The contents.
    pub text: String,
}

/// The folders and files whose prose and code are measured.
const MEASURED: &[&str] = &[
    "crates",
    "xtask",
    "plugin",
    "programs",
    "include",
    "docs",
    "ARCHITECTURE.md",
    "README.md",
    "CONTRIBUTING.md",
];
/// The folders that are excluded: generated files, and the source of this task, which contains the forbidden words.
const NOT_MEASURED: &[&str] = &[
    "programs/build",
    "docs/experiments",
    "docs/cases",
    "xtask/src/house",
];

/// Returns the measured Rust, C and Markdown files that git tracks, in the order of their paths.
///
/// # Errors
/// If git fails, or a file cannot be read.
pub fn all() -> Result<Vec<Source>> {
    let arguments = ["ls-files", "--"].iter().chain(MEASURED);
    let listed = shell::git(arguments)?;
    let mut sources = Vec::new();
    for path in listed.lines().filter(|path| is_measured(path)) {
        let file = shell::root().join(path);
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {path}"))?;
        sources.push(Source {
            path: path.to_owned(),
            text,
        });
    }
    Ok(sources)
}

/// Returns the hash of the commit that is checked out.
///
/// # Errors
/// If git fails.
pub fn commit() -> Result<String> {
    Ok(shell::git(["rev-parse", "HEAD"])?.trim().to_owned())
}

fn is_measured(path: &str) -> bool {
    let kind = Path::new(path).extension().and_then(|kind| kind.to_str());
    matches!(kind, Some("rs" | "c" | "h" | "md"))
        && !NOT_MEASURED.iter().any(|folder| path.starts_with(folder))
}

impl Source {
    /// Returns whether the file is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns whether the file is Rust of the product: not a test, a simulator or a tool of the workspace.
    pub fn is_production(&self) -> bool {
        self.is_rust()
            && self.path.starts_with("crates/")
            && !self.path.contains("/tests")
            && !self.path.starts_with("crates/memwright-testkit/")
            && !self.path.starts_with("crates/memwright-sim/")
            && !self.path.starts_with("crates/memwright-linux-sim/")
    }
}
