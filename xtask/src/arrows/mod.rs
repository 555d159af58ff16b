//! `cargo xtask arrows`: whether each folder refers only to folders below it, by `use` and by method call alike.

mod circles;
mod index;
mod layers;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, anyhow, bail};

use self::index::Arrow;
use self::layers::{CRATES, Crate, layer};

/// Checks every crate that has layers, prints each reference that goes up with both of its places, and each circle of
/// folders.
///
/// # Errors
/// A reference that goes up; a circle of folders; a folder without a layer.
pub fn run() -> Result<()> {
    let arrows = index::arrows()?;
    let mut wrong = 0;
    for one in CRATES {
        let (upward, between) = upward(one, &arrows)?;
        for arrow in &upward {
            println!(
                "{}:{} refers to {}:{}",
                arrow.from.file, arrow.from.line, arrow.to.file, arrow.to.line
            );
        }
        let circles = circles::of(&folders(one, &arrows));
        for circle in &circles {
            println!("a circle of folders: {}", circle.join(", "));
        }
        println!(
            "{}: {between} references between folders, {} upward, {} circles of folders",
            one.source,
            upward.len(),
            circles.len()
        );
        wrong += upward.len() + circles.len();
    }
    match wrong {
        0 => Ok(()),
        _ => bail!("references that go up, or in a circle: {wrong}"),
    }
}

/// The references of a crate that go to a folder above, and how many there are between folders.
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

/// Which folder of a crate refers to which, folders in folders apart.
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
        folders: &["low", "high"],
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
    fn folders_in_folders_are_folders() {
        let arrows = [
            arrow("s/low/a.rs", "s/low/in/b.rs"),
            arrow("s/low/in/b.rs", "s/low/a.rs"),
        ];
        let found = folders(&CRATE, &arrows);
        assert_eq!(circles::of(&found), [["low", "low/in"]]);
    }
}
