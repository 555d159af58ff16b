//! The functions of several kernels side by side.

use std::collections::{BTreeMap, BTreeSet};

use super::matching::{self, Folded};
use super::table::Order;
use super::tree::Profile;
use crate::sheet::{Row, Section, Value};

/// What a kernel executed, and the names of all its functions.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// What it executed.
    pub profile: &'a Profile,
    /// The names in its source of the functions that it has, executed or not; `None` where inlined functions are there too.
    pub names: Option<&'a BTreeSet<String>>,
}

/// A function of every kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Compared {
    name: String,
    counts: Vec<u64>,
    /// Functions that are part of it here, and not everywhere functions of their own.
    parts: Vec<(String, Vec<u64>)>,
}

impl Compared {
    /// The largest difference from the first kernel.
    fn change(&self) -> u64 {
        let first = self.counts.first().copied().unwrap_or(0);
        let differences = self.counts.iter().map(|count| count.abs_diff(first));
        differences.max().unwrap_or(0)
    }
}

/// The rows of functions, largest change first; with `ungroup`, functions that not every kernel has stand below the one
/// that they are counted with.
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
    let row = |title: String, counts: &[u64]| row("functions", group, title, counts);
    let mut rows = Vec::new();
    for one in shown {
        let parts = match one.parts.len() {
            0 => String::new(),
            count => format!(" (with {count} more)"),
        };
        rows.push(row(format!("{}{parts}", one.name), &one.counts));
        if ungroup && !one.parts.is_empty() {
            let own = own_counts(one);
            rows.push(row(format!("  {}", one.name), &own));
            let parts = one.parts.iter();
            rows.extend(parts.map(|(name, counts)| row(format!("  {name}"), counts)));
        }
    }
    if !order.children {
        let rest = sum(&others, sides.len());
        rows.push(row(format!("({} other functions)", others.len()), &rest));
    }
    rows.push(row("(total)".to_owned(), &totals));
    let title = match sides.first().and_then(|side| side.profile.region) {
        Some(region) => format!("instructions of the kernel by function, region {region}"),
        None => "instructions of the kernel by function, run".to_owned(),
    };
    Section {
        title,
        remark: String::new(),
        is_ranked: true,
        rows,
    }
}

/// The counts of a function without those that are counted with it.
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

/// A side's profile in which all functions are those that every other kernel has.
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

/// The rows of lines, where they were counted: those that differ, largest change first. No two versions have the same
/// numbers of lines, so that what moved is in two rows.
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
            let row = row("lines", function, place.to_owned(), &counts);
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

fn row(kind: &str, group: &str, title: String, counts: &[u64]) -> Row {
    Row {
        name: format!("{kind}.{group}.{}", title.trim()),
        group: group.to_owned(),
        title,
        unit: "instructions".to_owned(),
        statistic: None,
        is_state: false,
        cells: counts
            .iter()
            .map(|count| Some(Value::Count(*count)))
            .collect(),
    }
}
