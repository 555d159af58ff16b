//! Differences between Memwright and a Linux that is newer than the one it follows in that respect, and differences of
//! read-write protection, which only such a Linux has.

use super::rules::{Rule, Scan, is_written_on, scanned};

/// Splits a result into the words of its line and what follows.
fn line_of(result: &str) -> Option<(Vec<&str>, &str)> {
    let (line, said) = result.split_once(':')?;
    Some((line.split(' ').collect(), said))
}

/// Returns whether memory was registered for read-write protection.
pub(super) fn counts_accesses(before: &[String]) -> bool {
    before.iter().any(|result| {
        line_of(result).is_some_and(|(line, said)| {
            let registers = line.get(1) == Some(&"watch") && said.starts_with(" 0");
            registers && line.last().is_some_and(|mode| mode.contains('r'))
        })
    })
}

/// Returns whether a move left its old range mapped.
fn was_kept(before: &[String]) -> bool {
    before.iter().any(|result| {
        line_of(result).is_some_and(|(line, said)| {
            let keeps = line.last().and_then(|to| to.parse().ok()) >= Some(1000);
            line.get(1) == Some(&"remap") && keeps && said.starts_with(" page")
        })
    })
}

/// Returns whether memory was freed lazily while a child existed.
fn was_freed(before: &[String]) -> bool {
    let mut child = false;
    before.iter().any(|result| match line_of(result) {
        Some((line, said)) => {
            child = (child || line.get(1) == Some(&"fork")) && line.get(1) != Some(&"join");
            let frees = line.get(1) == Some(&"advise") && line.last() == Some(&"8");
            child && frees && said.starts_with(" 0")
        }
        None => false,
    })
}

/// Returns the rule for a result that Linux has changed since 6.18 or 7.2, if the messages of userfaultfds are equal.
pub fn rule(before: &[String], referee: &str, guest: &str) -> Option<Rule> {
    if referee.replace("SIGBUS code 4", "SIGBUS code 2") == guest {
        return Some(Rule::PoisonIsMissing);
    }
    let (line, one) = line_of(referee)?;
    let (_, other) = line_of(guest)?;
    match *line.get(1)? {
        "watch" if (one, other) == (" errno 16", " 0") => Some(Rule::ReplacesProtection),
        "fill" | "zero" if one.starts_with(" errno 12 ") && other.starts_with(" errno 14 ") => {
            Some(Rule::BeyondFile)
        }
        "scan" | "find" => of_scan(before, referee, guest),
        "maps" | "totals" if was_kept(before) => Some(Rule::StaysLocked),
        "contents" if was_freed(before) => {
            let (one, other): (Vec<&str>, Vec<&str>) =
                (one.split(' ').collect(), other.split(' ').collect());
            let mut pages = one.iter().zip(&other);
            let follows = pages.all(|(one, other)| one == other || *one == "0");
            (one.len() == other.len() && follows).then_some(Rule::FreedWhileShared)
        }
        _ => None,
    }
}

/// Returns the rule for a scan that reports pages as written on the guest alone. Where the scan has room for few pages, it
/// stops elsewhere.
fn of_scan(before: &[String], referee: &str, guest: &str) -> Option<Rule> {
    let (line, one) = referee.split_once(": ")?;
    let (_, other) = guest.split_once(": ")?;
    let scan = Scan::parse(line).filter(|scan| !scan.protects)?;
    let ((linux, until), (ours, end)) = (scanned(one)?, scanned(other)?);
    let follows = (0..until.min(end)).all(|page| {
        let reports = (linux.get(&page).copied(), ours.get(&page).copied());
        let same = reports.0 == reports.1;
        same || is_written_on(&scan, reports) && is_not_protected(before, page)
    });
    (follows && (until == end || scan.most > 0)).then_some(Rule::NotForProtection)
}

/// Returns whether a page is not known to be registered for write protection: the last operation on its area did
/// something else.
fn is_not_protected(before: &[String], page: u64) -> bool {
    let last = before.iter().rev().find_map(|result| {
        let (line, said) = line_of(result)?;
        let number = |at: usize| line.get(at)?.parse::<u64>().ok();
        let (name, start, length) = (*line.get(1)?, number(2)?, number(3)?);
        let placed = said
            .strip_prefix(" page ")
            .and_then(|at| at.parse::<u64>().ok());
        let start = if name == "remap" { placed? } else { start };
        let covers = (start..start + length).contains(&page) && !said.starts_with(" errno");
        match name {
            "map" | "unmap" | "remap" | "unwatch" if covers => Some(false),
            "watch" if covers => Some(line.last()?.contains('w')),
            _ => None,
        }
    });
    last != Some(true) || before.iter().any(|result| ends_registrations(result))
}

/// Returns whether the monitor has closed a userfaultfd, or answers faults by unregistering pages.
fn ends_registrations(result: &str) -> bool {
    let answers = line_of(result).filter(|(line, _)| line.get(1) == Some(&"agree"));
    let unregisters = answers.is_some_and(|(line, _)| line.last().is_some_and(|a| a.contains('u')));
    unregisters || result.contains(" and closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_newer_linux_does_differently_is_stated_only_where_it_applies() {
        let watched = |mode| vec![format!("P watch 0 24 r {mode}: 0")];
        let kept = vec!["P remap 5 2 2 1011: page 11".to_owned()];
        let freed = ["P fork: 1", "P advise 2 5 8: 0"]
            .map(str::to_owned)
            .to_vec();
        let none = Vec::new();
        #[rustfmt::skip]
        let rows = [
            (&watched("mr"), "P read 7: pxw 8 faults 1", "P read 7: pxw 8 faults 0", Some(Rule::CountedWithoutFault)),
            (&watched("r"), "P write 7 3: fw done faults 2", "P write 7 3: fw done faults 1", Some(Rule::CountedWithoutFault)),
            (&watched("r"), "P read 7: pxw 8 faults 0", "P read 7: pxw 8 faults 1", None),
            (&watched("r"), "P read 7: pxw 8 faults 1", "P read 7: pxw 9 faults 0", None),
            (&watched("r"), "P read 7: px 8 faults 1", "P read 7: px 8 faults 0", None),
            (&watched("w"), "P read 7: pxw 8 faults 1", "P read 7: pxw 8 faults 0", None),
            (&none, "P watch 1 2 s m: errno 16", "P watch 1 2 s m: 0", Some(Rule::ReplacesProtection)),
            (&none, "P watch 1 2 s m: 0", "P watch 1 2 s m: errno 16", None),
            (&none, "P unwatch 1 2 s: errno 16", "P unwatch 1 2 s: 0", None),
            (&none, "P scan 1 2 0: 1 1-2:8 until 3", "P scan 1 2 0: 1 1-2:a until 3", Some(Rule::NotForProtection)),
            (&watched("w"), "P scan 1 2 0: 1 1-2:8 until 3", "P scan 1 2 0: 1 1-2:a until 3", None),
            (&none, "P scan 1 2 0: 1 1-2:a until 3", "P scan 1 2 0: 1 1-2:8 until 3", None),
            (&watched("r"), "P scan 1 2 4: 1 1-2:208 until 3", "P scan 1 2 4: 0 until 3", None),
            (&watched("r"), "P scan 1 2 4: 0 until 3", "P scan 1 2 4: 1 1-2:208 until 3", None),
            (&kept, "P totals: 8", "P totals: 16", Some(Rule::StaysLocked)),
            (&none, "P totals: 8", "P totals: 16", None),
            (&none, "P read 1: . SIGBUS code 4 at 64", "P read 1: . SIGBUS code 2 at 64", Some(Rule::PoisonIsMissing)),
            (&none, "P read 1: . SIGBUS code 2 at 64", "P read 1: . SIGBUS code 4 at 64", None),
            (&none, "P fill 1 1 1 1 s: errno 12 copied -12", "P fill 1 1 1 1 s: errno 14 copied -14", Some(Rule::BeyondFile)),
            (&none, "P move 1 1 1 1 s: errno 12 moved -12", "P move 1 1 1 1 s: errno 14 moved -14", None),
            (&freed, "P contents: 0 3", "P contents: 21 3", Some(Rule::FreedWhileShared)),
            (&freed, "P contents: 21 3", "P contents: 0 3", None),
            (&none, "P contents: 0 3", "P contents: 21 3", None),
        ];
        for (before, linux, ours, rule) in rows {
            let found = Rule::of(before, linux, ours).or_else(|| super::rule(before, linux, ours));
            assert_eq!(found, rule, "{linux} / {ours}");
        }
    }
}
