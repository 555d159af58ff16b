//! Renders profiles as folded stacks, one call chain per line, from which flame graphs are drawn.

use std::collections::BTreeMap;

use crate::model::profile::Profile;

/// Returns each call chain as `f;g;h`, with the number of instructions that its last function executed, without its
/// callees. Chains with no such instructions are omitted.
fn stacks(profile: &Profile) -> BTreeMap<String, u64> {
    let mut chains: Vec<String> = Vec::with_capacity(profile.calls.len());
    let mut stacks = BTreeMap::new();
    for call in &profile.calls {
        let name = &profile.functions[call.function as usize];
        let chain = match call.caller {
            Some(caller) => format!("{};{name}", chains[caller as usize]),
            None => name.clone(),
        };
        if call.instructions > 0 {
            *stacks.entry(chain.clone()).or_insert(0) += call.instructions;
        }
        chains.push(chain);
    }
    stacks
}

/// Returns one line `f;g;h COUNT` per call chain.
pub fn lines(profile: &Profile) -> Vec<String> {
    let stacks = stacks(profile).into_iter();
    stacks
        .map(|(chain, count)| format!("{chain} {count}"))
        .collect()
}

/// Returns one line `f;g;h BEFORE AFTER` per call chain of either profile.
pub fn lines_of_two(before: &Profile, after: &Profile) -> Vec<String> {
    let mut both: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (index, profile) in [before, after].into_iter().enumerate() {
        for (chain, count) in stacks(profile) {
            both.entry(chain).or_default()[index] = count;
        }
    }
    let both = both.into_iter();
    both.map(|(chain, [before, after])| format!("{chain} {before} {after}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::tests::profile;

    #[test]
    fn chains_are_lines() {
        let one = profile(&[
            (None, 0, 1),
            (Some(0), 1, 10),
            (Some(1), 0, 5),
            (None, 2, 0),
        ]);
        let other = profile(&[(None, 0, 1), (Some(0), 2, 7)]);
        assert_eq!(lines(&one), ["a 1", "a;b 10", "a;b;a 5"]);
        let expected = ["a 1 1", "a;b 10 0", "a;b;a 5 0", "a;c 0 7"];
        assert_eq!(lines_of_two(&one, &other), expected);
    }
}
