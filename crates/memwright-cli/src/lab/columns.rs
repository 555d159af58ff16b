//! Runs the columns of a comparison: one program on the kernel image of each column.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread;

use anyhow::anyhow;

use crate::host::output::say;
use crate::host::progress::Stage;
use crate::lab::column::{self, Column};
use crate::lab::input::Input;
use crate::lab::laboratory::{Laboratory, Measured};
use crate::linux::fetch;
use crate::model::change::Change;
use crate::model::failure::Failure;
use crate::model::image::DEBIAN;
use crate::model::image::{Image, System};
use crate::model::kernel_run::Document;
use crate::model::memwright_run::Ending;
use crate::model::plan::ImagePlan;
use crate::model::words::ending;
use crate::qemu::runs::Runs;

/// Fetches the kernels of Debian's archive that columns name and that are not stored yet. A dry run fetches nothing.
///
/// # Errors
/// If a kernel cannot be fetched or stored.
pub fn fetch(texts: &[String], dry_run: bool) -> Result<(), Failure> {
    let images = texts.iter().filter_map(|text| column::image_of(text));
    for image in images.filter(|image| image.starts_with(DEBIAN) && !dry_run) {
        fetch::obtain(image)?;
    }
    Ok(())
}

/// Opens columns, and checks that their names are unique.
///
/// # Errors
/// If a column cannot be opened, or if two columns have the same name.
pub fn open(texts: &[String]) -> anyhow::Result<Vec<Column>> {
    let columns = texts.iter().map(|text| Column::open(text));
    let columns: Vec<Column> = columns.collect::<anyhow::Result<_>>()?;
    check_names(&columns)?;
    Ok(columns)
}

/// Checks that each column has a unique name.
///
/// # Errors
/// If two columns have the same name.
pub fn check_names(columns: &[Column]) -> anyhow::Result<()> {
    for (index, column) in columns.iter().enumerate() {
        let name = &column.image.name;
        let mut before = columns[..index].iter();
        if before.any(|other| other.image.name == *name) {
            return Err(anyhow!(
                "two kernels are called {name}; name one: --kernel NAME=IMAGE"
            ));
        }
    }
    Ok(())
}

/// The kind of kernel and the plan of columns that share a [`Laboratory`].
#[derive(Debug)]
struct Group<'a> {
    system: System,
    changes: &'a [Change],
    plan: ImagePlan,
}

impl Group<'_> {
    fn has(&self, column: &Column) -> bool {
        self.system == column.image.system && *self.changes == column.changes
    }
}

/// The plans of several columns. Columns with the same changes and the same kind of kernel share a plan.
#[derive(Debug)]
pub struct Groups<'a>(Vec<Group<'a>>);

impl<'a> Groups<'a> {
    /// Returns the plans of the columns. Columns with the same changes and the same kind of kernel share a plan. With
    /// `--keep`, each plan has its own subfolder.
    ///
    /// # Errors
    /// If an option rejects the value of a change.
    pub fn of(columns: &'a [Column], plan: &ImagePlan) -> anyhow::Result<Self> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for column in columns {
            if !groups.iter().any(|group| group.has(column)) {
                groups.push(Group {
                    system: column.image.system,
                    changes: &column.changes,
                    plan: column.plan(plan)?,
                });
            }
        }
        if groups.len() > 1 {
            for (number, group) in groups.iter_mut().enumerate() {
                let folder = |keep: PathBuf| keep.join((number + 1).to_string());
                group.plan.care.keep = group.plan.care.keep.take().map(folder);
            }
        }
        Ok(Self(groups))
    }

    /// Opens a laboratory for each plan.
    ///
    /// # Errors
    /// The errors of [`Laboratory::open`].
    pub fn open(&self, input: &Input, dry_run: bool) -> Result<Vec<Laboratory<'_>>, Failure> {
        let mut laboratories = Vec::new();
        for group in &self.0 {
            let laboratory = Laboratory::open(&group.plan, input, group.system, dry_run)?;
            laboratories.push(laboratory);
        }
        Ok(laboratories)
    }

    /// Returns the laboratory and the image of each column.
    pub fn guests<'l, 'p>(
        &self,
        columns: &'l [Column],
        laboratories: &'l [Laboratory<'p>],
    ) -> Vec<(&'l Laboratory<'p>, &'l Image)> {
        let guest = |column: &'l Column| {
            let group = self.0.iter().position(|group| group.has(column));
            Some((laboratories.get(group?)?, &column.image))
        };
        columns.iter().filter_map(guest).collect()
    }
}

/// Runs the program on each image, with as many guests in parallel as the host has cores. Returns the results in the
/// order of the images.
///
/// # Errors
/// If a guest gives no result.
pub fn measure(
    guests: &[(&Laboratory<'_>, &Image)],
    runs: &Runs,
) -> Result<Vec<Measured>, Failure> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let at_once = guests
        .first()
        .map_or(1, |(first, _)| cores / first.guests_of_an_image());
    let mut all = Vec::new();
    for some in guests.chunks(at_once.max(1)) {
        let one = |(laboratory, image): (&Laboratory<'_>, &Image)| -> Result<Measured, Failure> {
            let stage = Stage::begin(&laboratory.heading(image));
            let measured = laboratory.measure(image, runs)?;
            stage.done();
            Ok(measured)
        };
        let results: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = some
                .iter()
                .map(|guest| scope.spawn(move || one(*guest)))
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

/// Unless the exit code was 0, prints how the program ended on a kernel, because the program may not have done all of
/// its work. `place` identifies the run among several.
pub fn say_ending(document: &Document, place: &str) {
    match document.outcome {
        Ending::Exited(0) => {}
        Ending::Exited(_) | Ending::Killed(_) | Ending::NotStarted(_) | Ending::TripleFault {} => {
            let place = match place {
                "" => String::new(),
                place => format!("{place}: "),
            };
            let ending = ending(Some(document.outcome));
            let kernel = &document.kernel.name;
            match document.program {
                Some(_) => say(&format!("{place}on {kernel} the program {ending}")),
                None => say(&format!("{place}{kernel} {ending}")),
            }
        }
    }
}
