//! `memwright compare`: one program on several kernels, side by side.

use anyhow::{Context, anyhow};

use super::comparison::Comparison;
use super::image::Image;
use super::laboratory::Laboratory;
use super::names;
use super::saved::{self, Saved};
use super::verdict;
use crate::args::CompareArgs;
use crate::failure::Failure;
use crate::output::print;
use crate::outputs::{Outputs, progress};
use crate::session::{say, show};
use crate::sheet;

/// Runs the program on each kernel and prints what they counted; the exit code says which kind of difference there is.
///
/// # Errors
/// Usage; something is missing; a guest that gives no result.
pub fn compare(args: &CompareArgs) -> Result<u8, Failure> {
    let run = &args.run;
    let images = images(args).map_err(Failure::Usage)?;
    let laboratory = Laboratory::open(run)?;
    if run.dry_run {
        for image in &images {
            print(format!("{}\n", laboratory.line(image)).as_bytes())?;
        }
        return Ok(0);
    }
    let mut taken = laboratory.taken(&images);
    let outputs = Outputs::open(run.json.as_deref(), &run.formats, &mut taken)?;
    let runs = laboratory.runs()?;
    let mut documents = Vec::new();
    for image in &images {
        progress(&format!("{} on {}", run.command[0].display(), image.name));
        let measured = laboratory.measure(image, &runs)?;
        let (first, said) = (documents.is_empty(), &measured.said);
        if first {
            show(&said.errors);
        }
        if said.outcome != memwright_linux::channel::Outcome::Exited(0) {
            let ending = crate::table::ending(Some(measured.document.outcome));
            say(&format!("on {} the program {ending}", image.name));
        }
        documents.push((
            image.name.clone(),
            Saved::Kernel(Box::new(measured.document)),
        ));
    }
    let columns: Vec<(String, &Saved)> = documents
        .iter()
        .map(|(name, saved)| (name.clone(), saved))
        .collect();
    conclude(
        "memwright compare",
        &columns,
        args.shown.all,
        &args.shown.rows,
        &outputs,
    )
}

/// Writes a comparison to wherever it is wanted, and returns its exit code.
///
/// # Errors
/// Documents of two kinds; a pattern that names no row; those of writing.
pub fn conclude(
    title: &str,
    columns: &[(String, &Saved)],
    all: bool,
    rows: &[String],
    outputs: &Outputs,
) -> Result<u8, Failure> {
    let sheet = saved::sheet(columns)
        .context("runs on Memwright and on kernel images have other rows")
        .map_err(Failure::Usage)?;
    let unknown = |unknown| Failure::Usage(anyhow!("--rows: {unknown}"));
    let mut sheet = sheet.select(rows).map_err(unknown)?;
    let document = Comparison::new(columns, &sheet);
    sheet
        .notes
        .splice(0..0, document.program_differs.iter().cloned());
    if !outputs.on_output() {
        print(sheet::text(&sheet, all).as_bytes())?;
    }
    outputs.write(title, std::slice::from_ref(&sheet), all, &document)?;
    Ok(verdict::code(&document.kinds))
}

/// The images, each under a name of its own, with what else can be said against the options before anything runs.
fn images(args: &CompareArgs) -> anyhow::Result<Vec<Image>> {
    if args.run.kernel.len() < 2 {
        return Err(anyhow!("compare takes two or more --kernel NAME=IMAGE"));
    }
    for pattern in &args.shown.rows {
        names::check(pattern).map_err(|unknown| anyhow!("--rows: {unknown}"))?;
    }
    let images = args.run.kernel.iter().map(|text| Image::open(text));
    let images: Vec<Image> = images.collect::<anyhow::Result<_>>()?;
    for (index, image) in images.iter().enumerate() {
        if images[..index].iter().any(|other| other.name == image.name) {
            return Err(anyhow!(
                "two kernels are called {}; name one: --kernel NAME=IMAGE",
                image.name
            ));
        }
    }
    Ok(images)
}
