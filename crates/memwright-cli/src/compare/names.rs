//! The names of the rows of a run on a kernel image. They are those of its JSON document, which do not change between
//! versions.
//!
//! `run.user_faults.write` is a row of the complete run, and `region.1.user_faults.write` is the same row of region 1.

use crate::sheet::{UnknownRow, check_pattern};

use crate::model::counts::{Counts, ROWS};
use crate::model::region_names;
use crate::model::sent::Sent;
use crate::model::statistic::Pass;

/// The prefix of the names of the complete run's rows.
pub const RUN: &str = "run";

/// The name and the group of a row.
pub type Name = (&'static str, &'static str);

/// The names of the rows that [`Counts::rows`] returns, in the order of these rows.
pub const COUNTS: [Name; ROWS] = [
    ("user_faults.read", FAULTS),
    ("user_faults.write", FAULTS),
    ("user_faults.fetch", FAULTS),
    ("user_faults.write_protect", FAULTS),
    ("user_faults.refused", FAULTS),
    ("kernel_faults.read", FAULTS),
    ("kernel_faults.write", FAULTS),
    ("kernel_faults.fetch", FAULTS),
    ("kernel_faults.write_protect", FAULTS),
    ("kernel_faults.refused", FAULTS),
    ("full_flushes", "loads"),
    ("switches", "loads"),
    ("cr4_writes", "writes"),
    ("invlpg", INSTRUCTIONS),
    ("invpcid", INSTRUCTIONS),
    ("call_interrupts", INTERRUPTS),
    ("other_interrupts", INTERRUPTS),
    ("instructions.user", INSTRUCTIONS),
    ("instructions.kernel", INSTRUCTIONS),
    ("instructions.interrupts", INSTRUCTIONS),
];
const FAULTS: &str = "faults";
const INSTRUCTIONS: &str = "instructions";
const INTERRUPTS: &str = "interrupts";

/// The names of the rows that [`crate::model::region::Marks::rows`] returns, in the order of these rows.
pub const MARKS: [Name; 4] = [
    ("passes", "passes"),
    ("begun_again", MARK),
    ("not_begun", MARK),
    ("not_ended", MARK),
];
const MARK: &str = "marks";

/// The names of the rows that [`crate::model::page_tables::PageTables::rows`] returns, in the order of these rows.
pub const TABLES: [Name; 10] = [
    ("tables", "tables"),
    ("small_writable", PAGES),
    ("small_read_only", PAGES),
    ("small_dirty", PAGES),
    ("large_writable", PAGES),
    ("large_read_only", PAGES),
    ("large_dirty", PAGES),
    ("giant", PAGES),
    ("not_present", "entries"),
    ("vdso", PAGES),
];
const PAGES: &str = "pages";

/// Returns the prefix of the rows' names for the counts of the run on CPU `number`.
pub fn cpu(number: usize) -> String {
    format!("cpu.{number}")
}

/// Returns the name of the row of interprocessor interrupts with a sender, a receiver and a vector.
pub fn sent(one: &Sent) -> String {
    format!("sent.{}.{}.{:#x}", one.from, one.to, one.vector)
}

/// Returns whether a row of interprocessor interrupts has this name.
pub fn is_sent(name: &str) -> bool {
    sent_by(name).is_some()
}

/// Returns the interprocessor interrupts whose row has this name; `None` for other names.
fn sent_by(name: &str) -> Option<Sent> {
    let words: Vec<&str> = name.strip_prefix("sent.")?.split('.').collect();
    let [from, to, vector] = words[..] else {
        return None;
    };
    Some(Sent {
        from: from.parse().ok()?,
        to: to.parse().ok()?,
        vector: u8::from_str_radix(vector.strip_prefix("0x")?, 16).ok()?,
        count: 0,
    })
}

/// Returns the prefix of the names of a region's rows.
pub fn region(number: u16) -> String {
    format!("region.{number}")
}

/// Returns the prefix of the rows' names for the statistic `pass` over the passes of a region.
pub fn each(region: &str, pass: Pass) -> String {
    format!("{region}.each.{}", pass.name())
}

/// Returns the name of a row: the prefix `section` of the run or of a region, and the row's own name.
pub fn full(section: &str, name: &str) -> String {
    format!("{section}.{name}")
}

/// Returns the name and the group of every row that a run can have. Includes the rows of one CPU and of one region,
/// whose numbers are `in_cpu` and `in_region`.
fn known(in_cpu: usize, in_region: u16) -> Vec<(String, &'static str)> {
    let counts = || {
        let rows = Counts::default().rows().into_iter();
        rows.zip(COUNTS)
            .map(|((group, ..), (name, _))| (group, name))
    };
    let of = |section: &str, (group, name)| (full(section, name), group);
    let mut all: Vec<_> = counts().map(|row| of(RUN, row)).collect();
    all.extend(counts().map(|row| of(&cpu(in_cpu), row)));
    let section = region(in_region);
    all.extend(counts().map(|row| of(&section, row)));
    for pass in Pass::ALL {
        let section = each(&section, pass);
        all.extend(counts().map(|row| of(&section, row)));
    }
    all.extend(MARKS.map(|(name, _)| of(&section, (crate::compare::side_by_side::MARKS, name))));
    for (group, place, _) in crate::compare::side_by_side::PLACES {
        let section = full(&section, place);
        all.extend(TABLES.map(|(name, _)| of(&section, (group, name))));
    }
    all
}

/// Checks that a pattern matches the name of a row that a run can have. This can be a row of the run, of the region
/// that the pattern names, or of any region. [`region_names::numbered`] checks whether a region has the name that the
/// pattern contains.
///
/// # Errors
/// [`UnknownRow`], with similar names.
pub fn check(pattern: &str) -> Result<(), UnknownRow> {
    let by_number = region_names::named(pattern).map(|(_, rest)| full(&region(1), rest));
    let pattern = by_number.as_deref().unwrap_or(pattern);
    let number = |section: &str| {
        let rest = pattern.strip_prefix(section)?;
        rest.split('.').next()?.parse::<u16>().ok()
    };
    let in_cpu = number("cpu.").map_or(0, usize::from);
    let mut known = known(in_cpu, number("region.").unwrap_or(1));
    let usual = Sent {
        from: 0,
        to: 1,
        vector: 0xfb,
        count: 0,
    };
    let row = sent(&sent_by(pattern).unwrap_or(usual));
    known.push((row, crate::compare::side_by_side::SENT));
    check_pattern(
        pattern,
        known.iter().map(|(name, group)| (name.as_str(), *group)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::page_tables::PageTables;
    use crate::model::region::{Marks, Region};
    use serde_json::{Value, json};

    /// Returns the value with this name in a document.
    fn at(document: &Value, name: &str) -> u64 {
        let pointer = format!("/{}", name.replace('.', "/"));
        document.pointer(&pointer).unwrap().as_u64().unwrap()
    }

    /// Each row has a distinct value.
    #[test]
    fn names_are_those_of_the_json() {
        let faults = |from: u64| {
            json!({"read": from, "write": from + 1, "fetch": from + 2, "write_protect": from + 3,
                "refused": from + 4})
        };
        let document = json!({
            "user_faults": faults(10), "kernel_faults": faults(20), "full_flushes": 30, "switches": 31,
            "cr4_writes": 32, "invlpg": 33, "invpcid": 34, "call_interrupts": 35, "other_interrupts": 36,
            "instructions": {"user": 40, "kernel": 41, "interrupts": 42}
        });
        let counts: Counts = serde_json::from_value(document.clone()).unwrap();
        assert_eq!(counts.rows().len(), COUNTS.len());
        for ((name, _), (.., value)) in COUNTS.iter().zip(counts.rows()) {
            assert_eq!(Some(at(&document, name)), value, "{name}");
        }
        let pass = |from: u64| {
            json!({"user_faults": faults(from), "kernel_faults": faults(from),
            "call_interrupts": from, "other_interrupts": from})
        };
        let document = json!({"each": {"first": pass(1), "min": pass(100), "median": pass(200), "max": pass(300)}});
        let region = json!({"region": 1, "passes": 2, "counts": pass(0), "each": document["each"]});
        let read: Region = serde_json::from_value(region).unwrap();
        for pass in Pass::ALL {
            let name = full(&each("", pass), "user_faults.write");
            let counts = read.each.unwrap().of(pass);
            assert_eq!(
                at(&document, &name[1..]),
                counts.user_faults.write,
                "{name}"
            );
        }
        let document = json!({"passes": 1, "begun_again": 2, "not_begun": 3, "not_ended": 4});
        let marks: Marks = serde_json::from_value(document.clone()).unwrap();
        for ((name, _), (_, value)) in MARKS.iter().zip(marks.rows()) {
            assert_eq!(at(&document, name), value, "{name}");
        }
        let document = json!({"tables": 1, "small_writable": 2, "small_read_only": 3, "small_dirty": 4,
            "large_writable": 5, "large_read_only": 6, "large_dirty": 7, "giant": 8, "not_present": 9, "vdso": 10});
        let tables: PageTables = serde_json::from_value(document.clone()).unwrap();
        for ((name, _), row) in TABLES.iter().zip(tables.rows()) {
            assert_eq!(at(&document, name), row.value, "{name}");
        }
    }

    #[test]
    fn a_pattern_can_be_checked_before_a_run() {
        for pattern in [
            "run.instructions.kernel",
            "run.*",
            "region.7.user_faults.write",
            "region.*.invlpg",
            "region.7.each.max.user_faults.write",
            "region.toggle.each.max.user_faults.write",
            "region.*.each.median.*",
            "region.32000.at_end.small_dirty",
            "cpu.1.instructions.user",
            "cpu.*.invlpg",
            "sent.3.12.0x24",
            "sent.*",
            "Interprocessor interrupts",
            "Page faults",
            "Marks",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
        for (pattern, close) in [
            ("instructions.kernel", "run.instructions.kernel"),
            ("run.instructions.kernal", "run.instructions.kernel"),
            ("region.7.user_fault.write", "region.7.user_faults.write"),
            ("Page fault", "Page faults"),
            ("region.7.each.mean.invlpg", "region.7.each.median.invlpg"),
            ("cpu.1.instructions.usr", "cpu.1.instructions.user"),
            ("sent.0.1.251", "sent.0.1.0xfb"),
        ] {
            let unknown = check(pattern).unwrap_err();
            assert_eq!(unknown.close.first().map(String::as_str), Some(close));
        }
        assert!(check("run.passes").is_err() && check("region.x.pass").is_err());
        assert!(check("region.9x.passes").is_err() && check("region.x=.passes").is_err());
    }
}
