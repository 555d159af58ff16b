//! `cargo xtask house`: figures of the structure and of the prose that may only fall, beside their goals.
//!
//! A figure above its ceiling fails the check. So does one below it, until the ceiling in [`CEILINGS`] is lowered to it: what
//! was reached is kept.

mod draw;
#[cfg(test)]
mod links;
#[cfg(test)]
mod locks;
mod measure;
mod prose;
#[cfg(test)]
mod rules;
mod source;

use anyhow::{Result, bail};

use self::measure::Measure;
use self::source::Source;

/// A figure, and the most that it may be.
struct Ceiling {
    measure: Measure,
    most: usize,
    goal: usize,
}

const fn ceiling(measure: Measure, most: usize, goal: usize) -> Ceiling {
    Ceiling {
        measure,
        most,
        goal,
    }
}

/// The figures that may only fall.
const CEILINGS: &[Ceiling] = &[
    ceiling(Measure::ContextSignatures, 802, 0),
    ceiling(Measure::KernelSignatures, 233, 0),
    ceiling(Measure::PlantedLines, 0, 0),
    ceiling(Measure::NumberedRules, 0, 0),
    ceiling(Measure::DialectLines, 0, 0),
    ceiling(Measure::LongFiles, 0, 0),
    ceiling(Measure::LongFunctions, 21, 10),
];

/// The number of paragraphs in a sample.
const SAMPLE: usize = 60;

/// Prints each figure with its ceiling and its goal; with `--show NAME`, the places that one counts; with `--draw`, paragraphs
/// of the prose that the commit chooses, for a reader who did not write them.
///
/// # Errors
/// A figure that is not at its ceiling; a file that cannot be read; arguments that are not known.
pub fn run(arguments: &[&str]) -> Result<()> {
    let sources = source::all()?;
    match arguments {
        [] => check(&sources),
        ["--show", name] => show(&sources, name),
        ["--draw"] => {
            for item in draw::draw(&sources, &source::commit()?, SAMPLE) {
                println!("{}\n    {}", item.place, item.text);
            }
            Ok(())
        }
        _ => bail!("house takes no argument, --show NAME or --draw"),
    }
}

fn check(sources: &[Source]) -> Result<()> {
    println!("{:<58} {:>6} {:>6} {:>6}", "", "now", "most", "goal");
    let mut wrong = Vec::new();
    for Ceiling {
        measure,
        most,
        goal,
    } in CEILINGS
    {
        let now = measure.places(sources).len();
        println!("{:<58} {now:>6} {most:>6} {goal:>6}", measure.title());
        if now > *most {
            wrong.push(format!(
                "{} rose from {most} to {now}: cargo xtask house --show {} prints them",
                measure.title(),
                measure.name()
            ));
        } else if now < *most {
            wrong.push(format!(
                "{} fell from {most} to {now}: lower its ceiling in xtask/src/house/mod.rs",
                measure.title()
            ));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}", wrong.join("\n"))
}

fn show(sources: &[Source], name: &str) -> Result<()> {
    let Some(measure) = Measure::ALL.iter().find(|measure| measure.name() == name) else {
        let names: Vec<&str> = Measure::ALL.iter().map(|measure| measure.name()).collect();
        bail!("no figure is named {name}: there are {}", names.join(", "));
    };
    for place in measure.places(sources) {
        println!("{place}");
    }
    Ok(())
}
