//! Renders a profile in the format of callgrind (version 1, Callgrind Format Specification of Valgrind's manual).

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::model::profile::Profile;

/// Returns the profile for `callgrind_annotate` and KCachegrind. The output contains no source lines, so every cost is
/// on line 0.
pub fn text(profile: &Profile, command: &str) -> String {
    let sums = profile.inclusive_places();
    let mut calls: BTreeMap<(u32, u32), [u64; 2]> = BTreeMap::new();
    for (call, sum) in profile.calls.iter().zip(sums) {
        if let Some(caller) = call.caller {
            let caller = profile.calls[caller as usize].function;
            let [count, instructions] = calls.entry((caller, call.function)).or_default();
            *count += call.count;
            *instructions += sum;
        }
    }
    let mut out = format!(
        "# callgrind format\nversion: 1\ncreator: memwright {}\ncmd: {command}\npositions: line\n\
         events: Instructions\nsummary: {}\n\nob=kernel\nfl=???\n",
        env!("CARGO_PKG_VERSION"),
        profile.total
    );
    let write = "a string grows";
    for (number, row) in (0..).zip(profile.rows()) {
        writeln!(out, "\nfn=({number}) {}\n0 {}", row.name, row.own).expect(write);
        for ((_, callee), [count, instructions]) in calls.range((number, 0)..(number + 1, 0)) {
            let name = &profile.functions[*callee as usize];
            writeln!(
                out,
                "cfn=({callee}) {name}\ncalls={count} 0\n0 {instructions}"
            )
            .expect(write);
        }
    }
    writeln!(out, "\ntotals: {}", profile.total).expect(write);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::tests::profile;

    #[test]
    fn costs_and_calls_are_lines() {
        let text = text(
            &profile(&[(None, 0, 1), (Some(0), 1, 10), (Some(1), 2, 100)]),
            "x",
        );
        for part in [
            "summary: 111\n",
            "fn=(0) a\n0 1\ncfn=(1) b\ncalls=1 0\n0 110\n",
            "fn=(1) b\n0 10\ncfn=(2) c\ncalls=1 0\n0 100\n",
            "fn=(2) c\n0 100\n",
            "\ntotals: 111\n",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
