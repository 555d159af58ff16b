//! The invariants that must hold between two steps, checked without accessing any page.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{File, Lockstep, model_rights};
use crate::machine::TestMachine;
use crate::model::{Model, PAGE};
use crate::process::{Host, Process};
use crate::script::Scale;
use crate::terms::Rights;

impl<M: TestMachine> Lockstep<M> {
    /// Checks everything that must hold between two steps, without accessing any page.
    pub(super) fn check(&mut self) -> Result<(), String> {
        self.host.check_machine()?;
        self.check_zeroes()?;
        let numbers: Vec<usize> = self.processes.keys().copied().collect();
        for number in numbers {
            self.find_gone(number);
            self.find_copied(number);
            self.find_armed(number)?;
            self.find_speculated(number);
            self.spread_soft_dirty(number);
        }
        for (&number, process) in &self.processes {
            check_areas(&self.model, number, process)?;
            check_pages(&mut self.model, (&self.host, self.scale), number, process)?;
            self.check_tracking(number, process)?;
            process
                .space()
                .audit()
                .map_err(|error| format!("process {number}: audit: {error:?}"))?;
        }
        for file in &self.files {
            if let File::Noted(file) = file {
                if let Some(index) = file.check() {
                    return Err(format!("page {index} was written, and the file not told"));
                }
            }
        }
        self.check_frames()
    }
}

fn check_areas<M: TestMachine>(
    model: &Model,
    number: usize,
    process: &Process<M>,
) -> Result<(), String> {
    let mut found = Vec::new();
    process.space().areas(&mut |area| {
        let rights = model_rights(area.rights());
        found.extend(area.range().iter().map(|page| (page.number(), rights)));
    });
    let expected: Vec<_> = model.rights(number).collect();
    if found == expected {
        return Ok(());
    }
    let differs = expected
        .iter()
        .zip(&found)
        .find(|(expected, found)| expected != found);
    Err(format!(
        "process {number}: {} pages in areas, {} in the model, first difference {differs:?}",
        found.len(),
        expected.len()
    ))
}

/// Checks that no page-table entry permits more than the model does, and that every mapped page has the model's
/// contents.
fn check_pages<M: TestMachine>(
    model: &mut Model,
    (host, scale): (&Host<M>, Scale),
    number: usize,
    process: &Process<M>,
) -> Result<(), String> {
    let frames = host.frames();
    let expected: BTreeMap<u64, Rights> = model.rights(number).collect();
    let mut difference = Ok(());
    let table = process.space().table();
    host.machine()
        .translations(table, &mut |page, frame, rights| {
            let page = page.number();
            let name = scale.name(page);
            if difference.is_err() {
                return;
            }
            let Some(expected) = expected.get(&page).copied() else {
                difference = Err(format!("{name} has an entry and is not mapped"));
                return;
            };
            let mut contents = [0; PAGE];
            frames.read(frame, 0, &mut contents);
            let more = rights.read && !expected.any()
                || rights.write && !expected.write
                || rights.execute && !expected.execute
                || rights.write && model.refuses_stores(number, page)
                || rights.read && model.refuses_accesses(number, page);
            difference = if more {
                Err(format!("{name} gives {rights:?}, not {expected:?}"))
            } else if !model.may_be_present(number, page) {
                Err(format!(
                    "{name} is present beyond the end of its object"
                ))
            } else if !model.shows(number, page, 0, &contents) {
                let expected = model.bytes(number, page);
                let at = (0..PAGE).find(|&at| contents[at] != expected[at]);
                let at = at.unwrap_or(0);
                Err(format!(
                    "{name} is present, and byte {at} of {frame:?} is {:#x}, not {:#x}: a store that used a stale \
                     translation, or a frame that was not cleared or copied completely?",
                    contents[at], expected[at]
                ))
            } else {
                Ok(())
            };
        });
    difference.map_err(|difference| format!("process {number}: {difference}"))
}
