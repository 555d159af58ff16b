//! `cargo xtask arrows`: checks that modules refer only to modules in lower layers, both by `use` and by method calls.
//!
//! An exception is a reference to a higher layer, a folder in a cycle, or a file in a large cycle. Each crate has
//! ceilings for the numbers of its exceptions. A crate above a ceiling fails the check, which then prints every
//! exception. A crate below a ceiling fails, too, until the ceiling in `layers.rs` is lowered, so that an improvement
//! cannot be undone unnoticed.

mod circles;
mod index;
mod layers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Result, anyhow, bail};

use self::index::Arrow;
use self::layers::{CRATES, Crate, layer};

/// The minimum number of files of a large cycle. The files of a smaller cycle are not exceptions.
const LARGE: usize = 10;

/// Checks every crate. With `--show SOURCE`, prints the exceptions of the crate whose source is in that folder instead.
/// Each exception has the places of the reference and of the definition.
///
/// # Errors
/// If a crate is not exactly at its ceilings, if a module is in no layer, or if an argument is unknown.
pub fn run(arguments: &[&str]) -> Result<()> {
    let shown = match arguments {
        [] => None,
        ["--show", source] => Some(*source),
        _ => bail!("arrows takes no argument, or --show SOURCE"),
    };
    let arrows = index::arrows()?;
    let mut wrong = Vec::new();
    for one in CRATES {
        let (upward, between) = upward(one, &arrows)?;
        let circles = circles::of(&folders(one, &arrows));
        let mut of_files = circles::of(&files(one, &arrows));
        of_files.retain(|circle| circle.len() >= LARGE);
        let now = Exceptions {
            upward: upward.len(),
            in_circles: circles.iter().map(Vec::len).sum(),
            in_large_circles: of_files.iter().map(Vec::len).sum(),
        };
        println!(
            "{}: {between} references between modules, {now}",
            one.source
        );
        if shown == Some(one.source) || !now.is_within(&one.most()) {
            for arrow in &upward {
                println!(
                    "{}:{} refers to {}:{}",
                    arrow.from.file, arrow.from.line, arrow.to.file, arrow.to.line
                );
            }
            for circle in &circles {
                println!("a circle of folders: {}", circle.join(", "));
            }
            for circle in &of_files {
                println!("a circle of {} files:", circle.len());
                print_between(one, &arrows, circle);
            }
        }
        wrong.extend(complaint(one, now));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}", wrong.join("\n"))
}

/// Prints the references between the files of a cycle: for each pair of files, only the first reference.
fn print_between(one: &Crate, arrows: &[Arrow], circle: &[String]) {
    let inside = |file: &str| {
        let inside = file.strip_prefix(one.source)?.strip_prefix('/')?;
        circle.iter().position(|known| known == inside)
    };
    let mut seen = BTreeSet::new();
    for arrow in arrows {
        let pair = (inside(&arrow.from.file), inside(&arrow.to.file));
        if let (Some(from), Some(to)) = pair
            && from != to
            && seen.insert((from, to))
        {
            println!(
                "  {}:{} refers to {}:{}",
                circle[from], arrow.from.line, circle[to], arrow.to.line
            );
        }
    }
}

/// The numbers of exceptions of a crate, or their ceilings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exceptions {
    /// The number of references to a later module.
    upward: usize,
    /// The number of folders in cycles.
    in_circles: usize,
    /// The number of files in cycles of at least [`LARGE`] files.
    in_large_circles: usize,
}

impl Exceptions {
    /// Returns whether each number is at most the one in `most`.
    fn is_within(&self, most: &Self) -> bool {
        self.upward <= most.upward
            && self.in_circles <= most.in_circles
            && self.in_large_circles <= most.in_large_circles
    }
}

impl fmt::Display for Exceptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} upward, {} folders in circles, {} files in large circles",
            self.upward, self.in_circles, self.in_large_circles
        )
    }
}

impl Crate {
    /// Returns the ceilings of the crate.
    const fn most(&self) -> Exceptions {
        Exceptions {
            upward: self.upward,
            in_circles: self.circles,
            in_large_circles: self.large_circles,
        }
    }
}

/// Returns an error message if the exceptions of a crate are not exactly at its ceilings.
fn complaint(one: &Crate, now: Exceptions) -> Option<String> {
    let most = one.most();
    if now == most {
        return None;
    }
    let source = one.source;
    if !now.is_within(&most) {
        return Some(format!("{source}: {now}, of at most {most}"));
    }
    Some(format!(
        "{source}: fewer exceptions than its ceilings: lower them to {now} in xtask/src/arrows/layers.rs"
    ))
}

/// Returns the references in a crate from a module to a later one, and the total number of references between modules
/// of the crate.
fn upward<'a>(one: &Crate, arrows: &'a [Arrow]) -> Result<(Vec<&'a Arrow>, usize)> {
    let (mut upward, mut between) = (Vec::new(), 0);
    for arrow in arrows {
        let places = [&arrow.from, &arrow.to].map(|place| layer(one, &place.file));
        let [Some(from), Some(to)] = places else {
            continue;
        };
        let (from, to) = (
            from.map_err(|why| anyhow!(why))?,
            to.map_err(|why| anyhow!(why))?,
        );
        between += usize::from(from != to);
        if from < to {
            upward.push(arrow);
        }
    }
    Ok((upward, between))
}

/// Returns, for each folder of a crate, the folders to which it refers. A subfolder counts as a separate folder.
fn folders(one: &Crate, arrows: &[Arrow]) -> BTreeMap<String, BTreeSet<String>> {
    graph(one, arrows, |inside| Some(inside.rsplit_once('/')?.0))
}

/// Returns, for each file of a crate, the files to which it refers.
fn files(one: &Crate, arrows: &[Arrow]) -> BTreeMap<String, BTreeSet<String>> {
    graph(one, arrows, |inside| Some(inside))
}

/// Returns, for each node of a crate, the nodes to which it refers. `node` returns the node of a file from the file's
/// path in the crate's source.
fn graph(
    one: &Crate,
    arrows: &[Arrow],
    node: impl Fn(&str) -> Option<&str>,
) -> BTreeMap<String, BTreeSet<String>> {
    let inside = |file: &'_ str| {
        let inside = file.strip_prefix(one.source)?.strip_prefix('/')?;
        node(inside).map(str::to_owned)
    };
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for arrow in arrows {
        if let (Some(from), Some(to)) = (inside(&arrow.from.file), inside(&arrow.to.file))
            && from != to
        {
            all.entry(from).or_default().insert(to);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::index::Place;
    use super::*;

    const CRATE: Crate = Crate {
        source: "s",
        modules: &["low", "high", "main"],
        upward: 1,
        circles: 0,
        large_circles: 0,
    };

    fn arrow(from: &str, to: &str) -> Arrow {
        let place = |file: &str| Place {
            file: file.to_owned(),
            line: 1,
        };
        Arrow {
            from: place(from),
            to: place(to),
        }
    }

    #[test]
    fn a_reference_that_goes_up_is_found() {
        let arrows = [
            arrow("s/high/a.rs", "s/low/b.rs"),
            arrow("s/low/b.rs", "s/low/c.rs"),
            arrow("s/main.rs", "s/high/a.rs"),
            arrow("s/low/b.rs", "s/high/a.rs"),
            arrow("t/low/b.rs", "s/high/a.rs"),
        ];
        let (upward, between) = upward(&CRATE, &arrows).unwrap();
        assert_eq!((upward, between), (vec![&arrows[3]], 3));
        let unknown = [arrow("s/new/a.rs", "s/low/b.rs")];
        assert!(super::upward(&CRATE, &unknown).is_err());
    }

    #[test]
    fn exceptions_may_only_fall() {
        let exceptions = |[upward, in_circles, in_large_circles]: [usize; 3]| Exceptions {
            upward,
            in_circles,
            in_large_circles,
        };
        assert_eq!(complaint(&CRATE, exceptions([1, 0, 0])), None);
        let most = "1 upward, 0 folders in circles, 0 files in large circles";
        for (figures, now) in [
            (
                [2, 0, 0],
                "2 upward, 0 folders in circles, 0 files in large circles",
            ),
            (
                [0, 2, 0],
                "0 upward, 2 folders in circles, 0 files in large circles",
            ),
            (
                [1, 0, 3],
                "1 upward, 0 folders in circles, 3 files in large circles",
            ),
        ] {
            assert_eq!(
                complaint(&CRATE, exceptions(figures)),
                Some(format!("s: {now}, of at most {most}"))
            );
        }
        assert_eq!(
            complaint(&CRATE, exceptions([0, 0, 0])).as_deref(),
            Some(
                "s: fewer exceptions than its ceilings: lower them to 0 upward, 0 folders in circles, 0 files in large \
                 circles in xtask/src/arrows/layers.rs"
            )
        );
    }

    #[test]
    fn folders_in_folders_are_folders() {
        let arrows = [
            arrow("s/low/a.rs", "s/low/in/b.rs"),
            arrow("s/low/in/b.rs", "s/low/a.rs"),
        ];
        let found = folders(&CRATE, &arrows);
        assert_eq!(circles::of(&found), [["low", "low/in"]]);
    }
}
