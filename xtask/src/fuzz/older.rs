//! The rules for results of Linux 6.18 that differ from Memwright's, because Memwright follows Linux 7.3.

use super::history::{is_not_protected, line_of, was_kept, was_moved_watched, was_watched};
use super::rules::{Rule, Scan, is_written_on, scanned};

/// Returns the rule for a result that differs because Linux has changed since 6.18, if there is one.
pub fn rule(before: &[String], referee: &str, guest: &str) -> Option<Rule> {
    if differs_in_poison(referee, guest) {
        return Some(Rule::PoisonIsError);
    }
    let (line, one) = line_of(referee)?;
    let (_, other) = line_of(guest)?;
    match *line.get(1)? {
        "watch" if matches!(one, " 0" | " errno 22") && other == " errno 16" => {
            Some(Rule::KeepsProtection)
        }
        "fill" | "zero" if one.starts_with(" errno 14 ") && other.starts_with(" errno 12 ") => {
            Some(Rule::BeyondFile)
        }
        "show" if one.starts_with(" errno 22 ") && other.starts_with(" errno 14 ") => {
            Some(Rule::BeyondFile)
        }
        "scan" | "find" => of_scan(before, referee, guest),
        "maps" | "totals" | "out" | "advise" if was_kept(before) => Some(Rule::UnlockedBehind),
        // Memwright unmaps the old range as a separate area, which is still registered, so its userfaultfd receives an
        // unmap event.
        "remap" if was_watched(before) && differs_in_unmap(referee, guest) => {
            Some(Rule::MovedApart)
        }
        "maps" | "wp" | "unwatch" if was_moved_watched(before) => Some(Rule::MovedApart),
        // On Memwright the memory is still registered, so the access causes SIGBUS; on Linux 6.18 it completes.
        "read" | "write" if was_moved_watched(before) => {
            let waits = one.contains(" faults ") && other.contains(" SIGBUS code 2 at ");
            waits.then_some(Rule::MovedApart)
        }
        _ => None,
    }
}

/// Returns whether the results differ only in accesses that found a poison marker on the guest and no page on the
/// referee.
fn differs_in_poison(referee: &str, guest: &str) -> bool {
    let (one, other): (Vec<&str>, Vec<&str>) =
        (referee.split(' ').collect(), guest.split(' ').collect());
    let mut words = (0..).zip(one.iter().zip(&other));
    one.len() == other.len()
        && words.all(|(at, words)| {
            let of_bus = at >= 2 && one[at - 2..at] == ["SIGBUS", "code"];
            words.0 == words.1 || of_bus && words == (&"2", &"4")
        })
}

/// Returns whether the guest's result is the referee's with additional unmap events.
fn differs_in_unmap(referee: &str, guest: &str) -> bool {
    let is_unmap = |line: &str| line.starts_with("  told ") && line.contains(" unmap ");
    let mut expected = referee.lines().peekable();
    let follows = guest
        .lines()
        .all(|line| expected.next_if_eq(&line).is_some() || is_unmap(line));
    follows && expected.next().is_none() && referee != guest
}

/// Returns the rule for a scan in which only Linux reports certain pages as written. If the scan limits the number of
/// pages, it can also end at a different page, because each kernel reports different pages.
fn of_scan(before: &[String], referee: &str, guest: &str) -> Option<Rule> {
    let (line, one) = referee.split_once(": ")?;
    let (_, other) = guest.split_once(": ")?;
    let scan = Scan::parse(line).filter(|scan| !scan.protects)?;
    let ((linux, until), (ours, end)) = (scanned(one)?, scanned(other)?);
    let follows = (0..until.min(end)).all(|page| {
        let reports = (linux.get(&page).copied(), ours.get(&page).copied());
        let same = reports.0 == reports.1;
        same || is_written_on(&scan, (reports.1, reports.0)) && is_not_protected(before, page)
    });
    (follows && (until == end || scan.most > 0)).then_some(Rule::NotForProtection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_older_linux_does_differently_is_stated_only_where_it_applies() {
        let watched = |mode| vec![format!("P watch 0 24 r {mode}: 0")];
        let moved = ["P watch 0 24 a w: 0", "P remap 15 2 2 12: page 12"]
            .map(str::to_owned)
            .to_vec();
        let part = ["P watch 0 24 e mw: 0", "P remap 14 7 7 6: errno 14"]
            .map(str::to_owned)
            .to_vec();
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
            (&none, "P watch 1 2 s m: 0", "P watch 1 2 s m: errno 16", Some(Rule::KeepsProtection)),
            (&none, "P watch 1 2 s m: errno 16", "P watch 1 2 s m: 0", None),
            (&none, "P unwatch 1 2 s: errno 16", "P unwatch 1 2 s: 0", None),
            (&none, "P scan 1 2 0: 1 1-2:a until 3", "P scan 1 2 0: 1 1-2:8 until 3", Some(Rule::NotForProtection)),
            (&watched("w"), "P scan 1 2 0: 1 1-2:a until 3", "P scan 1 2 0: 1 1-2:8 until 3", None),
            (&none, "P scan 1 2 0: 1 1-2:8 until 3", "P scan 1 2 0: 1 1-2:a until 3", None),
            (&watched("r"), "P scan 1 2 4: 1 1-2:208 until 3", "P scan 1 2 4: 0 until 3", None),
            (&watched("r"), "P scan 1 2 4: 0 until 3", "P scan 1 2 4: 1 1-2:208 until 3", None),
            (&kept, "P totals: 8", "P totals: 16", Some(Rule::UnlockedBehind)),
            (&none, "P totals: 8", "P totals: 16", None),
            (&moved, "P wp 15 8 a 0: errno 2", "P wp 15 8 a 0: 0", Some(Rule::MovedApart)),
            (&watched("w"), "P wp 15 8 a 0: errno 2", "P wp 15 8 a 0: 0", None),
            (&moved, "P write 7 3: . done faults 1", "P write 7 3: . SIGBUS code 2 at 28736", Some(Rule::MovedApart)),
            (&moved, "P write 7 3: . SIGBUS code 2 at 28736", "P write 7 3: . done faults 1", None),
            (&watched("w"), "P remap 15 8 8 7: page 7", "P remap 15 8 8 7: page 7\n  told e unmap 15 8", Some(Rule::MovedApart)),
            (&watched("w"), "P remap 15 8 8 7: page 7\n  told e unmap 7 8", "P remap 15 8 8 7: page 7\n  told e unmap 7 8\n  told e unmap 15 8", Some(Rule::MovedApart)),
            (&watched("w"), "P remap 15 8 8 7: page 7\n  told e unmap 15 8", "P remap 15 8 8 7: page 7", None),
            (&watched("w"), "P remap 15 8 8 7: page 7", "P remap 15 8 8 7: page 8\n  told e unmap 15 8", None),
            (&none, "P remap 15 8 8 7: page 7", "P remap 15 8 8 7: page 7\n  told e unmap 15 8", None),
            (&part, "P scan 6 2 0: 1 6-8:a until 9", "P scan 6 2 0: 1 6-8:8 until 9", Some(Rule::NotForProtection)),
            (&watched("w"), "P write 7 3: . done faults 1", "P write 7 3: . SIGBUS code 2 at 28736", None),
            (&none, "P watch 9 5 e n: errno 22", "P watch 9 5 e n: errno 16", Some(Rule::KeepsProtection)),
            (&none, "P read 1: . SIGBUS code 2 at 64", "P read 1: . SIGBUS code 4 at 64", Some(Rule::PoisonIsError)),
            (&none, "P contents: SIGBUS code 2 at 9 SIGBUS code 2 at 64", "P contents: SIGBUS code 2 at 9 SIGBUS code 4 at 64", Some(Rule::PoisonIsError)),
            (&none, "P contents: 2 SIGBUS code 2 at 64", "P contents: 4 SIGBUS code 4 at 64", None),
            (&none, "P read 1: . SIGBUS code 4 at 64", "P read 1: . SIGBUS code 2 at 64", None),
            (&none, "P fill 1 1 1 1 s: errno 14 copied -14", "P fill 1 1 1 1 s: errno 12 copied -12", Some(Rule::BeyondFile)),
            (&none, "P show 1 1 1 1 s: errno 22 done -22", "P show 1 1 1 1 s: errno 14 done -14", Some(Rule::BeyondFile)),
            (&none, "P move 1 1 1 1 s: errno 14 moved -14", "P move 1 1 1 1 s: errno 12 moved -12", None),
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
