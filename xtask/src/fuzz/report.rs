//! What the interpreter printed, and where two of its reports differ.

/// What one script came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// One entry for each line of the script that was performed, continuation lines included.
    pub results: Vec<String>,
}

impl Outcome {
    /// Whether the script came to its end, and was not ended by its alarm.
    pub fn has_ended(&self) -> bool {
        self.results.last().is_some_and(|last| last == "end 0")
    }
}

/// Takes a report apart, by the titles of its scripts. A script that was cut short lacks its end.
pub fn parse(report: &str) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for line in report.lines() {
        if line.starts_with("script ") {
            outcomes.push(Outcome {
                results: Vec::new(),
            });
        } else if let Some(outcome) = outcomes.last_mut() {
            match outcome.results.last_mut() {
                Some(last) if line.starts_with("  ") => {
                    last.push('\n');
                    last.push_str(line);
                }
                Some(_) | None => outcome.results.push(line.to_owned()),
            }
        }
    }
    outcomes
}

/// How the results of one line compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They are the same.
    Same,
    /// The guest took fewer faults, all else being the same.
    FewerFaults,
    /// The guest has one private area where the referee has several alike: Linux keeps those apart whose own pages
    /// are in different reverse maps (`is_mergeable_anon_vma` of Linux 7.2, `mm/vma.c`).
    FewerAreas,
    /// Linux calls a marker (of a guard, or of protection) swapped, and memory that nobody watches and that is not
    /// there written, if it has a page table for it (`pagemap_page_category` of Linux 7.2, `fs/proc/task_mmu.c`).
    NotThere,
    /// One of them lacks what was asked for.
    Absent,
    /// Something else.
    Different,
}

/// Compares what the referee said with what the guest said.
pub fn compare(referee: &str, guest: &str) -> Verdict {
    if referee == guest {
        return Verdict::Same;
    }
    if [referee, guest]
        .iter()
        .any(|result| result.ends_with(": none"))
    {
        return Verdict::Absent;
    }
    if joined(referee) == joined(guest) {
        return Verdict::FewerAreas;
    }
    if there(referee).is_some_and(|said| there(guest) == Some(said)) {
        return Verdict::NotThere;
    }
    match (split_faults(referee), split_faults(guest)) {
        (Some((what, more)), Some((same, fewer))) if what == same && fewer < more => {
            Verdict::FewerFaults
        }
        _ => Verdict::Different,
    }
}

/// A result with the private areas joined that touch and are alike.
fn joined(result: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in result.lines() {
        let last = lines.last().and_then(|last| private(last));
        if let (Some(last), Some(next)) = (last, private(line))
            && last.goes_on_in(&next)
        {
            let line = format!(
                "  {}-{} {} {:x} {}",
                last.start, next.end, last.rights, last.offset, last.path
            );
            lines.pop();
            lines.push(line);
            continue;
        }
        lines.push(line.to_owned());
    }
    lines.join("\n")
}

/// A line of the areas: pages, rights, bytes into the file, and the file's name or nothing.
#[derive(Debug, Clone, Copy)]
struct Area<'a> {
    start: u64,
    end: u64,
    rights: &'a str,
    offset: u64,
    path: &'a str,
}

impl Area<'_> {
    fn goes_on_in(&self, next: &Self) -> bool {
        let bytes = if self.path.is_empty() {
            0
        } else {
            (self.end - self.start) << 12
        };
        self.end == next.start
            && (self.rights, self.path) == (next.rights, next.path)
            && self.offset + bytes == next.offset
    }
}

/// The line of a private area.
fn private(line: &str) -> Option<Area<'_>> {
    let mut words = line.strip_prefix("  ")?.splitn(4, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next().filter(|rights| rights.ends_with('p'))?;
    Some(Area {
        start: start.parse().ok()?,
        end: end.parse().ok()?,
        rights,
        offset: u64::from_str_radix(words.next()?, 16).ok()?,
        path: words.next()?,
    })
}

/// The categories of `PAGEMAP_SCAN` (include/uapi/linux/fs.h).
const WRITTEN: u64 = 1 << 1;
const SWAPPED: u64 = 1 << 4;

/// A list of pages, or of what a scan found, without what is said of memory that is not there. Nothing is swapped where
/// scripts run.
fn there(result: &str) -> Option<String> {
    let (line, said) = result.split_once(": ")?;
    match line.split(' ').nth(1)? {
        "pages" => Some(said.replace('s', ".")),
        "scan" => {
            let words: Vec<&str> = said.split(' ').collect();
            let (found, until) = words.split_at(words.iter().position(|word| *word == "until")?);
            let mut runs: Vec<(u64, u64, u64)> = Vec::new();
            for word in found.iter().skip(1) {
                let (pages, categories) = word.split_once(':')?;
                let (start, end) = pages.split_once('-')?;
                let categories = u64::from_str_radix(categories, 16).ok()? & !SWAPPED;
                let (start, end) = (start.parse().ok()?, end.parse().ok()?);
                if categories == WRITTEN {
                    continue;
                }
                match runs.last_mut() {
                    Some(last) if (last.1, last.2) == (start, categories) => last.1 = end,
                    Some(_) | None => runs.push((start, end, categories)),
                }
            }
            Some(format!("{runs:x?} {until:?}"))
        }
        _ => None,
    }
}

fn split_faults(result: &str) -> Option<(&str, u64)> {
    let (what, count) = result.rsplit_once(" faults ")?;
    Some((what, count.parse().ok()?))
}

/// The first difference of two outcomes: the referee's result, and the guest's.
pub fn first_difference<'a>(
    referee: &'a Outcome,
    guest: &'a Outcome,
) -> Option<(Option<&'a str>, Option<&'a str>)> {
    let length = referee.results.len().max(guest.results.len());
    (0..length).find_map(|index| {
        let one = referee.results.get(index).map(String::as_str);
        let other = guest.results.get(index).map(String::as_str);
        let same = match (one, other) {
            (Some(one), Some(other)) => compare(one, other) != Verdict::Different,
            (one, other) => one == other,
        };
        (!same).then_some((one, other))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_compared_line_by_line() {
        let referee =
            parse("script 0\nP write 1 2: done faults 1\nP maps:\n  0-1 rw-p 0 \nend 0\n");
        assert_eq!(referee[0].results.len(), 3);
        for (result, verdict) in [
            ("P write 1 2: done faults 1", Verdict::Same),
            ("P write 1 2: done faults 0", Verdict::FewerFaults),
            ("P write 1 2: done faults 2", Verdict::Different),
            ("P write 1 2: SIGSEGV code 1 at 0", Verdict::Different),
            ("P write 1 2: none", Verdict::Absent),
        ] {
            assert_eq!(compare(&referee[0].results[0], result), verdict, "{result}");
        }
        for (result, verdict) in [
            ("P maps:\n  0-2 rw-p 0 \n  2-4 r--p 0 ", Verdict::FewerAreas),
            ("P maps:\n  0-1 rw-p 0 \n  2-4 r--p 0 ", Verdict::Different),
            ("P maps:\n  0-4 rw-p 0 ", Verdict::Different),
        ] {
            let apart = "P maps:\n  0-1 rw-p 0 \n  1-2 rw-p 0 \n  2-4 r--p 0 ";
            assert_eq!(compare(apart, result), verdict, "{result}");
        }
        for (files, verdict) in [
            (
                "P maps:\n  0-1 rw-p 0 memory\n  1-2 rw-p 1000 memory",
                Verdict::FewerAreas,
            ),
            (
                "P maps:\n  0-1 rw-p 0 memory\n  1-2 rw-p 0 memory",
                Verdict::Different,
            ),
            (
                "P maps:\n  0-1 rw-s 0 memory\n  1-2 rw-s 1000 memory",
                Verdict::Different,
            ),
        ] {
            let one = "P maps:\n  0-2 rw-p 0 memory";
            assert_eq!(compare(files, one), verdict, "{files}");
        }
        for (one, other, verdict) in [
            ("P pages: sgpx.", "P pages: .gpx.", Verdict::NotThere),
            ("P pages: sgpx.", "P pages: .gp.", Verdict::Different),
            (
                "P scan 1 9 0: 3 1-2:2 2-3:12 3-4:2a until 9",
                "P scan 1 9 0: 1 3-4:2a until 9",
                Verdict::NotThere,
            ),
            (
                "P scan 1 9 0: 1 3-4:3 until 9",
                "P scan 1 9 0: 0 until 9",
                Verdict::Different,
            ),
        ] {
            assert_eq!(compare(one, other), verdict, "{other}");
        }
        let guest = parse("script 0\nP write 1 2: done faults 0\nP maps:\n  0-2 rw-p 0 \nend 0\n");
        let (one, other) = first_difference(&referee[0], &guest[0]).unwrap();
        assert!(one.unwrap().contains("0-1") && other.unwrap().contains("0-2"));
        assert_eq!(first_difference(&referee[0], &referee[0]), None);
        let cut = parse("script 0\nP write 1 2: done faults 1\n");
        assert!(first_difference(&referee[0], &cut[0]).unwrap().1.is_none());
    }
}
