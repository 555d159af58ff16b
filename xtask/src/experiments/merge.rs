//! Merges new measurements of Memwright's columns with Linux's published columns.

use anyhow::{Result, ensure};

use super::figures::{Figures, NOT_MEASURED, Row, Table};

/// The prefix of the note that names the program of all columns. `QEMU` is the prefix of the notes on the version of
/// the emulator.
const PROGRAM: &str = "program ";
const QEMU: &str = "QEMU ";
/// The suffix of the note on a version of QEMU that only Linux's kept columns used.
const OF_LINUX: &str = " (Linux's columns)";
/// The suffix of the note that the figures of a run repeat. `DIFFERS` is a part of the note on a column whose two runs
/// differ.
const REPEATS: &str = "repeats: second runs gave the same figures";
const DIFFERS: &str = "DOES NOT REPEAT: ";

/// Returns the new figures, plus the old columns that were not measured again.
///
/// # Errors
/// If the program has changed, because all columns must be of the same program.
pub fn merge(old: &Figures, new: &Figures) -> Result<Figures> {
    let (one, other) = (old.notes_of(PROGRAM), new.notes_of(PROGRAM));
    ensure!(
        one == other,
        "the program was {}, and is {}: Linux's columns have to be measured again too",
        one.join(", "),
        other.join(", ")
    );
    let kept: Vec<&str> = old
        .columns()
        .into_iter()
        .filter(|column| !new.columns().contains(column))
        .collect();
    let empty = Table::default();
    let tables = new.tables.iter().map(|table| {
        let mut tables = old.tables.iter();
        let same = tables.find(|other| other.title == table.title);
        with_columns(table, same.unwrap_or(&empty), &kept)
    });
    Ok(Figures {
        heading: new.heading.clone(),
        tables: tables.collect(),
        notes: notes(old, new, &kept),
    })
}

/// Returns the new table with the columns `kept` of the old table added, including rows that only these columns have.
fn with_columns(new: &Table, old: &Table, kept: &[&str]) -> Table {
    let cells_of = |row: Option<&Row>| -> Vec<String> {
        let cell = |column: &&str| {
            let place = old.column(column)?;
            row?.cells.get(place).cloned()
        };
        let cells = kept.iter().map(cell);
        cells
            .map(|cell| cell.unwrap_or_else(|| NOT_MEASURED.to_owned()))
            .collect()
    };
    let mut rows: Vec<Row> = new
        .rows
        .iter()
        .map(|row| Row {
            name: row.name.clone(),
            cells: [row.cells.clone(), cells_of(old.row(&row.name))].concat(),
        })
        .collect();
    for (place, row) in old.rows.iter().enumerate() {
        let cells = cells_of(Some(row));
        let is_there = rows.iter().any(|other| other.name == row.name);
        if is_there || cells.iter().all(|cell| cell == NOT_MEASURED) {
            continue;
        }
        // Insert the row after the row that preceded it in the old table.
        let before = old.rows[..place].last().map(|row| &row.name);
        let after = rows.iter().position(|row| Some(&row.name) == before);
        let ours = vec![NOT_MEASURED.to_owned(); new.columns.len()];
        let row = Row {
            name: row.name.clone(),
            cells: [ours, cells].concat(),
        };
        rows.insert(after.map_or(0, |place| place + 1), row);
    }
    let kept = kept.iter().map(|column| (*column).to_owned());
    Table {
        title: new.title.clone(),
        columns: new.columns.iter().cloned().chain(kept).collect(),
        rows,
    }
}

/// Returns the new notes, and the old notes about the kept columns, in the order of the bench: whether the runs repeat,
/// the kernels, QEMU, the program.
fn notes(old: &Figures, new: &Figures, kept: &[&str]) -> Vec<String> {
    let is_of = |note: &&String, form: &dyn Fn(&str) -> String, begins: bool| {
        kept.iter().any(|column| {
            let words = form(column);
            if begins {
                note.starts_with(&words)
            } else {
                note.contains(&words)
            }
        })
    };
    let differing: Vec<String> = old
        .notes
        .iter()
        .filter(|note| is_of(note, &|column| format!("{DIFFERS}{column}: "), false))
        .cloned()
        .collect();
    let kernels = old
        .notes
        .iter()
        .filter(|note| is_of(note, &|column| format!("{column}: "), true));
    // Drop the note that a run repeats if a kept column of that run does not repeat.
    let contradicted = |note: &str| {
        note.strip_suffix(REPEATS).is_some_and(|place| {
            let line = format!("{place}{DIFFERS}");
            differing.iter().any(|note| note.starts_with(&line))
        })
    };
    let new_notes = new.notes.iter().filter(|note| !contradicted(note));
    let mut notes: Vec<(u8, String)> = new_notes
        .chain(&differing)
        .chain(kernels)
        .cloned()
        .chain(emulators(old, new))
        .map(|note| (rank(&note), note))
        .collect();
    // The sort is stable, so notes on Memwright stay before notes on Linux.
    notes.sort_by_key(|(rank, _)| *rank);
    notes.into_iter().map(|(_, note)| note).collect()
}

/// Returns the notes on the version of QEMU that measured the kept columns, if another version measured the new
/// columns.
fn emulators(old: &Figures, new: &Figures) -> Vec<String> {
    let all = old.notes_of(QEMU);
    let marked: Vec<&str> = all
        .iter()
        .filter_map(|line| line.strip_suffix(OF_LINUX))
        .collect();
    let linux = if marked.is_empty() { all } else { marked };
    if linux == new.notes_of(QEMU) {
        return Vec::new();
    }
    let line = |line: &&str| format!("{QEMU}{line}{OF_LINUX}");
    linux.iter().map(line).collect()
}

fn rank(note: &str) -> u8 {
    if note.contains(REPEATS) || note.contains(DIFFERS) {
        0
    } else if note.starts_with(QEMU) {
        2
    } else if note.starts_with(PROGRAM) {
        3
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::EXAMPLE;
    use super::*;

    /// Returns the example without Linux's column and without the row on tables.
    fn ours() -> String {
        let mut text = String::new();
        for line in EXAMPLE.lines() {
            if line.starts_with('|') && !line.starts_with("|---") {
                let cells: Vec<&str> = line.rsplitn(3, " | ").collect();
                if line.contains("tables") {
                    continue;
                }
                text.push_str(&format!("{} | {} |\n", cells[2], cells[1]));
            } else if line.starts_with("|---") {
                text.push_str("|---|---|---|---:|---:|\n");
            } else if !line.contains("debian") {
                text.push_str(&format!("{line}\n"));
            }
        }
        text
    }

    #[test]
    fn columns_that_are_not_measured_again_stay() {
        let old = Figures::parse(EXAMPLE).unwrap();
        let new = Figures::parse(&ours()).unwrap();
        assert_eq!(new.columns(), ["memwright", "memwright tlb=gather"]);
        assert_eq!(merge(&old, &new).unwrap().markdown(), EXAMPLE);
        let moved = ours().replace("1,010", "990").replace("aa", "ee");
        let merged = merge(&old, &Figures::parse(&moved).unwrap()).unwrap();
        let expected = EXAMPLE.replace("1,010", "990").replace("aa", "ee");
        assert_eq!(merged.markdown(), expected);
    }

    #[test]
    fn a_run_of_which_a_kept_column_did_not_repeat_does_not_repeat() {
        let old = Figures::parse(EXAMPLE).unwrap();
        let says = format!("{}- two: {REPEATS}\n", ours());
        let merged = merge(&old, &Figures::parse(&says).unwrap()).unwrap();
        assert_eq!(merged.markdown(), EXAMPLE);
    }

    #[test]
    fn one_table_is_of_one_program() {
        let old = Figures::parse(EXAMPLE).unwrap();
        let new = Figures::parse(&ours().replace("sha256 dd", "sha256 d0")).unwrap();
        let error = merge(&old, &new).unwrap_err().to_string();
        assert!(error.contains("(sha256 dd), and is (sha256 d0)"), "{error}");
    }

    #[test]
    fn another_qemu_is_named_beside_that_of_the_columns_that_stay() {
        let old = Figures::parse(EXAMPLE).unwrap();
        let with = |version: &str| Figures::parse(&ours().replace("7.2.22", version)).unwrap();
        let newer = merge(&old, &with("10.0.2")).unwrap();
        assert_eq!(
            newer.notes_of(QEMU),
            ["10.0.2 (sha256 cc)", "7.2.22 (sha256 cc) (Linux's columns)"]
        );
        let again = merge(&newer, &with("10.0.3")).unwrap();
        assert_eq!(
            again.notes_of(QEMU),
            ["10.0.3 (sha256 cc)", "7.2.22 (sha256 cc) (Linux's columns)"]
        );
        assert_eq!(merge(&again, &with("7.2.22")).unwrap(), old);
    }
}
