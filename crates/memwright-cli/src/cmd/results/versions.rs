//! The plans in folders of results. Workers with different tools, kernels or programs write different plans.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail};
use serde_json::Value;

use crate::host::output::say;
use crate::host::results::{Listing, Results};
use crate::model::cell_plan::CellPlan;

/// The number of digits of a hash in messages.
const SHORT: usize = 12;
/// The maximum number of differences between two plans that a message lists.
const MOST_DIFFERENCES: usize = 5;

/// The plans of folders, by their hashes.
pub struct Plans(BTreeMap<String, CellPlan>);

/// Why no plan was chosen.
#[derive(Debug, PartialEq, Eq)]
pub enum NotChosen {
    /// There is no plan whose hash begins with the text of `--only`.
    Unknown(String),
    /// Several plans match; the value is their number.
    Several(usize),
}

impl std::fmt::Display for NotChosen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(only) => write!(formatter, "--only {only}: no folder has such a plan"),
            Self::Several(count) => write!(
                formatter,
                "not comparable: the results are of {count} benches or versions; --only HASH reports one of them"
            ),
        }
    }
}

impl Plans {
    /// Reads the plans of folders. Prints which of them are damaged.
    ///
    /// # Errors
    /// If no plan can be read.
    pub fn read(folders: &[(Results, Listing)]) -> anyhow::Result<Self> {
        let mut plans = BTreeMap::new();
        let hashes = folders.iter().flat_map(|(folder, listing)| {
            let hashes = listing.plans.iter();
            hashes.map(move |hash| (folder, hash))
        });
        for (folder, hash) in hashes {
            if plans.contains_key(hash) {
                continue;
            }
            let text = folder.read_plan(hash);
            match text.and_then(|text| CellPlan::parse(&text)) {
                Ok(plan) => {
                    plans.insert(hash.clone(), plan);
                }
                Err(error) => say(&format!("cut short or damaged, and not counted: {error:#}")),
            }
        }
        if plans.is_empty() {
            bail!("no folder has a plan that can be read");
        }
        Ok(Self(plans))
    }

    /// Returns the only plan, or the one whose hash begins with `only`.
    ///
    /// # Errors
    /// See [`NotChosen`].
    pub fn choose(&self, only: Option<&str>) -> Result<&CellPlan, NotChosen> {
        let wanted = only.unwrap_or_default();
        let mut fitting = self.0.iter().filter(|(hash, _)| hash.starts_with(wanted));
        match (fitting.next(), fitting.count()) {
            (None, _) => Err(NotChosen::Unknown(wanted.to_owned())),
            (Some((_, plan)), 0) => Ok(plan),
            (Some(_), others) => Err(NotChosen::Several(others + 1)),
        }
    }

    /// Returns a line for each plan: its hash, the number of its cells that have results, and the values that differ
    /// from the first plan.
    pub fn lines(&self, folders: &[(Results, Listing)]) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut first = None;
        for (hash, plan) in &self.0 {
            let cells = plan.cells();
            let is_there = |address: &String| {
                let mut listings = folders.iter().map(|(_, listing)| listing);
                listings.any(|listing| listing.results.contains_key(address))
            };
            let there = cells.iter().filter(|cell| is_there(&cell.address)).count();
            let value = serde_json::to_value(plan)?;
            let differs = match &first {
                None => String::new(),
                Some(first) => format!("; differs in {}", differing(first, &value).join(", ")),
            };
            let short = hash
                .get(..SHORT)
                .ok_or_else(|| anyhow!("a hash is short"))?;
            lines.push(format!("{short}: {there} of {} runs{differs}", cells.len()));
            first = first.or(Some(value));
        }
        Ok(lines)
    }
}

/// Returns the places at which two values differ, such as `tool.sha256`: at most [`MOST_DIFFERENCES`], and the number
/// of others.
fn differing(one: &Value, other: &Value) -> Vec<String> {
    let mut places = Vec::new();
    collect(one, other, "", &mut places);
    let more = places.len().saturating_sub(MOST_DIFFERENCES);
    places.truncate(MOST_DIFFERENCES);
    if more > 0 {
        places.push(format!("{more} others"));
    }
    places
}

fn collect(one: &Value, other: &Value, place: &str, places: &mut Vec<String>) {
    let within = |name: &str| match place {
        "" => name.to_owned(),
        place => format!("{place}.{name}"),
    };
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let more = other.keys().filter(|name| !one.contains_key(*name));
            for name in one.keys().chain(more) {
                let [one, other] = [one, other].map(|all| all.get(name).unwrap_or(&Value::Null));
                collect(one, other, &within(name), places);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                collect(one, other, &within(&index.to_string()), places);
            }
        }
        (one, other) if one != other => places.push(place.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_have_places() {
        let plan = json!({"tool": {"sha256": "a", "version": "1"}, "rows": ["x"], "list": [1, 2]});
        for (other, expected) in [
            (plan.clone(), vec![]),
            (
                json!({"tool": {"sha256": "b", "version": "1"}, "rows": [], "list": [1, 3]}),
                vec!["tool.sha256", "rows", "list.1"],
            ),
            (
                json!({"tool": {"sha256": "a"}, "rows": ["x"], "list": [1, 2], "more": 1}),
                vec!["tool.version", "more"],
            ),
        ] {
            assert_eq!(differing(&plan, &other), expected);
        }
        let many: Vec<u32> = (0..9).collect();
        let none = vec![99; 9];
        let places = differing(&json!(many), &json!(none));
        assert_eq!(places, ["0", "1", "2", "3", "4", "4 others"]);
    }
}
