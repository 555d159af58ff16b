//! Renders profiles as folded stacks, one call chain per line, from which flame graphs are drawn.

use std::collections::BTreeMap;

use crate::model::faults::Stacks;
use crate::model::profile::Profile;

/// Returns each call chain as `f;g;h`, with the number of instructions that its last function itself executed, without
/// callees. Chains whose last function executed no instructions are omitted.
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
    lines_of(stacks(profile))
}

fn lines_of(stacks: BTreeMap<String, u64>) -> Vec<String> {
    let stacks = stacks.into_iter();
    stacks
        .map(|(chain, count)| format!("{chain} {count}"))
        .collect()
}

/// Returns the number of faults of each stack and kind, as `f;g;h;[KIND]`.
fn fault_chains(stacks: &Stacks) -> BTreeMap<String, u64> {
    let chains = stacks.iter().flat_map(|(frames, tally)| {
        let chain = frames.join(";");
        let kinds = tally.kinds.iter().filter(|(_, count)| **count > 0);
        kinds.map(move |(kind, count)| (format!("{chain};[{kind}]"), *count))
    });
    chains.collect()
}

/// Returns one line `f;g;h;[KIND] COUNT` per stack and kind of page fault.
pub fn lines_of_faults(stacks: &Stacks) -> Vec<String> {
    lines_of(fault_chains(stacks))
}

/// Returns one line `f;g;h;[KIND] BEFORE AFTER` per stack and kind of page fault of either kernel.
pub fn lines_of_two_faults(kernels: [&Stacks; 2]) -> Vec<String> {
    both(kernels.map(fault_chains))
}

/// Returns one line `f;g;h BEFORE AFTER` per call chain of either profile.
pub fn lines_of_two(before: &Profile, after: &Profile) -> Vec<String> {
    both([before, after].map(stacks))
}

fn both(kernels: [BTreeMap<String, u64>; 2]) -> Vec<String> {
    let mut both: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (index, stacks) in kernels.into_iter().enumerate() {
        for (chain, count) in stacks {
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
    use crate::model::faults::Tally;
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

    #[test]
    fn kinds_of_faults_are_frames() {
        let stacks = |counts: &[(&str, u64)]| {
            let kinds = counts
                .iter()
                .map(|(kind, count)| ((*kind).to_owned(), *count));
            let tally = Tally {
                kinds: kinds.collect(),
                flushes: None,
            };
            Stacks::from([(vec!["2 x".to_owned(), "main".to_owned()], tally)])
        };
        let (one, other) = (stacks(&[("cow", 3), ("file", 0)]), stacks(&[("file", 2)]));
        assert_eq!(lines_of_faults(&one), ["2 x;main;[cow] 3"]);
        assert_eq!(
            lines_of_two_faults([&one, &other]),
            ["2 x;main;[cow] 3 0", "2 x;main;[file] 0 2"]
        );
    }
}
