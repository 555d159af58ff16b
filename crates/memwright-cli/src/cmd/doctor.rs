//! `memwright doctor`: checks which required tools are installed, and prints how to install the others.

use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::count::plugin;
use crate::host::bounded::{self, PATIENCE};
use crate::host::compile::{Compiler, packaged_folder};
use crate::host::folder::PrivateFolder;
use crate::host::{apt, cache, output};
use crate::model::failure::{ENVIRONMENT, Failure};
use crate::qemu::version;

/// Whether a tool is installed and, if it is missing, which commands need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// The tool is installed.
    Here,
    /// The tool is missing, and some commands need it.
    Useful,
    /// The tool is missing, and every run needs it.
    Needed,
}

/// One line of the report.
#[derive(Debug)]
struct Finding {
    what: &'static str,
    weight: Weight,
    detail: String,
}

/// Checks all tools and prints one line for each. Returns exit code 3 if a required tool is missing.
///
/// # Errors
/// I/O errors of printing.
pub fn doctor() -> Result<u8, Failure> {
    let findings = [
        qemu(),
        programs(),
        counting(),
        archive(),
        perf(),
        cache_folder(),
        kernels(),
    ];
    let text: String = findings.iter().map(line).collect();
    output::print(text.as_bytes())?;
    let sick = findings.iter().any(|one| one.weight == Weight::Needed);
    Ok(if sick { ENVIRONMENT } else { 0 })
}

fn line(finding: &Finding) -> String {
    let mark = match finding.weight {
        Weight::Here => "ok      ",
        Weight::Useful => "absent  ",
        Weight::Needed => "MISSING ",
    };
    format!("{mark}{}: {}\n", finding.what, finding.detail)
}

fn found<T>(
    what: &'static str,
    result: anyhow::Result<T>,
    weight: Weight,
    say: impl Fn(&T) -> String,
) -> Finding {
    match result {
        Ok(value) => Finding {
            what,
            weight: Weight::Here,
            detail: say(&value),
        },
        Err(error) => Finding {
            what,
            weight,
            detail: format!("{error:#}"),
        },
    }
}

fn qemu() -> Finding {
    found(
        "QEMU",
        version::usual(),
        Weight::Needed,
        |(name, version)| {
            let later = if *version < version::Version::NEWER {
                "; several CPUs take a later one from Debian's backports, by themselves"
            } else {
                ""
            };
            format!("{} is {version}{later}", name.display())
        },
    )
}

/// Finds out whether the programs of experiments are available: in the package, or through a compiler that can build
/// them.
fn programs() -> Finding {
    let what = "programs of experiments";
    let place = match packaged_folder() {
        Some(folder) => Ok(folder.display().to_string()),
        None => Compiler::first_of(&["musl-gcc", "cc"])
            .map(|compiler| format!("built by {}", compiler.name())),
    };
    found(what, place, Weight::Useful, Clone::clone)
}

fn counting() -> Finding {
    let built = version::usual().and_then(|(qemu, version)| {
        ensure!(
            version::takes_plugins(&qemu),
            "{} was built without support for plugins",
            qemu.display()
        );
        plugin::obtain(version)
    });
    found("counting plugin", built, Weight::Useful, |path| {
        path.display().to_string()
    })
}

fn archive() -> Finding {
    found(
        "Debian's archive",
        apt::usable_mirror(),
        Weight::Useful,
        |mirror| format!("{mirror} (kernels, and a later QEMU)"),
    )
}

fn perf() -> Finding {
    let what = "perf";
    let answers = bounded::output(Command::new(what).arg("--version"), PATIENCE)
        .is_ok_and(|output| output.status.success());
    let (weight, detail) = match answers {
        true => (Weight::Here, "counts for run --native"),
        false => (
            Weight::Useful,
            "counts for run --native (apt install linux-perf)",
        ),
    };
    Finding {
        what,
        weight,
        detail: detail.to_owned(),
    }
}

fn cache_folder() -> Finding {
    let made = cache::folder().and_then(|folder| {
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        PrivateFolder::within(&folder)
            .with_context(|| format!("cannot write to {}", folder.display()))?;
        Ok(folder)
    });
    found("cache", made, Weight::Needed, |folder| {
        folder.display().to_string()
    })
}

fn kernels() -> Finding {
    let kept = crate::linux::kept::all().unwrap_or_default();
    if kept.is_empty() {
        return Finding {
            what: "kernels",
            weight: Weight::Useful,
            detail: "none was added (memwright kernels add debian:trixie)".to_owned(),
        };
    }
    let names: Vec<String> = kept.into_iter().map(|kept| kept.name).collect();
    Finding {
        what: "kernels",
        weight: Weight::Here,
        detail: names.join(", "),
    }
}
