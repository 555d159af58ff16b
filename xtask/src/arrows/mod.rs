//! `cargo xtask arrows`: checks that modules refer only to modules below them, by `use` and by method call alike.
//!
//! Each crate has ceilings for its exceptions. A crate above a ceiling fails the check, which then prints every
//! exception. A crate below a ceiling fails, too, until the ceiling in `layers.rs` is lowered, so that an improvement
//! is never lost.

mod circles;
mod index;
mod layers;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, anyhow, bail};

use self::index::Arrow;
use self::layers::{CRATES, Crate, layer};

/// Checks every crate. With `--show SOURCE`, prints the exceptions of one crate instead, each with both of its places.
///
/// # Errors
/// A crate that is not at its ceilings; a module without a layer; arguments that are not known.
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
        let in_circles: usize = circles.iter().map(Vec::len).sum();
        println!(
            "{}: {between} references between modules, {} upward, {in_circles} folders in circles",
            one.source,
            upward.len(),
        );
        if shown == Some(one.source) || upward.len() > one.upward || in_circles > one.circles {
            for arrow in &upward {
                println!(
                    "{}:{} refers to {}:{}",
                    arrow.from.file, arrow.from.line, arrow.to.file, arrow.to.line
                );
            }
            for circle in &circles {
                println!("a circle of folders: {}", circle.join(", "));
            }
        }
        wrong.extend(complaint(one, upward.len(), in_circles));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}", wrong.join("\n"))
}

/// Returns a complaint if the exceptions of a crate are not exactly at its ceilings.
fn complaint(one: &Crate, upward: usize, in_circles: usize) -> Option<String> {
    let now = (upward, in_circles);
    let most = (one.upward, one.circles);
    if now == most {
        return None;
    }
    let source = one.source;
    if now.0 > most.0 || now.1 > most.1 {
        return Some(format!(
            "{source}: {} references upward, {} folders in circles, of at most {} and {}",
            now.0, now.1, most.0, most.1
        ));
    }
    Some(format!(
        "{source}: fewer exceptions than its ceilings: lower them to {} and {} in xtask/src/arrows/layers.rs",
        now.0, now.1
    ))
}

/// Returns the references of a crate to later modules, and the total number of references between its modules.
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
    let folder = |file: &str| {
        let inside = file.strip_prefix(one.source)?.strip_prefix('/')?;
        let (folder, _) = inside.rsplit_once('/')?;
        Some(folder.to_owned())
    };
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for arrow in arrows {
        if let (Some(from), Some(to)) = (folder(&arrow.from.file), folder(&arrow.to.file))
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
        assert_eq!(complaint(&CRATE, 1, 0), None);
        for (upward, in_circles, expected) in [
            (
                2,
                0,
                "s: 2 references upward, 0 folders in circles, of at most 1 and 0",
            ),
            (
                0,
                2,
                "s: 0 references upward, 2 folders in circles, of at most 1 and 0",
            ),
            (
                0,
                0,
                "s: fewer exceptions than its ceilings: lower them to 0 and 0 in xtask/src/arrows/layers.rs",
            ),
        ] {
            assert_eq!(
                complaint(&CRATE, upward, in_circles).as_deref(),
                Some(expected)
            );
        }
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
