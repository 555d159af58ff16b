//! The kinds of difference that a comparison finds, and their exit codes.

use serde::Serialize;

use crate::compare::side_by_side;
use crate::model::failure::{DIFFERENCE, OTHER_PROGRAM, OTHER_STATE, SKIPPED};
use crate::model::saved::Saved;
use crate::model::words;
use crate::sheet::Sheet;

/// A kind of difference, with its exit code. The kinds are in ascending order of weight, because a difference of a
/// later kind can be the cause of differences of earlier kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Kind {
    /// A count differs.
    Counts = DIFFERENCE,
    /// The program's memory is mapped differently at a mark, or its marks differ.
    State = OTHER_STATE,
    /// The program ended differently, or its output differs.
    Program = OTHER_PROGRAM,
    /// A second run on the same kernel differed from the first.
    Repetition = SKIPPED,
}

/// Returns the exit code of the weightiest of `kinds`, which are in the order of [`Kind`]; 0 if there are none.
pub fn code(kinds: &[Kind]) -> u8 {
    kinds.last().map_or(0, |kind| *kind as u8)
}

/// Returns one line for each way in which the program behaved differently in a column than in the first.
pub fn other_programs(columns: &[(String, &Saved)]) -> Vec<String> {
    let mut behaviours = columns
        .iter()
        .map(|(name, saved)| (name, saved.behaviour()));
    let Some((first_name, first)) = behaviours.next() else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for (name, other) in behaviours {
        if first.outcome != other.outcome {
            lines.push(format!(
                "the program: {}: {first_name}, {}: {name}",
                words::ending(first.outcome),
                words::ending(other.outcome)
            ));
        }
        for (what, one, other) in [
            ("standard output", first.output, other.output),
            ("standard error", first.errors, other.errors),
        ] {
            // A document of an earlier version does not contain the hash of the output.
            if one.zip(other).is_some_and(|(one, other)| one != other) {
                lines.push(format!("the program: {what} differs: {first_name}, {name}"));
            }
        }
    }
    lines
}

/// Returns every kind of difference between the columns, in the order of [`Kind`].
pub fn kinds(sheet: &Sheet, columns: &[(String, &Saved)]) -> Vec<Kind> {
    let all = [
        (Kind::Counts, sheet.differs()),
        (
            Kind::State,
            !side_by_side::differing_states(sheet).is_empty(),
        ),
        (Kind::Program, !other_programs(columns).is_empty()),
        (
            Kind::Repetition,
            columns
                .iter()
                .any(|(_, saved)| saved.behaviour().repeats == Some(false)),
        ),
    ];
    let found = all.into_iter().filter(|(_, is)| *is);
    found.map(|(kind, _)| kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::comparison;
    use crate::compare::schema::document;
    use crate::model::kernel_run::Document;
    use crate::model::memwright_run::Ending;

    #[test]
    fn each_kind_of_difference_has_a_code() {
        type Change = fn(&mut Document);
        let changes: [(&str, Change, &[Kind], u8); 9] = [
            ("nothing", |_| {}, &[], 0),
            (
                "a count",
                |one| one.run.as_mut().unwrap().other_interrupts += 1,
                &[Kind::Counts],
                1,
            ),
            (
                "page tables of the kernel",
                |one| {
                    let region = &mut one.regions.as_mut().unwrap()[0];
                    region.at_end.as_mut().unwrap().tables += 1;
                },
                &[Kind::Counts],
                1,
            ),
            (
                "page tables of the program",
                |one| {
                    let region = &mut one.regions.as_mut().unwrap()[0];
                    region.at_end.as_mut().unwrap().small_dirty += 1;
                },
                &[Kind::Counts, Kind::State],
                7,
            ),
            (
                "marks",
                |one| one.regions.as_mut().unwrap()[0].marks.passes += 1,
                &[Kind::Counts, Kind::State],
                7,
            ),
            (
                "the outcome",
                |one| one.outcome = Ending::Killed(11),
                &[Kind::Program],
                6,
            ),
            (
                "the output",
                |one| one.output_sha256 = Some("11".to_owned()),
                &[Kind::Program],
                6,
            ),
            (
                "an output that is not told",
                |one| one.output_sha256 = None,
                &[],
                0,
            ),
            (
                "everything",
                |one| {
                    one.repeats = Some(false);
                    one.errors_sha256 = Some("11".to_owned());
                    one.regions.as_mut().unwrap()[0].marks.passes += 1;
                },
                &[Kind::Counts, Kind::State, Kind::Program, Kind::Repetition],
                4,
            ),
        ];
        for (what, change, expected, exit) in changes {
            let mut first = document();
            first.repeats = Some(true);
            let mut other = first.clone();
            change(&mut other);
            let [first, other] = [first, other].map(|one| Saved::Kernel(Box::new(one)));
            let columns = [("a".to_owned(), &first), ("b".to_owned(), &other)];
            let sheet = comparison::sheet(&columns).unwrap();
            let found = kinds(&sheet, &columns);
            assert_eq!((found.as_slice(), code(&found)), (expected, exit), "{what}");
        }
    }
}
