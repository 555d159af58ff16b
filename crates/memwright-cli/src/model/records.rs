//! The output of an experiment's program: one record per measure.

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize, Serializer};

use crate::model::statistic::Statistic;

/// The result of one measure in one case of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The case, for example "4 KiB, whole mapping".
    pub case: String,
    /// The name of the measure.
    pub measure: String,
    /// The unit of its values.
    pub unit: String,
    /// The value, or the statistics of several.
    #[serde(flatten)]
    pub found: Found,
}

/// The result of a measure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Found {
    /// A single measured value.
    Value {
        /// The value.
        #[serde(serialize_with = "plain")]
        value: f64,
    },
    /// The statistics of several values. For a ratio of two series, each statistic is the ratio of the same statistic
    /// of the two series.
    Series {
        /// The minimum.
        #[serde(serialize_with = "plain")]
        minimum: f64,
        /// The median. For a long series, it is the median of values that are evenly spaced in the series.
        #[serde(serialize_with = "plain")]
        median: f64,
        /// The arithmetic mean.
        #[serde(serialize_with = "plain")]
        mean: f64,
        /// The maximum.
        #[serde(serialize_with = "plain")]
        maximum: f64,
    },
}

impl Found {
    /// Returns the statistics that tables print for this result.
    pub fn statistics(&self) -> &'static [Statistic] {
        match self {
            Self::Value { .. } => &[Statistic::Value],
            Self::Series { .. } => &[Statistic::Minimum, Statistic::Median, Statistic::Mean],
        }
    }

    /// Returns the value of a statistic, or `None` if the result does not contain it.
    pub fn get(&self, wanted: Statistic) -> Option<f64> {
        match (*self, wanted) {
            (Self::Value { value }, Statistic::Value) => Some(value),
            (Self::Series { minimum, .. }, Statistic::Minimum) => Some(minimum),
            (Self::Series { median, .. }, Statistic::Median) => Some(median),
            (Self::Series { mean, .. }, Statistic::Mean) => Some(mean),
            (Self::Value { .. }, Statistic::Minimum | Statistic::Median | Statistic::Mean)
            | (Self::Series { .. }, Statistic::Value)
            | (Self::Value { .. } | Self::Series { .. }, Statistic::Pass(_)) => None,
        }
    }
}

/// Serializes a whole number without a decimal point.
fn plain<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    // Every integer up to this one is represented exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        return serializer.serialize_i64(*value as i64);
    }
    serializer.serialize_f64(*value)
}

/// Parses a program's output.
///
/// # Errors
/// If a line is neither a record nor a note, or if there are no lines. A note states what the kernel lacks.
pub fn parse(output: &str) -> anyhow::Result<Vec<Record>> {
    let (notes, lines): (Vec<&str>, Vec<&str>) =
        output.lines().partition(|line| line.starts_with("note\t"));
    let records: Vec<Record> = lines
        .into_iter()
        .map(|line| parse_line(line).ok_or_else(|| anyhow!("not a record: {line:?}")))
        .collect::<Result<_, _>>()?;
    if records.is_empty() && notes.is_empty() {
        bail!("the program printed no record");
    }
    Ok(records)
}

/// Returns one line for each record that differs between two runs, with its case, measure, statistic and both values.
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
    pairs.map(|(one, other)| difference(one, other)).collect()
}

/// Describes the first statistic that differs. The maximum is not one of [`Found::statistics`] and is compared last.
fn difference(one: &Record, other: &Record) -> String {
    let place = format!("{}: {}", one.case, one.measure);
    for statistic in one.found.statistics() {
        let values = (one.found.get(*statistic), other.found.get(*statistic));
        if let (Some(first), Some(second)) = values
            && first != second
        {
            return match statistic {
                Statistic::Value => format!("{place}: {first} and {second}"),
                Statistic::Minimum | Statistic::Median | Statistic::Mean | Statistic::Pass(_) => {
                    format!("{place}, {}: {first} and {second}", statistic.name())
                }
            };
        }
    }
    match (one.found, other.found) {
        (
            Found::Series { maximum: first, .. },
            Found::Series {
                maximum: second, ..
            },
        ) => {
            format!("{place}, maximum: {first} and {second}")
        }
        (Found::Value { .. }, _) | (_, Found::Value { .. }) => {
            format!("{place}: other units or statistics")
        }
    }
}

fn parse_line(line: &str) -> Option<Record> {
    let fields: Vec<&str> = line.split('\t').collect();
    let number = |text: &str| text.parse().ok().filter(|value: &f64| value.is_finite());
    let (names, found) = match fields.as_slice() {
        ["value", names @ .., value] => (
            names,
            Found::Value {
                value: number(value)?,
            },
        ),
        ["series", names @ .., minimum, median, mean, maximum] => (
            names,
            Found::Series {
                minimum: number(minimum)?,
                median: number(median)?,
                mean: number(mean)?,
                maximum: number(maximum)?,
            },
        ),
        _ => return None,
    };
    let [case, measure, unit] = names else {
        return None;
    };
    // A value without a unit is meaningless.
    if unit.is_empty() {
        return None;
    }
    Some(Record {
        case: (*case).to_owned(),
        measure: (*measure).to_owned(),
        unit: (*unit).to_owned(),
        found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let text = "series\ta\tb\tc\t1\t2\t2.50\t4\nvalue\ta\te\tc\t1.00\n";
        let one = parse(text).unwrap();
        assert!(differences(&one, &one).is_empty());
        for (old, new, line) in [
            ("2.50", "2.75", "a: b, mean: 2.5 and 2.75"),
            ("\t2\t", "\t3\t", "a: b, median: 2 and 3"),
            ("\t4", "\t5", "a: b, maximum: 4 and 5"),
            ("1.00", "1.50", "a: e: 1 and 1.5"),
        ] {
            let other = parse(&text.replace(old, new)).unwrap();
            assert_eq!(differences(&one, &other), [line]);
        }
        assert_eq!(differences(&one, &one[..1]), ["other measures"]);
    }

    #[test]
    fn records_parse() {
        let text =
            "series\tfork\tsmall\tinstructions\t10\t12\t12.50\t20\nvalue\ta\tb\tratio\t1.00\n";
        let records = parse(text).unwrap();
        let expected = Found::Series {
            minimum: 10.0,
            median: 12.0,
            mean: 12.5,
            maximum: 20.0,
        };
        assert_eq!(
            (records[0].found, records[0].unit.as_str()),
            (expected, "instructions")
        );
        assert_eq!(records[1].found, Found::Value { value: 1.0 });
        assert!(parse("note\tthis kernel has none\n").unwrap().is_empty());
        for bad in [
            "",
            "hello",
            "value\ta\tb\tc",
            "value\ta\tb\t\t1",
            "value\ta\tb\tc\t1\t2",
            "series\ta\tb\tc\t1\t2\t3",
            "series\ta\tb\tc\tx\t2\t3\t4",
            "series\ta\tb\tc\t1\t2\tinf\t4",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn whole_numbers_are_written_without_a_fraction() {
        let json = |value| serde_json::to_string(&Found::Value { value }).unwrap();
        assert_eq!(json(897.0), r#"{"value":897}"#);
        assert_eq!(json(-2.5), r#"{"value":-2.5}"#);
    }
}
