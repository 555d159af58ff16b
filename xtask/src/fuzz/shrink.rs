//! Shrinks a script whose results differ.

use anyhow::Result;

use super::script::Script;

/// Removes smaller and smaller parts of the script, as long as `differs` returns true for the rest. Makes at most
/// `tries` attempts.
///
/// # Errors
/// Those of `differs`.
pub fn shrink(
    script: &Script,
    mut tries: u32,
    mut differs: impl FnMut(&Script) -> Result<bool>,
) -> Result<Script> {
    let mut best = script.clone();
    let mut part = best.lines.len().div_ceil(2);
    while part > 0 {
        let mut from = 0;
        let mut shorter = false;
        while from < best.lines.len() && tries > 0 {
            let to = (from + part).min(best.lines.len());
            if let Some(candidate) = best.without(from, to) {
                tries -= 1;
                if differs(&candidate)? {
                    best = candidate;
                    shorter = true;
                    continue;
                }
            }
            from += part.div_ceil(2);
        }
        if tries == 0 {
            break;
        }
        if part == 1 {
            if !shorter {
                break;
            }
        } else {
            part /= 2;
        }
    }
    without_forks(&best, tries, differs)
}

/// Removes forks with all lines of the child: the fork, the child's operations and exit, and the join are removed
/// together.
fn without_forks(
    script: &Script,
    mut tries: u32,
    mut differs: impl FnMut(&Script) -> Result<bool>,
) -> Result<Script> {
    let mut best = script.clone();
    let mut at = 0;
    while at < best.lines.len() && tries > 0 {
        if best.lines[at] == "P fork" {
            let rest = best.lines[at..].iter().position(|line| line == "P join");
            let end = rest.map_or(best.lines.len(), |rest| at + rest);
            let mut lines = best.lines.clone();
            if end < lines.len() {
                let after = lines.split_off(end + 1);
                lines.truncate(end);
                let between = lines.split_off(at + 1);
                lines.pop();
                lines.extend(between.into_iter().filter(|line| line.starts_with('P')));
                lines.extend(after);
                tries -= 1;
                let candidate = Script { lines };
                if differs(&candidate)? {
                    best = candidate;
                    continue;
                }
            }
        }
        at += 1;
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::random::Random;
    use crate::fuzz::script::Abilities;

    #[test]
    fn what_does_not_matter_goes() {
        let mut script = Script::random(&mut Random::new(5), 60, &Abilities::default());
        script.lines.insert(9, "P write 3 33".to_owned());
        script.lines.insert(2, "P map 3 1 rw a 33".to_owned());
        let wanted = ["P map 3 1 rw a 33", "P write 3 33"];
        let holds = |script: &Script| {
            let all = wanted
                .iter()
                .map(|line| script.lines.iter().position(|one| one == line));
            let places: Option<Vec<usize>> = all.collect();
            Ok(places.is_some_and(|places| places[0] < places[1]))
        };
        let short = shrink(&script, 1000, holds).unwrap();
        assert_eq!(short.lines, wanted);
    }
    #[test]
    fn a_fork_goes_without_the_others() {
        let fork = "P fork\nC read 1\nP read 2\nC exit\nP join\n";
        let script = Script::parse(&format!("{fork}{fork}"));
        let holds = |script: &Script| Ok(script.lines.iter().any(|line| line == "C read 1"));
        let short = shrink(&script, 1000, holds).unwrap();
        assert_eq!(short.lines, ["P fork", "C read 1", "C exit", "P join"]);
    }
}
