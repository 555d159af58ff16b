//! Compares the functions of several kernels.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::matching::{self, Folded};
use crate::model::profile::{Order, Profile};
use crate::sheet::{Row, Section, Value};

/// A kernel's profile, and the names of all its functions.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The functions that the kernel executed.
    pub profile: &'a Profile,
    /// The source names of all functions of the kernel, including those that were not executed; `None` if the profile
    /// contains inlined functions.
    pub names: Option<&'a BTreeSet<String>>,
}

/// A function that is compared between kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Compared {
    name: String,
    counts: Vec<u64>,
    /// Functions that some kernel lacks, for example because its compiler inlined them. Their counts are included in
    /// this function's.
    parts: Vec<(String, Vec<u64>)>,
}

impl Compared {
    /// Returns the largest absolute difference between the first kernel's count and that of any other kernel.
    fn change(&self) -> u64 {
        let first = self.counts.first().copied().unwrap_or(0);
        let differences = self.counts.iter().map(|count| count.abs_diff(first));
        differences.max().unwrap_or(0)
    }
}

/// Returns one row per function, sorted by its largest change. With `ungroup`, the functions that some kernels lack are
/// listed below the function that includes their counts.
pub fn section(sides: &[Side<'_>], order: Order, ungroup: bool) -> Section {
    let mut compared = compared(sides, order);
    compared.sort_by_key(|one| (std::cmp::Reverse(one.change()), one.name.clone()));
    let totals: Vec<u64> = sides.iter().map(|side| side.profile.total).collect();
    let largest = totals.iter().copied().max().unwrap_or(0);
    let (shown, others): (Vec<_>, Vec<_>) = compared
        .iter()
        .filter(|one| one.counts.iter().any(|count| *count > 0))
        .partition(|one| one.change() > 0 && order.is_shown(one.change(), largest));
    let group = if order.children { "children" } else { "self" };
    let row = |name: &str, title: String, counts: &[u64]| {
        row(format!("functions.{group}.{name}"), group, title, counts)
    };
    let mut rows = Vec::new();
    for one in shown {
        let parts = match one.parts.len() {
            0 => String::new(),
            count => format!(" (with {count} more)"),
        };
        let name = &one.name;
        rows.push(row(name, format!("{name}{parts}"), &one.counts));
        // The instructions of a part's callees are not known, only its own. With `order.children`, parts are therefore
        // not listed.
        if ungroup && !order.children && !one.parts.is_empty() {
            let own = own_counts(one);
            rows.push(row(&format!("{name}.own"), format!("  {name}"), &own));
            rows.extend(
                one.parts.iter().map(|(part, counts)| {
                    row(&format!("{name}.{part}"), format!("  {part}"), counts)
                }),
            );
        }
    }
    if !order.children {
        let rest = sum(&others, sides.len());
        let title = format!("({} other functions)", others.len());
        rows.push(row("(others)", title, &rest));
    }
    rows.push(row("(total)", "(total)".to_owned(), &totals));
    let subject = sides.first().map(|side| side.profile.subject());
    let subject = subject.unwrap_or_default();
    Section {
        title: format!("instructions of the kernel by function, {subject}"),
        remark: String::new(),
        is_ranked: true,
        rows,
    }
}

/// Returns a function's counts without those of its parts.
fn own_counts(one: &Compared) -> Vec<u64> {
    let own = |(index, count): (usize, &u64)| {
        let parts: u64 = one.parts.iter().map(|(_, counts)| counts[index]).sum();
        count.saturating_sub(parts)
    };
    one.counts.iter().enumerate().map(own).collect()
}

fn sum(all: &[&Compared], columns: usize) -> Vec<u64> {
    let column = |index: usize| all.iter().map(|one| one.counts[index]).sum();
    (0..columns).map(column).collect()
}

fn compared(sides: &[Side<'_>], order: Order) -> Vec<Compared> {
    let mut found: BTreeMap<String, Compared> = BTreeMap::new();
    let columns = sides.len();
    for (index, side) in sides.iter().enumerate() {
        let (profile, folded) = folded(sides, side);
        for row in profile.rows() {
            let one = found.entry(row.name.clone()).or_insert_with(|| Compared {
                name: row.name.clone(),
                counts: vec![0; columns],
                parts: Vec::new(),
            });
            one.counts[index] = order.figure(&row);
        }
        for part in folded {
            let Some(one) = found.get_mut(&part.into) else {
                continue;
            };
            let known = one.parts.iter().position(|(name, _)| *name == part.from);
            let place = known.unwrap_or_else(|| {
                one.parts.push((part.from.clone(), vec![0; columns]));
                one.parts.len() - 1
            });
            one.parts[place].1[index] += part.instructions;
        }
    }
    found.into_values().collect()
}

/// Folds the functions of a kernel that any other kernel lacks into their callers. Returns the resulting profile, and
/// the folded functions.
fn folded(sides: &[Side<'_>], side: &Side<'_>) -> (Profile, Vec<Folded>) {
    let all: Option<Vec<&BTreeSet<String>>> = sides.iter().map(|side| side.names).collect();
    let common = match all {
        Some(all) => {
            let has = |name: &&String| all.iter().all(|names| names.contains(*name));
            let names = side.profile.functions.iter();
            names.filter(has).cloned().collect()
        }
        None => side.profile.functions.iter().cloned().collect(),
    };
    matching::fold(side.profile, &common)
}

/// Returns the source lines whose counts differ, sorted by their largest change; `None` if lines were not counted. If a
/// source line has different line numbers in two versions, it appears as two rows.
pub fn lines(sides: &[Side<'_>], order: Order) -> Option<Section> {
    let mut found: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for (index, side) in sides.iter().enumerate() {
        for line in &side.profile.lines {
            let key = (line.function.as_str(), line.place.as_str());
            let counts = found.entry(key).or_insert_with(|| vec![0; sides.len()]);
            counts[index] += line.instructions;
        }
    }
    let largest = sides.iter().map(|side| side.profile.total).max()?;
    let mut rows: Vec<(u64, Row)> = found
        .into_iter()
        .filter_map(|((function, place), counts)| {
            let change = counts.iter().map(|count| count.abs_diff(counts[0])).max()?;
            let name = format!("lines.{function}.{place}");
            let row = row(name, function, place.to_owned(), &counts);
            (change > 0 && order.is_shown(change, largest)).then_some((change, row))
        })
        .collect();
    rows.sort_by(|(one, row), (other, another)| {
        (&row.group, std::cmp::Reverse(one), &row.title).cmp(&(
            &another.group,
            std::cmp::Reverse(other),
            &another.title,
        ))
    });
    (!rows.is_empty()).then(|| Section {
        title: "instructions of the kernel by line".to_owned(),
        remark: String::new(),
        is_ranked: true,
        rows: rows.into_iter().map(|(_, row)| row).collect(),
    })
}

fn row(name: String, group: &str, title: String, counts: &[u64]) -> Row {
    Row {
        name,
        group: group.to_owned(),
        title,
        unit: "instructions".to_owned(),
        statistic: None,
        is_state: false,
        absent: crate::sheet::NOT_MEASURED,
        cells: counts
            .iter()
            .map(|count| Some(Value::Count(*count)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::tests::profile;

    #[test]
    fn functions_that_one_kernel_lacks_are_parts_of_others() {
        // Only the second kernel has `b` as a separate function.
        let before = profile(&[(None, 0, 100), (Some(0), 2, 7)]);
        let after = profile(&[(None, 0, 30), (Some(0), 1, 80), (Some(1), 2, 7)]);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (old, new): (BTreeSet<String>, BTreeSet<String>) =
            (names(&["a", "c"]), names(&["a", "b", "c"]));
        let sides = [(&before, &old), (&after, &new)].map(|(profile, names)| Side {
            profile,
            names: Some(names),
        });
        let rows = |order, ungroup| -> Vec<(String, String)> {
            let section = section(&sides, order, ungroup);
            let texts = |row: &Row| (row.name.clone(), format!("{:?}", row.cells));
            section.rows.iter().map(texts).collect()
        };
        let order = |children| Order {
            children,
            percent_limit: 0.0,
        };
        let row = |name: &str, before, after| {
            let cells = [before, after].map(|count| Some(Value::Count(count)));
            (name.to_owned(), format!("{:?}", cells.to_vec()))
        };
        let expected = [
            row("functions.self.a", 100, 110),
            row("functions.self.a.own", 100, 30),
            row("functions.self.a.b", 0, 80),
            row("functions.self.(others)", 7, 7),
            row("functions.self.(total)", 107, 117),
        ];
        assert_eq!(rows(order(false), true), expected);
        let expected = [
            row("functions.children.a", 107, 117),
            row("functions.children.(total)", 107, 117),
        ];
        assert_eq!(rows(order(true), true), expected);
        // Without lists of names, no function is counted as a part of another.
        let sides = sides.map(|side| Side {
            names: None,
            ..side
        });
        let all = section(&sides, order(false), false).rows;
        let titles: Vec<&str> = all.iter().map(|row| row.title.as_str()).collect();
        assert_eq!(titles, ["b", "a", "(1 other functions)", "(total)"]);
    }
}
