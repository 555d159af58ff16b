//! Tests policies: a program runs under each value of each policy, and each seed gives another random layout.

use crate::guest::{Ending, Guest};
use crate::prepare::busybox;
use libtest_mimic::{Failed, Trial};
use memwright::Policy;

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("policies::each_value_starts_a_program", each_value),
        Trial::test("policies::a_seed_chooses_the_layout", layouts),
    ]
}

/// Runs busybox under a policy.
fn run(policy: &str, arguments: &[&str]) -> Result<Ending, Failed> {
    let guest = Guest::new(busybox(), arguments).option("--policy", policy);
    let ending = guest.run()?;
    ending.expect_code(0)?;
    Ok(ending)
}

/// Returns the values at the beginning of a help text: the words before the colon, which commas and "or" separate.
///
/// Replaces the item `a number N` by the number 3.
fn values(help: &str) -> Vec<&str> {
    let list = help.split_once(": ").map_or("", |(list, _)| list);
    let items = list.split(", ").flat_map(|item| item.split(" or "));
    items
        .filter(|item| !item.is_empty())
        .map(|item| if item == "a number N" { "3" } else { item })
        .collect()
}

fn each_value() -> Result<(), Failed> {
    let script = "seq 1 300 | sort -r | wc -l";
    for (key, help) in Policy::KEYS {
        let values = values(help);
        if values.is_empty() {
            return Err(format!("{key}: no values in {help:?}").into());
        }
        for value in values {
            let ending = run(&format!("{key}={value}"), &["sh", "-c", script])?;
            if ending.text() != "300\n" {
                return Err(format!("{key}={value}: {}", ending.report()).into());
            }
        }
    }
    Ok(())
}

fn layouts() -> Result<(), Failed> {
    let maps = |policy: &str| -> Result<String, Failed> {
        Ok(run(policy, &["cat", "/proc/self/maps"])?.text())
    };
    let (seven, eight) = (maps("aslr=7")?, maps("aslr=8")?);
    if maps("aslr=7")? != seven {
        return Err("one seed gave two layouts".into());
    }
    let stack = |maps: &str| {
        let line = maps.lines().find(|line| line.ends_with("[stack]"));
        line.map(str::to_owned)
    };
    match (stack(&seven), stack(&eight)) {
        (Some(one), Some(other)) if one != other => Ok(()),
        stacks => Err(format!("two seeds gave {stacks:?}").into()),
    }
}
