//! `memwright compare`: runs one program on several kernels and compares their counts.

use std::collections::BTreeSet;

use anyhow::anyhow;

use crate::cmd::args::CompareArgs;
use crate::compare::comparison;
use crate::compare::functions::Side;
use crate::compare::{functions as difference, names};
use crate::host::output::{print, show};
use crate::host::taken::Taken;
use crate::lab::columns::{self, Groups};
use crate::lab::input::Input;
use crate::lab::laboratory::Laboratory;
use crate::model::failure::Failure;
use crate::model::kernel_run::Document;
use crate::model::region_names::{self, RegionNames};
use crate::model::saved::Saved;
use crate::render::outputs::{Outputs, Shown};
use crate::render::profile_outputs::ProfileOutputs;
use crate::sheet::Section;

/// Runs the program on each kernel and prints the counts. The exit code depends on the kind of difference.
///
/// # Errors
/// If the usage is wrong, if a tool is missing, or if a guest gives no result.
pub fn compare(args: &CompareArgs) -> Result<u8, Failure> {
    let run = &args.run;
    check_options(args).map_err(Failure::Usage)?;
    columns::fetch(&run.kernel, run.dry_run)?;
    let columns = columns::open(&run.kernel).map_err(Failure::Usage)?;
    let groups = Groups::of(&columns, &run.image_plan()).map_err(Failure::Usage)?;
    let laboratories = groups.open(&Input::default(), run.dry_run)?;
    let rows = regions_by_number(args, &laboratories).map_err(Failure::Usage)?;
    let guests = groups.guests(&columns, &laboratories);
    if run.dry_run {
        for (laboratory, image) in &guests {
            print(format!("{}\n", laboratory.line(image)).as_bytes())?;
        }
        return Ok(0);
    }
    let mut taken = Taken::default();
    for (laboratory, image) in &guests {
        taken.extend(laboratory.taken(image));
    }
    let outputs = Outputs::open(run.json.as_deref(), &run.formats, &mut taken)?;
    let profiles = ProfileOutputs::open(&run.profiles, &mut taken)?;
    let runs = guests[0].0.runs()?;
    let (mut documents, mut names, mut stacks) = (Vec::new(), Vec::new(), Vec::new());
    for measured in columns::measure(&guests, &runs)? {
        if documents.is_empty() {
            show(&measured.said.errors);
        }
        columns::say_ending(&measured.document, "");
        documents.push(measured.document);
        names.push(measured.names);
        stacks.push(measured.fault_stacks);
    }
    if let [first, .., last] = documents.as_slice() {
        write_profiles(&profiles, first, last)?;
        if let ([before, .., after], true) = (stacks.as_slice(), first.faults.is_some()) {
            let names = [first, last].map(|one| one.kernel.name.as_str());
            let command = first.arguments.join(" ");
            profiles.write_two_faults([before, after], names, &command)?;
        }
    }
    // Between Linux and Memwright, counting a function as its caller would combine unrelated functions. Without the
    // lists of names, no function is counted as its caller.
    if columns
        .iter()
        .any(|column| column.image.system != columns[0].image.system)
    {
        names.fill(None);
    }
    let functions = functions(args, &documents, &names);
    let saved = documents.into_iter().map(|document| {
        let name = document.kernel.name.clone();
        (name, Saved::Kernel(Box::new(document)))
    });
    let documents: Vec<(String, Saved)> = saved.collect();
    let columns: Vec<(String, &Saved)> = documents
        .iter()
        .map(|(name, saved)| (name.clone(), saved))
        .collect();
    let shown = Shown {
        all: args.shown.all,
        rows,
    };
    conclude("memwright compare", &columns, functions, &shown, &outputs)
}

/// Returns the patterns of `--rows`, in which the names that the programs give their regions are replaced by the
/// regions' numbers. Returns an error if no program gives a region the name in `--rows` or `--region`, or if programs
/// give it to different regions.
fn regions_by_number(
    args: &CompareArgs,
    laboratories: &[Laboratory<'_>],
) -> anyhow::Result<Vec<String>> {
    let programs: Vec<RegionNames> = laboratories.iter().map(|one| one.names().clone()).collect();
    let rows = region_names::all_numbered(&args.shown.rows, &programs);
    if let Some(region) = &args.run.region {
        region_names::number(region, &programs)
            .map_err(|unknown| anyhow!("--region: {unknown}"))?;
    }
    rows.map_err(|unknown| anyhow!("--rows: {unknown}"))
}

/// Writes a comparison to the selected outputs, with additional sections after the counts, and returns its exit code.
///
/// # Errors
/// If the documents are of two kinds, if a pattern matches no row, or I/O errors of writing.
pub fn conclude(
    title: &str,
    columns: &[(String, &Saved)],
    sections: Vec<Section>,
    shown: &Shown,
    outputs: &Outputs,
) -> Result<u8, Failure> {
    let compared = comparison::compared(columns, &shown.rows, sections);
    let (sheet, document) = compared.map_err(Failure::Usage)?;
    outputs.present(title, &sheet, shown.all, &document)?;
    Ok(document.exit_code())
}

/// Writes the additional outputs of profiles, if functions were counted.
fn write_profiles(
    outputs: &ProfileOutputs,
    first: &Document,
    last: &Document,
) -> anyhow::Result<()> {
    let (Some(before), Some(after)) = (&first.functions, &last.functions) else {
        return Ok(());
    };
    let names = [first, last].map(|one| one.kernel.name.as_str());
    outputs.write_two([before, after], names, &first.arguments.join(" "))
}

/// Returns the section about the kernels' functions, if it was requested.
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
    let order = args.run.order();
    let functions = difference::section(&sides, order, args.ungroup);
    let lines = difference::lines(&sides, order);
    [functions].into_iter().chain(lines).collect()
}

/// Returns an error if the options are invalid. Called before a kernel is fetched, so that wrong usage is reported at
/// once.
fn check_options(args: &CompareArgs) -> anyhow::Result<()> {
    if args.run.kernel.len() < 2 {
        return Err(anyhow!("compare takes two or more --kernel NAME=IMAGE"));
    }
    for pattern in &args.shown.rows {
        names::check(pattern).map_err(|unknown| anyhow!("--rows: {unknown}"))?;
    }
    Ok(())
}
