//! `memwright compare`: one program on several kernels, side by side.

use std::num::NonZero;
use std::thread;

use anyhow::anyhow;

use super::image::Image;
use super::laboratory::{Laboratory, Measured};
use super::output::{self, Comparison, Outputs};
use super::runs::Runs;
use crate::args::CompareArgs;
use crate::failure::{DIFFERENCE, Failure};
use crate::output::print;
use crate::session::{say, show};
use crate::sheet;
use crate::size::in_mebibytes;

/// Runs the program on each kernel and prints what they counted; 1 where that differs, or where a second run of one was
/// another.
///
/// # Errors
/// Usage; something is missing; a guest that gives no result.
pub fn compare(args: &CompareArgs) -> Result<u8, Failure> {
    let run = &args.run;
    if run.kernel.len() < 2 {
        return Err(Failure::Usage(anyhow!(
            "compare takes two or more --kernel NAME=IMAGE"
        )));
    }
    let images = run.kernel.iter().map(|text| Image::open(text));
    let images: Vec<Image> = images
        .collect::<anyhow::Result<_>>()
        .map_err(Failure::Usage)?;
    for (index, image) in images.iter().enumerate() {
        if images[..index].iter().any(|other| other.name == image.name) {
            return Err(Failure::Usage(anyhow!(
                "two kernels are called {}; name one: --kernel NAME=IMAGE",
                image.name
            )));
        }
    }
    let laboratory = Laboratory::open(run)?;
    if run.dry_run {
        for image in &images {
            print(format!("{}\n", laboratory.line(image)).as_bytes())?;
        }
        return Ok(0);
    }
    let mut taken = laboratory.taken(&images);
    let outputs = Outputs::open(run.json.as_deref(), &args.formats, &mut taken)?;
    let runs = laboratory.runs()?;
    let mut documents = Vec::new();
    for (image, measured) in images.iter().zip(measure(&laboratory, &images, &runs)?) {
        let (first, said) = (documents.is_empty(), &measured.said);
        if first {
            show(&said.errors);
        }
        if said.outcome != memwright_linux::channel::Outcome::Exited(0) {
            let ending = crate::table::ending(Some(measured.document.outcome));
            say(&format!("on {} the program {ending}", image.name));
        }
        documents.push(measured.document);
    }
    let mut sheet = output::sheet(&documents);
    let common = &documents[0];
    sheet.notes.push(format!(
        "QEMU {}, {} of memory, {}; {} sha256 {}",
        common.qemu.version,
        in_mebibytes(common.memory),
        crate::table::cpus(common.cpus),
        common.program.path,
        common.program.sha256
    ));
    if !outputs.on_output() {
        print(sheet::text(&sheet).as_bytes())?;
    }
    let document = Comparison::new(&documents, &sheet);
    let same = !document.differs && document.repeats;
    outputs.write("memwright compare", std::slice::from_ref(&sheet), &document)?;
    Ok(if same { 0 } else { DIFFERENCE })
}

/// Runs the program on each image, as many at once as there are cores for, and returns what came of it in their order.
fn measure(
    laboratory: &Laboratory<'_>,
    images: &[Image],
    runs: &Runs,
) -> Result<Vec<Measured>, Failure> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let at_once = (cores / laboratory.guests_of_an_image()).max(1);
    let mut all = Vec::new();
    for some in images.chunks(at_once) {
        let one = |image| {
            output::progress(&laboratory.heading(image));
            laboratory.measure(image, runs)
        };
        let results: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = some
                .iter()
                .map(|image| scope.spawn(move || one(image)))
                .collect();
            let panicked = |_| Err(anyhow!("a run panicked").into());
            let join =
                |thread: thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(panicked);
            threads.into_iter().map(join).collect()
        });
        for result in results {
            all.push(result?);
        }
    }
    Ok(all)
}
