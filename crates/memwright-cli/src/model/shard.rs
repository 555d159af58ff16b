//! The part of a bench that one worker runs.

use std::str::FromStr;

use sha2::{Digest, Sha256};

/// One of the parts into which a bench is divided. `1/2` is the first of two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    count: usize,
}

/// The value of `--shard`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The part that the user gave, as `I/N`.
    Given(Shard),
    /// The part whose index and number of parts are in environment variables of Slurm.
    Array,
    /// The part whose index is in an environment variable of Slurm or of Kubernetes. The value is the number of parts.
    Indexed(usize),
}

const EXPECTED: &str = "expected I/N with I from 1 to N, for example 3/10, or auto, or auto/N, to take I from Slurm or Kubernetes";

/// The environment variables of Slurm. `SLURM_INDEX` has the index of a task in a job array; the others have the lowest
/// index, the highest index and the number of tasks of the array.
const SLURM_INDEX: &str = "SLURM_ARRAY_TASK_ID";
const SLURM_LOWEST: &str = "SLURM_ARRAY_TASK_MIN";
const SLURM_HIGHEST: &str = "SLURM_ARRAY_TASK_MAX";
const SLURM_COUNT: &str = "SLURM_ARRAY_TASK_COUNT";
/// The environment variable of Kubernetes with the index of a pod in an indexed job, which starts from 0.
const KUBERNETES_INDEX: &str = "JOB_COMPLETION_INDEX";

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = |text: &str| text.parse().ok().filter(|count| *count > 0);
        match text.split_once('/') {
            None if text == "auto" => Some(Self::Array),
            None => None,
            Some(("auto", parts)) => count(parts).map(Self::Indexed),
            Some((number, parts)) => {
                let shard = number.parse().ok().zip(count(parts));
                shard
                    .and_then(|(number, count)| Shard::of(number, count))
                    .map(Self::Given)
            }
        }
        .ok_or_else(|| EXPECTED.to_owned())
    }
}

impl Choice {
    /// Returns the part that this worker runs. `variable` returns the value of an environment variable.
    ///
    /// # Errors
    /// One line if a variable is missing, is not a number, or contradicts another variable or the number of parts.
    pub fn shard(self, variable: impl Fn(&str) -> Option<String>) -> Result<Shard, String> {
        let number = |name: &str| -> Result<Option<usize>, String> {
            let parse = |text: String| {
                let number = text
                    .parse()
                    .map_err(|_| format!("{name} is {text:?}, not a number"));
                number.map(Some)
            };
            variable(name).map_or(Ok(None), parse)
        };
        let (slurm, kubernetes) = (SLURM_INDEX, KUBERNETES_INDEX);
        match (self, number(slurm)?, number(kubernetes)?) {
            (Self::Given(shard), ..) => Ok(shard),
            (Self::Array | Self::Indexed(_), Some(_), Some(_)) => Err(format!(
                "--shard auto: {slurm} and {kubernetes} are both set; give --shard I/N"
            )),
            (Self::Array, None, Some(_)) => Err(format!(
                "--shard auto: {kubernetes} is set, but no variable says how many parts there are; give --shard auto/N"
            )),
            (Self::Array, None, None) => Err(format!("--shard auto: {slurm} is not set")),
            (Self::Indexed(_), None, None) => Err(format!(
                "--shard auto/N: neither {slurm} nor {kubernetes} is set"
            )),
            (Self::Indexed(count), Some(index), None) => Shard::of(index, count).ok_or_else(|| {
                format!("--shard auto/{count}: {slurm} is {index}, not a number from 1 to {count}")
            }),
            (Self::Indexed(count), None, Some(index)) => {
                Shard::of(index.saturating_add(1), count).ok_or_else(|| {
                    let last = count - 1;
                    format!("--shard auto/{count}: {kubernetes} is {index}, not a number from 0 to {last}")
                })
            }
            (Self::Array, Some(index), None) => {
                let of = |name| {
                    number(name)?.ok_or_else(|| format!("--shard auto: {slurm} is set, but {name} is not"))
                };
                of_array(index, of(SLURM_LOWEST)?, of(SLURM_HIGHEST)?, of(SLURM_COUNT)?)
            }
        }
    }
}

/// Returns the part of a task of an array with the indices `lowest` to `highest`.
fn of_array(index: usize, lowest: usize, highest: usize, count: usize) -> Result<Shard, String> {
    let has_gaps = highest
        .checked_sub(lowest)
        .and_then(|last| last.checked_add(1))
        != Some(count);
    let number = index
        .checked_sub(lowest)
        .and_then(|number| number.checked_add(1));
    if has_gaps {
        return Err(format!(
            "--shard auto: the array has {count} tasks with indices from {lowest} to {highest}, so they do not say \
             which part is meant; give --shard auto/N"
        ));
    }
    let shard = number.and_then(|number| Shard::of(number, count));
    shard.ok_or_else(|| {
        format!(
            "--shard auto: {SLURM_INDEX} is {index}, but the indices are from {lowest} to {highest}"
        )
    })
}

impl Shard {
    /// The complete bench as a single part.
    pub const WHOLE: Self = Self {
        number: 1,
        count: 1,
    };

    fn of(number: usize, count: usize) -> Option<Self> {
        (1..=count)
            .contains(&number)
            .then_some(Self { number, count })
    }

    /// Returns the indices of the names that belong to this part, in ascending order. Each name belongs to exactly one
    /// of the parts, and the sizes of two parts differ by at most one. The names are ordered by their hashes before
    /// they are dealt out. Otherwise, if every tenth run of a bench took long, one of ten workers would get all of
    /// these runs.
    pub fn share(self, names: &[impl AsRef<str>]) -> Vec<usize> {
        let hashes = names.iter().map(|name| Sha256::digest(name.as_ref()));
        let mut order: Vec<_> = hashes
            .enumerate()
            .map(|(index, hash)| (hash, index))
            .collect();
        order.sort_unstable();
        let dealt = order.into_iter().skip(self.number - 1).step_by(self.count);
        let mut share: Vec<usize> = dealt.map(|(_, index)| index).collect();
        share.sort_unstable();
        share
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.number, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read() {
        for (text, expected) in [
            ("1/1", Some(Choice::Given(Shard::WHOLE))),
            (
                "3/10",
                Some(Choice::Given(Shard {
                    number: 3,
                    count: 10,
                })),
            ),
            ("auto", Some(Choice::Array)),
            ("auto/10", Some(Choice::Indexed(10))),
            ("0/0", None),
            ("0/3", None),
            ("5/3", None),
            ("auto/0", None),
            ("auto/", None),
            ("-1/3", None),
            ("1/99999999999999999999", None),
            ("1", None),
            ("1/2/3", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Choice>().ok(), expected, "{text}");
        }
    }

    #[test]
    fn the_environment_names_a_part_or_is_refused() {
        const SLURM: [&str; 4] = [SLURM_INDEX, SLURM_LOWEST, SLURM_HIGHEST, SLURM_COUNT];
        let slurm = |values: &[&str]| -> Vec<(&'static str, String)> {
            let values = values.iter().map(|value| (*value).to_owned());
            SLURM.into_iter().zip(values).collect()
        };
        let kubernetes = |value: &str| vec![(KUBERNETES_INDEX, value.to_owned())];
        for (choice, variables, expected) in [
            ("2/5", slurm(&["1"]), Ok("2/5")),
            ("auto", slurm(&["0", "0", "9", "10"]), Ok("1/10")),
            ("auto", slurm(&["7", "1", "10", "10"]), Ok("7/10")),
            ("auto", slurm(&["3", "3", "3", "1"]), Ok("1/1")),
            (
                "auto",
                slurm(&["3", "1", "9", "5"]),
                Err("the array has 5 tasks with indices from 1 to 9"),
            ),
            (
                "auto",
                slurm(&["11", "1", "10", "10"]),
                Err("SLURM_ARRAY_TASK_ID is 11, but"),
            ),
            (
                "auto",
                slurm(&["0", "1", "10", "10"]),
                Err("SLURM_ARRAY_TASK_ID is 0, but"),
            ),
            (
                "auto",
                slurm(&["1", "9", "1", "2"]),
                Err("so they do not say"),
            ),
            (
                "auto",
                slurm(&["1", "1", "10"]),
                Err("SLURM_ARRAY_TASK_COUNT is not"),
            ),
            (
                "auto",
                slurm(&["one", "1", "10", "10"]),
                Err("SLURM_ARRAY_TASK_ID is \"one\", not a number"),
            ),
            ("auto", vec![], Err("SLURM_ARRAY_TASK_ID is not set")),
            ("auto", kubernetes("3"), Err("give --shard auto/N")),
            ("auto/10", kubernetes("0"), Ok("1/10")),
            ("auto/10", kubernetes("9"), Ok("10/10")),
            ("auto/10", kubernetes("10"), Err("not a number from 0 to 9")),
            (
                "auto/10",
                kubernetes("18446744073709551615"),
                Err("not a number from 0 to 9"),
            ),
            ("auto/10", slurm(&["3", "3", "7", "2"]), Ok("3/10")),
            (
                "auto/10",
                slurm(&["0", "0", "9", "10"]),
                Err("not a number from 1 to 10"),
            ),
            ("auto/10", vec![], Err("neither")),
            (
                "auto/10",
                [slurm(&["1"]), kubernetes("1")].concat(),
                Err("both set"),
            ),
        ] {
            let variable = |name: &str| {
                let mut found = variables.iter().filter(|(known, _)| *known == name);
                found.next().map(|(_, value)| value.clone())
            };
            let found = choice.parse::<Choice>().unwrap().shard(variable);
            match (found.map(|shard| shard.to_string()), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(part)) => assert!(found.contains(part), "{choice}: {found}"),
                (found, expected) => panic!("{choice} {variables:?}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn every_name_is_in_one_part_and_parts_are_even() {
        let names: Vec<String> = (0..100)
            .map(|number| format!("run {number} on a"))
            .collect();
        for count in [1, 2, 7, 99, 100, 103] {
            let mut seen = vec![0; names.len()];
            for number in 1..=count {
                let share = Shard::of(number, count).unwrap().share(&names);
                let even = names.len() / count..=names.len().div_ceil(count);
                assert!(even.contains(&share.len()), "{number}/{count}");
                assert!(share.is_sorted());
                for index in share {
                    seen[index] += 1;
                }
            }
            assert!(seen.iter().all(|times| *times == 1), "{count}");
        }
    }

    #[test]
    fn a_part_does_not_take_every_run_of_one_kernel() {
        let kernels = ["a", "b", "c", "d"];
        let names = (0..50).flat_map(|run| kernels.map(|kernel| format!("run {run} on {kernel}")));
        let names: Vec<String> = names.collect();
        let share = Shard::of(1, 4).unwrap().share(&names);
        for kernel in 0..kernels.len() {
            let of_kernel = share.iter().filter(|index| *index % 4 == kernel).count();
            assert!((5..25).contains(&of_kernel), "{of_kernel}");
        }
    }
}
