//! Where the first column of an experiment on growth is above another one, or grows faster.

use crate::model::records::{Found, Record};

/// The measure of a record that has the exponent of a growth.
const EXPONENT: &str = "exponent";

/// The difference of two exponents from which one is steeper.
const STEEPER: f64 = 0.05;

/// Returns a line for each operation that grows faster in the first column than in another one, and for each size at
/// which it costs more there. Returns none for experiments without exponents.
pub fn marks(columns: &[(String, Vec<Record>)]) -> Vec<String> {
    let Some(((ours, own), others)) = columns.split_first() else {
        return Vec::new();
    };
    if !own.iter().any(|record| record.measure == EXPONENT) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    for record in own {
        for (other, records) in others {
            let same = |one: &&Record| one.case == record.case && one.measure == record.measure;
            let theirs = records.iter().find(same).and_then(value);
            let (Some(one), Some(theirs)) = (value(record), theirs) else {
                continue;
            };
            let Record { case, measure, .. } = record;
            if measure == EXPONENT {
                if one > theirs + STEEPER {
                    lines.push(format!(
                        "STEEPER on {ours} than on {other}: {case}: exponent {one:.2}, not {theirs:.2}"
                    ));
                }
            } else if one > theirs {
                let ratio = one / theirs;
                lines.push(format!(
                    "ABOVE {other} on {ours}: {case}, {measure}: {ratio:.2} times its cost"
                ));
            }
        }
    }
    lines
}

/// Returns the value of a record that has one.
fn value(record: &Record) -> Option<f64> {
    match record.found {
        Found::Value { value } => Some(value),
        Found::Series { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(case: &str, measure: &str, value: f64) -> Record {
        Record {
            case: case.into(),
            measure: measure.into(),
            unit: "instructions".into(),
            found: Found::Value { value },
        }
    }

    #[test]
    fn what_is_steeper_or_above_is_marked() {
        let own = vec![
            record("a", "10 areas", 5.0),
            record("a", "99 areas", 60.0),
            record("a", EXPONENT, 1.0),
            record("b", "10 areas", 5.0),
            record("b", EXPONENT, 0.02),
        ];
        let other = vec![
            record("a", "10 areas", 10.0),
            record("a", "99 areas", 40.0),
            record("a", EXPONENT, 0.5),
            record("b", "10 areas", 5.0),
            record("b", EXPONENT, 0.0),
        ];
        let columns = [("memwright".to_owned(), own), ("linux".to_owned(), other)];
        assert_eq!(
            marks(&columns),
            [
                "ABOVE linux on memwright: a, 99 areas: 1.50 times its cost",
                "STEEPER on memwright than on linux: a: exponent 1.00, not 0.50",
            ]
        );
        assert!(marks(&columns[..1]).is_empty());
    }

    #[test]
    fn other_experiments_have_no_marks() {
        let column = |cost| (String::new(), vec![record("a", "one", cost)]);
        assert!(marks(&[column(2.0), column(1.0)]).is_empty());
    }
}
