//! Matches functions of two kernels that are the same function in the source.

use std::collections::BTreeSet;

use crate::model::profile::{Call, Profile};

/// Suffixes that compilers append to the name of a part or a variant of a function. A number can follow.
const SUFFIXES: [&str; 5] = ["isra", "constprop", "part", "cold", "llvm"];

/// Returns the name that a function has in the source: the symbol without suffixes of compilers.
pub fn source_name(symbol: &str) -> &str {
    let mut name = symbol;
    while let Some((before, last)) = name.rsplit_once('.') {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let stripped = if is_number(last) {
            match before.rsplit_once('.') {
                Some((rest, suffix)) if SUFFIXES.contains(&suffix) => rest,
                Some(_) | None => break,
            }
        } else if SUFFIXES.contains(&last) {
            before
        } else {
            break;
        };
        name = stripped;
    }
    name
}

/// Instructions of a function that another kernel lacks. They are counted as those of the function's caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folded {
    /// The caller whose count includes the instructions.
    pub into: String,
    /// The function that executed the instructions.
    pub from: String,
    /// The number of these instructions.
    pub instructions: u64,
}

/// The row with the instructions of all interrupts. They are in one row because the runs of two kernels never have the
/// same timer ticks.
pub const INTERRUPTS: &str = "[interrupts]";

/// Returns a profile in which a function that another kernel lacks is folded: its instructions are counted as those of
/// its caller. All interrupts are one function in this profile. Also returns the folded functions.
///
/// `known` contains the names of the other kernel's functions. A function without a caller is not changed.
pub fn fold(profile: &Profile, known: &BTreeSet<String>) -> (Profile, Vec<Folded>) {
    let lacks: Vec<bool> = profile
        .functions
        .iter()
        .map(|name| !name.starts_with('[') && !known.contains(name))
        .collect();
    let interrupts = profile.functions.len() as u32;
    let mut functions = profile.functions.clone();
    functions.push(INTERRUPTS.to_owned());
    let mut places: Vec<u32> = Vec::with_capacity(profile.calls.len());
    let mut calls: Vec<Call> = Vec::new();
    let mut folded: Vec<Folded> = Vec::new();
    for call in &profile.calls {
        let caller = call.caller.map(|caller| places[caller as usize]);
        match caller {
            None if call.interrupt => {
                places.push(calls.len() as u32);
                calls.push(Call {
                    function: interrupts,
                    ..*call
                });
            }
            Some(caller) if calls[caller as usize].function == interrupts => {
                calls[caller as usize].instructions += call.instructions;
                places.push(caller);
            }
            Some(caller) if lacks[call.function as usize] => {
                let host = &mut calls[caller as usize];
                host.instructions += call.instructions;
                places.push(caller);
                let into = &profile.functions[host.function as usize];
                let from = &profile.functions[call.function as usize];
                let known = folded
                    .iter()
                    .position(|one| one.into == *into && one.from == *from);
                let place = known.unwrap_or_else(|| {
                    folded.push(Folded {
                        into: into.clone(),
                        from: from.clone(),
                        instructions: 0,
                    });
                    folded.len() - 1
                });
                folded[place].instructions += call.instructions;
            }
            Some(_) | None => {
                places.push(calls.len() as u32);
                calls.push(Call { caller, ..*call });
            }
        }
    }
    let profile = Profile {
        calls,
        functions,
        ..profile.clone()
    };
    (profile, folded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::tests::profile;

    #[test]
    fn suffixes_of_compilers_are_no_part_of_a_name() {
        for (symbol, expected) in [
            ("f", "f"),
            ("f.isra.0", "f"),
            ("f.part.3.isra.12", "f"),
            ("f.cold", "f"),
            ("f.constprop.0.cold", "f"),
            ("f.llvm.1234567890", "f"),
            ("f.other", "f.other"),
            ("f.1", "f.1"),
            (".cold", ""),
        ] {
            assert_eq!(source_name(symbol), expected, "{symbol}");
        }
    }

    #[test]
    fn what_the_other_kernel_lacks_is_part_of_its_callers() {
        let tree = [
            (None, 0, 1),
            (Some(0), 1, 10),
            (Some(1), 2, 100),
            (Some(2), 1, 1000),
            (None, 1, 5),
        ];
        let known = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let own = |profile: &Profile| -> Vec<(String, u64)> {
            let rows = profile.rows().into_iter();
            rows.map(|row| (row.name, row.own)).collect()
        };
        let whole = profile(&tree);
        let (same, nothing) = fold(&whole, &known(&["a", "b", "c"]));
        assert_eq!((same.calls, nothing), (whole.calls.clone(), Vec::new()));
        let (without_b, folded) = fold(&whole, &known(&["a", "c"]));
        let expected = [("a", 11), ("b", 5), ("c", 1100), (INTERRUPTS, 0)];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(own(&without_b), expected);
        assert_eq!(without_b.calls[1].caller, Some(0));
        let one = |into: &str, from: &str, instructions| Folded {
            into: into.to_owned(),
            from: from.to_owned(),
            instructions,
        };
        assert_eq!(folded, [one("a", "b", 10), one("c", "b", 1000)]);
        let (without_both, _) = fold(&whole, &known(&["a"]));
        assert_eq!(without_both.rows()[0].own, 1111);
        assert_eq!(without_both.total, whole.total);
        let mut interrupted = whole;
        interrupted.calls[4].interrupt = true;
        interrupted.calls.push(Call {
            caller: Some(4),
            ..interrupted.calls[4]
        });
        let (one, _) = fold(&interrupted, &known(&["a", "b", "c"]));
        assert_eq!(own(&one)[3], (INTERRUPTS.to_owned(), 10));
        assert_eq!(one.calls.len(), 5);
    }
}
