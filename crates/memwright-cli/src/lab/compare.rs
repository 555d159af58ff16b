//! `memwright compare`: one program on several kernels, side by side.

use std::collections::BTreeSet;

use anyhow::anyhow;

use super::document::Document;
use super::image::Image;
use super::laboratory::Laboratory;
use super::output::{self, Comparison, Outputs};
use crate::args::CompareArgs;
use crate::failure::{DIFFERENCE, Failure};
use crate::output::print;
use crate::profile;
use crate::profile::difference::{self, Side};
use crate::profile::table::Order;
use crate::session::{say, show};
use crate::sheet::{self, Section};
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
    let profiles = profile::Outputs::open(&run.profiles, &mut taken)?;
    let runs = laboratory.runs()?;
    let (mut documents, mut names) = (Vec::new(), Vec::new());
    for image in &images {
        output::progress(&format!("{} on {}", run.command[0].display(), image.name));
        let measured = laboratory.measure(image, &runs)?;
        let (first, said) = (documents.is_empty(), &measured.said);
        if first {
            show(&said.errors);
        }
        if said.outcome != memwright_linux::channel::Outcome::Exited(0) {
            let ending = crate::table::ending(Some(measured.document.outcome));
            say(&format!("on {} the program {ending}", image.name));
        }
        documents.push(measured.document);
        names.push(measured.names);
    }
    let mut sheet = output::sheet(&documents);
    sheet.sections.extend(functions(args, &documents, &names));
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
    if let [first, .., last] = documents.as_slice() {
        write_profiles(&profiles, first, last)?;
    }
    let document = Comparison::new(&documents, &sheet);
    let same = !document.differs && document.repeats;
    outputs.write("memwright compare", std::slice::from_ref(&sheet), &document)?;
    Ok(if same { 0 } else { DIFFERENCE })
}

/// Writes the files of profiles, where functions were counted.
fn write_profiles(
    outputs: &profile::Outputs,
    first: &Document,
    last: &Document,
) -> anyhow::Result<()> {
    let (Some(before), Some(after)) = (&first.functions, &last.functions) else {
        return Ok(());
    };
    let names = [first, last].map(|one| one.kernel.name.as_str());
    outputs.write_two([before, after], names, &first.arguments.join(" "))
}

/// The functions of the kernels, where they were asked for.
fn functions(
    args: &CompareArgs,
    documents: &[Document],
    names: &[Option<BTreeSet<String>>],
) -> Vec<Section> {
    let sides = documents.iter().zip(names).map(|(document, names)| {
        let profile = document.functions.as_ref()?;
        Some(Side {
            profile,
            names: names.as_ref(),
        })
    });
    let Some(sides) = sides.collect::<Option<Vec<Side<'_>>>>() else {
        return Vec::new();
    };
    let order = Order::of(&args.run);
    let functions = difference::section(&sides, order, args.ungroup);
    let lines = difference::lines(&sides, order);
    [functions].into_iter().chain(lines).collect()
}
