//! `cargo xtask house`: counts figures of the structure of the source and of the prose. Each has a ceiling and a goal.
//!
//! A figure above its ceiling fails the check. A figure below its ceiling fails, too, until the ceiling in [`CEILINGS`]
//! is lowered, so that an improvement cannot be undone unnoticed.

mod draw;
#[cfg(test)]
mod links;
mod measure;
mod prose;
#[cfg(test)]
mod rules;
mod source;

use anyhow::{Result, bail};

use self::measure::Measure;
pub use self::prose::prose;
pub use self::source::{Source, all as sources};

/// A figure with its ceiling and its goal.
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

/// The ceilings. They may only be lowered.
const CEILINGS: &[Ceiling] = &[
    ceiling(Measure::ContextSignatures, 0, 0),
    ceiling(Measure::KernelSignatures, 0, 0),
    ceiling(Measure::PlantedLines, 0, 0),
    ceiling(Measure::NumberedRules, 0, 0),
    ceiling(Measure::DialectLines, 0, 0),
    ceiling(Measure::LongFiles, 0, 0),
    ceiling(Measure::LongFunctions, 9, 10),
];

/// The number of paragraphs in a sample.
const SAMPLE: usize = 60;

/// Checks each figure, and prints it with its ceiling and its goal. With `--show NAME`, prints instead the places that
/// one figure counts. With `--draw`, prints a random sample of paragraphs, which depends on the commit.
///
/// # Errors
/// If a figure is not at its ceiling, if a file cannot be read, or if an argument is unknown.
pub fn run(arguments: &[&str]) -> Result<()> {
    let sources = sources()?;
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
    let mut measures = CEILINGS.iter().map(|ceiling| ceiling.measure);
    let Some(measure) = measures.find(|measure| measure.name() == name) else {
        let names: Vec<&str> = CEILINGS
            .iter()
            .map(|ceiling| ceiling.measure.name())
            .collect();
        bail!("no figure is named {name}: there are {}", names.join(", "));
    };
    for place in measure.places(sources) {
        println!("{place}");
    }
    Ok(())
}
