//! Page faults by their causes, as a section of a sheet.

use std::collections::BTreeMap;

use crate::model::faults::Faults;
use crate::sheet::{NOT_MEASURED, Row, Section, Value};

/// Returns one row per cause, with one cell for each column. The rows are sorted by the largest count. Returns `None`
/// unless every column counts faults by the same kind of cause.
pub fn section(columns: &[Option<&Faults>]) -> Option<Section> {
    let columns: Vec<&Faults> = columns.iter().copied().collect::<Option<_>>()?;
    let by = columns.first()?.by;
    if columns.iter().any(|one| one.by != by) {
        return None;
    }
    let mut labels: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (index, column) in columns.iter().enumerate() {
        for row in &column.rows {
            let counts = labels.entry(row.label());
            counts.or_insert_with(|| vec![0; columns.len()])[index] += row.faults;
        }
    }
    let mut rows: Vec<(String, Vec<u64>)> = labels.into_iter().collect();
    rows.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.iter().copied().max()));
    let totals = columns.iter().map(|one| one.total).collect();
    rows.push(("(total)".to_owned(), totals));
    let name = by.name();
    let rows = rows.into_iter().map(|(label, counts)| Row {
        name: format!("faults.{name}.{label}"),
        group: name.to_owned(),
        title: label,
        unit: "faults".to_owned(),
        statistic: None,
        is_state: false,
        absent: NOT_MEASURED,
        cells: counts
            .into_iter()
            .map(|count| Some(Value::Count(count)))
            .collect(),
    });
    Some(Section {
        title: format!("page faults by {name}"),
        remark: String::new(),
        is_ranked: true,
        rows: rows.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::faults::By;
    use crate::model::faults::tests::cause;

    #[test]
    fn rows_of_several_kernels_are_side_by_side() {
        let faults = |by, counts: &[(&str, u64)]| Faults {
            by,
            total: counts.iter().map(|(_, count)| count).sum(),
            rows: counts
                .iter()
                .map(|(name, count)| cause(name, "cow", *count))
                .collect(),
            notes: Vec::new(),
        };
        let one = faults(By::Symbol, &[("a", 3), ("b", 2)]);
        let two = faults(By::Symbol, &[("c", 9), ("a", 1)]);
        let found = section(&[Some(&one), Some(&two)]).unwrap();
        let rows: Vec<_> = found
            .rows
            .iter()
            .map(|row| (&*row.name, row.cells.clone()))
            .collect();
        let cells = |counts: [u64; 2]| counts.map(|count| Some(Value::Count(count))).to_vec();
        assert_eq!(
            rows,
            [
                ("faults.symbol.c", cells([0, 9])),
                ("faults.symbol.a", cells([3, 1])),
                ("faults.symbol.b", cells([2, 0])),
                ("faults.symbol.(total)", cells([5, 10])),
            ]
        );
        let other = faults(By::Area, &[]);
        for columns in [&[Some(&one), Some(&other)][..], &[Some(&one), None], &[]] {
            assert_eq!(section(columns), None);
        }
    }
}
