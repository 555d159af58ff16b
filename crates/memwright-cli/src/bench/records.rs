//! What an experiment's program prints: one record per measure.

use anyhow::{anyhow, bail};
use serde::Serialize;

/// One measure of one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// The case, for example "4 KiB, whole mapping".
    pub case: String,
    /// What was measured.
    pub measure: String,
    /// What its values count.
    pub unit: String,
    /// The least value, where there are many.
    pub minimum: Option<u64>,
    /// The average, or the only value.
    pub average: f64,
    /// The largest value, where there are many.
    pub maximum: Option<u64>,
}

/// Reads a program's output.
///
/// # Errors
/// A line that is no record, or no record at all where no note says what the kernel lacks.
pub fn parse(output: &str) -> anyhow::Result<Vec<Record>> {
    let (notes, lines): (Vec<&str>, Vec<&str>) =
        output.lines().partition(|line| line.starts_with("note\t"));
    let records: Vec<Record> = lines
        .into_iter()
        .map(|line| parse_line(line).ok_or_else(|| anyhow!("no record: {line:?}")))
        .collect::<Result<_, _>>()?;
    if records.is_empty() && notes.is_empty() {
        bail!("the program printed no record");
    }
    Ok(records)
}

/// What two runs do not have in common: case, measure, and both values.
pub fn differences(one: &[Record], other: &[Record]) -> Vec<String> {
    let names = |records: &[Record]| -> Vec<(String, String)> {
        let names = records
            .iter()
            .map(|record| (record.case.clone(), record.measure.clone()));
        names.collect()
    };
    if names(one) != names(other) {
        return vec!["other measures".to_owned()];
    }
    let pairs = one.iter().zip(other).filter(|(one, other)| one != other);
    pairs
        .map(|(one, other)| {
            format!(
                "{}: {}: {} and {}",
                one.case, one.measure, one.average, other.average
            )
        })
        .collect()
}

fn parse_line(line: &str) -> Option<Record> {
    let fields: Vec<&str> = line.split('\t').collect();
    let &["record", case, measure, unit, minimum, average, maximum] = fields.as_slice() else {
        return None;
    };
    let optional = |text: &str| match text {
        "" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(Record {
        case: case.to_owned(),
        measure: measure.to_owned(),
        unit: unit.to_owned(),
        minimum: optional(minimum)?,
        average: average
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite())?,
        maximum: optional(maximum)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let text = "record\ta\tb\tc\t1\t2.50\t4\nrecord\ta\te\tc\t\t1.00\t\n";
        let one = parse(text).unwrap();
        assert!(differences(&one, &one).is_empty());
        let other = parse(&text.replace("2.50", "2.75")).unwrap();
        assert_eq!(differences(&one, &other), ["a: b: 2.5 and 2.75"]);
        assert_eq!(differences(&one, &one[..1]), ["other measures"]);
    }

    #[test]
    fn records_parse() {
        let text =
            "record\tfork\tsmall\tinstructions\t10\t12.50\t20\nrecord\ta\tb\tratio\t\t1.00\t\n";
        let records = parse(text).unwrap();
        assert_eq!(
            (records[0].minimum, records[0].average, records[0].maximum),
            (Some(10), 12.5, Some(20))
        );
        assert_eq!((records[1].minimum, records[1].average), (None, 1.0));
        assert!(parse("note\tthis kernel has none\n").unwrap().is_empty());
        for bad in [
            "",
            "hello",
            "record\ta\tb\tc\t1\t2",
            "record\ta\tb\tc\tx\t2\t3",
            "record\ta\tb\tc\t1\tinf\t3",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
