//! Finds the cycles of a graph of folders or files.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the strongly connected components that contain a cycle, each with its nodes in alphabetical order. `leads`
/// maps each node to the nodes to which it refers.
pub fn of(leads: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = leads
        .keys()
        .map(|from| (from.as_str(), reached(leads, from)))
        .collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for (from, all) in &reached {
        if !all.contains(from) || circles.iter().flatten().any(|known| known == from) {
            continue;
        }
        let leads_back = |other: &&&str| {
            let back = reached.get(**other);
            back.is_some_and(|back| back.contains(from))
        };
        let circle = all.iter().filter(leads_back);
        circles.push(circle.map(|one| (*one).to_owned()).collect());
    }
    circles
}

/// Returns the nodes that can be reached from the node `from`.
fn reached<'a>(leads: &'a BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<&str> = vec![from];
    while let Some(folder) = waiting.pop() {
        for next in leads.get(folder).into_iter().flatten() {
            if found.insert(next.as_str()) {
                waiting.push(next);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_and_lines_are_not() {
        let graph = |arrows: &[(&str, &str)]| {
            let mut leads: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for (from, to) in arrows {
                let folder = leads.entry((*from).to_owned()).or_default();
                folder.insert((*to).to_owned());
            }
            leads
        };
        assert!(of(&graph(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
        let two = graph(&[
            ("a", "b"),
            ("b", "c"),
            ("c", "a"),
            ("c", "d"),
            ("d", "e"),
            ("e", "d"),
        ]);
        assert_eq!(of(&two), [vec!["a", "b", "c"], vec!["d", "e"]]);
    }
}
