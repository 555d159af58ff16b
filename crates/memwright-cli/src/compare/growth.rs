//! Finds operations that cost more, or whose cost grows faster, on the first kernel of a growth experiment than on
//! another.

use crate::model::records::{Found, Record};

/// The name of the measure with the exponent of growth: the cost of an operation grows with this power of the size.
const EXPONENT: &str = "exponent";

/// The difference between two exponents above which the growth counts as faster.
const STEEPER: f64 = 0.05;

/// Compares the first column with each other column, operation by operation. Returns one line if an operation costs
/// more in the first column at some size, and one line if its cost grows faster there. Also returns one line if only
/// the other column has an exponent, because the first column then did not measure every size. Returns no lines for
/// experiments without exponents.
pub fn marks(columns: &[(String, Vec<Record>)]) -> Vec<String> {
    let Some(((ours, own), others)) = columns.split_first() else {
        return Vec::new();
    };
    let of_growth = own.iter().filter(|record| record.measure == EXPONENT);
    let pairs = of_growth.flat_map(|end| others.iter().map(move |other| (end, other)));
    let mut lines = Vec::new();
    for (end, (name, records)) in pairs {
        let sizes = own
            .iter()
            .filter(|one| one.case == end.case && one.measure != EXPONENT);
        let above: Vec<String> = sizes
            .filter_map(|one| {
                let ratio = value(one)? / of(records, one)?;
                (ratio > 1.0).then(|| format!("{} {ratio:.2} times", one.measure))
            })
            .collect();
        if !above.is_empty() {
            lines.push(format!("ABOVE {name}: {}: {}", end.case, above.join(", ")));
        }
        let exponents = value(end).zip(of(records, end));
        if let Some((one, theirs)) = exponents.filter(|(one, theirs)| *one > theirs + STEEPER) {
            lines.push(format!(
                "STEEPER on {ours} than on {name}: {}: exponent {one:.2}, not {theirs:.2}",
                end.case
            ));
        }
    }
    for (name, records) in others {
        let of_growth = records.iter().filter(|record| record.measure == EXPONENT);
        let missing = of_growth.filter(|end| of(own, end).is_none());
        lines.extend(missing.map(|end| {
            let case = &end.case;
            format!("INCOMPLETE on {ours}, but not on {name}: {case}")
        }));
    }
    lines
}

/// Returns the value that `records` contain for the case and measure of `record`.
fn of(records: &[Record], record: &Record) -> Option<f64> {
    let mut same = records
        .iter()
        .filter(|one| one.case == record.case && one.measure == record.measure);
    same.find_map(value)
}

/// Returns the value of a record; `None` if the record is a series.
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
    fn what_is_steeper_or_above_or_missing_is_marked() {
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
            record("c", EXPONENT, 0.0),
        ];
        let columns = [("memwright".to_owned(), own), ("linux".to_owned(), other)];
        assert_eq!(
            marks(&columns),
            [
                "ABOVE linux: a: 99 areas 1.50 times",
                "STEEPER on memwright than on linux: a: exponent 1.00, not 0.50",
                "INCOMPLETE on memwright, but not on linux: c",
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
