//! The deliberate differences between Memwright and Linux. Each rule predicts one difference exactly, from the results
//! alone. A difference that no rule predicts is a bug.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::history::{counts_accesses, line_of, was_freed};

/// The reason why the two results of a line may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A store to a present page that is not write-protected by userfaultfd. Linux takes one fault, because a
    /// protection change, or the removal of write protection, left the entry read-only (`can_change_pte_writable` of
    /// Linux 7.2, `mm/mprotect.c`, requires a dirty entry for shared memory). Memwright makes the entry writable at
    /// once and takes no fault.
    RightsAtOnce,
    /// A store to an exclusive page that an asynchronous userfaultfd write-protected. Linux takes one fault. Memwright
    /// tracks the page by the dirty bit and takes none.
    TrackedWithoutFault,
    /// A store to a page that an asynchronous userfaultfd write-protected before the page was populated. Linux maps the
    /// page write-protected, and takes a second fault, which removes the protection. Memwright maps the page
    /// unprotected with one fault.
    MarkerWithoutProtection,
    /// A scan of absent pages that no userfaultfd tracks. Linux reports them as written if there is a page table for
    /// them (`pagemap_page_category` of Linux 7.2, `fs/proc/task_mmu.c`). Memwright does not.
    NotThere,
    /// Adjacent private areas with equal attributes, after a guard was installed. Up to Linux 6.18,
    /// `madvise_guard_install` (`mm/madvise.c`) gives the guarded area an `anon_vma`, as if it had pages, and
    /// `is_mergeable_anon_vma` keeps the areas apart. Memwright merges them, as later Linux does.
    GuardedApart,
    /// Adjacent private anonymous areas with equal attributes that are not writable, after a guard was installed. On
    /// Linux 6.18, an area without pages but with a guard has an `anon_vma`. It therefore stays accounted when it
    /// becomes read-only (`mprotect_fixup` of 6.18, `mm/mprotect.c`), and merges with a neighbour that has pages.
    /// Memwright unaccounts it, as later Linux does, and does not merge it.
    GuardedPromised,
    /// A move of a part of an area that had a guard to the end of that area. The userfaultfd of the area does not
    /// receive remap events. On Linux 6.18, the `anon_vma` keeps the moved part separate from the rest, so the
    /// userfaultfd receives an unmap event for the part and stays registered for the rest. Memwright merges the part
    /// and the rest, as later Linux does, and the merged area has no userfaultfd. Later results are not compared,
    /// because all may differ.
    GuardedGone,
    /// An access to a page that an asynchronous userfaultfd has read-write-protected. Linux takes one fault, which
    /// makes the page accessible. Memwright tracks the page by the accessed bit and takes none.
    CountedWithoutFault,
    /// A registration of memory without write protection, although the memory is already registered for write
    /// protection. Linux 6.18 ends the write protection. Memwright fails with EBUSY, as Linux 7.3 does. Later results
    /// are not compared.
    KeepsProtection,
    /// A scan of pages in areas that are not registered for write protection. Linux 6.18 reports them as written.
    /// Memwright does not, like Linux 7.3.
    NotForProtection,
    /// The list of areas, or the amount of locked memory, after a move that left its old range mapped
    /// (`MREMAP_DONTUNMAP`). Linux 6.18 keeps the old range locked. Memwright unlocks it, as Linux 7.3 does. Later
    /// results are not compared.
    UnlockedBehind,
    /// The list of areas, or the registered memory, after a move of memory whose userfaultfd does not receive remap
    /// events. Linux 6.18 merges the moved area with its neighbours, and the merged area loses its userfaultfd.
    /// Memwright does not merge the moved area, like Linux 7.3. Later results are not compared.
    MovedApart,
    /// An access to a poison marker (`UFFDIO_POISON`). A Linux 6.18 without `CONFIG_MEMORY_FAILURE` reports a missing
    /// page (`BUS_ADRERR`). Memwright reports a memory error (`BUS_MCEERR_AR`), as Debian's Linux 7.3 does.
    PoisonIsError,
    /// `UFFDIO_COPY`, `UFFDIO_ZEROPAGE` or `UFFDIO_CONTINUE` beyond the end of a file. Linux 6.18 fails with EFAULT, or
    /// with EINVAL for `UFFDIO_CONTINUE`. Memwright fails with ENOMEM, or with EFAULT for `UFFDIO_CONTINUE`, as Linux
    /// 7.3 does.
    BeyondFile,
    /// The contents of a page that was freed lazily (`MADV_FREE`) while a fork shared it. Linux discards the page once
    /// the other process has exited. Memwright never marks a shared page for discarding, so it keeps the page. Later
    /// results are not compared.
    FreedWhileShared,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 15] = [
        Self::RightsAtOnce,
        Self::TrackedWithoutFault,
        Self::MarkerWithoutProtection,
        Self::NotThere,
        Self::GuardedApart,
        Self::GuardedPromised,
        Self::GuardedGone,
        Self::CountedWithoutFault,
        Self::KeepsProtection,
        Self::NotForProtection,
        Self::UnlockedBehind,
        Self::MovedApart,
        Self::PoisonIsError,
        Self::BeyondFile,
        Self::FreedWhileShared,
    ];

    /// Returns the name of the rule in the summary.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RightsAtOnce => "write permission restored at once: one fault fewer",
            Self::TrackedWithoutFault => "tracked by the dirty bit: one fault fewer",
            Self::MarkerWithoutProtection => {
                "write-protected before it was populated: one fault fewer"
            }
            Self::NotThere => "absent, and not reported as written",
            Self::GuardedApart => "not merged because of a guard",
            Self::GuardedPromised => "accounted because of a guard",
            Self::GuardedGone => "unmap event because of a guard",
            Self::CountedWithoutFault => "counted by the accessed bit: one fault fewer",
            Self::KeepsProtection => "write protection that a registration keeps",
            Self::NotForProtection => "written, but not registered for write protection",
            Self::UnlockedBehind => "unlocked where it was moved from",
            Self::MovedApart => "moved, and merged with no neighbour",
            Self::PoisonIsError => "poison reported as a memory error",
            Self::BeyondFile => "another error beyond the end of a file",
            Self::FreedWhileShared => "freed lazily while a fork shared it, and kept",
        }
    }

    /// Returns whether all results after this difference can also differ. If they can, they are not compared.
    pub fn ends(self) -> bool {
        matches!(
            self,
            Self::GuardedGone
                | Self::KeepsProtection
                | Self::UnlockedBehind
                | Self::MovedApart
                | Self::FreedWhileShared
        )
    }

    /// Returns the rule that predicts the guest's result from the referee's result and from `before`, the referee's
    /// earlier results. Only the rules about guards permit different userfaultfd events.
    pub fn of(before: &[String], referee: &str, guest: &str) -> Option<Self> {
        let ((referee, told), (guest, also_told)) = (without_told(referee), without_told(guest));
        if told != also_told {
            return of_told(before, (&referee, &told), (&guest, &also_told));
        }
        of_access(before, &referee, &guest)
            .or_else(|| of_scan(&referee, &guest))
            .or_else(|| of_areas(before, &referee, &guest))
            .or_else(|| of_contents(before, &referee, &guest))
    }
}

/// Splits a result into the lines that are not userfaultfd events, and the events, which are the lines that begin with
/// `told`.
fn without_told(result: &str) -> (String, Vec<&str>) {
    let (told, rest): (Vec<&str>, Vec<&str>) =
        result.lines().partition(|line| line.starts_with("  told "));
    (rest.join("\n"), told)
}

/// A completed access: `PROCESS write PAGE VALUE: BEFORE done faults COUNT`. The result of a read has the value instead
/// of `done`.
#[derive(Debug, PartialEq, Eq)]
struct Done<'a> {
    line: &'a str,
    /// The pagemap entry before the access.
    before: &'a str,
    /// The value that was read, or `done` for a store.
    value: &'a str,
    faults: u64,
}

impl<'a> Done<'a> {
    fn parse(result: &'a str) -> Option<Self> {
        let (line, said) = result.split_once(": ")?;
        let (said, faults) = said.split_once(" faults ")?;
        let (before, value) = said.split_once(' ')?;
        Some(Self {
            line,
            before,
            value,
            faults: faults.parse().ok()?,
        })
    }

    fn stores(&self) -> bool {
        self.value == "done"
    }
}

fn of_access(before: &[String], referee: &str, guest: &str) -> Option<Rule> {
    let (one, other) = (Done::parse(referee)?, Done::parse(guest)?);
    if (one.line, one.before, one.value) != (other.line, other.before, other.value) {
        return None;
    }
    match (one.before, one.faults, other.faults) {
        ("p" | "px" | "f" | "fx", 1, 0) if one.stores() => Some(Rule::RightsAtOnce),
        ("pxw", 1, 0) if one.stores() => Some(Rule::TrackedWithoutFault),
        ("sw", 2, 1) => Some(Rule::MarkerWithoutProtection),
        ("pw" | "pxw" | "fw" | "fxw", faults, fewer) => {
            (faults == fewer + 1 && counts_accesses(before)).then_some(Rule::CountedWithoutFault)
        }
        _ => None,
    }
}

/// Splits a result into the pagemap entries of its pages. An entry is a letter for the state of the page, followed by
/// its flags.
fn entries(said: &str) -> Vec<&str> {
    let starts: Vec<usize> = said
        .match_indices(['p', 'f', 's', '.'])
        .map(|(at, _)| at)
        .collect();
    let ends = starts.iter().skip(1).copied().chain([said.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| &said[*start..end])
        .collect()
}

/// Returns the rule for results that differ in the contents, or in the pagemap entries, of memory that Linux has
/// discarded.
fn of_contents(before: &[String], referee: &str, guest: &str) -> Option<Rule> {
    if let (Some(one), Some(other)) = (Done::parse(referee), Done::parse(guest)) {
        let discarded = was_freed(before) && one.before == "." && other.before.starts_with('p');
        return discarded.then_some(Rule::FreedWhileShared);
    }
    let ((line, one), (_, other)) = (line_of(referee)?, line_of(guest)?);
    let (one, other, gone) = match *line.get(1)? {
        "contents" => (one.split(' ').collect(), other.split(' ').collect(), "0"),
        "pages" => (entries(one), entries(other), "."),
        _ => return None,
    };
    let mut pages = one.iter().zip(&other);
    let follows = pages.all(|(one, other): (&&str, &&str)| one == other || *one == gone);
    let freed = was_freed(before) && one.len() == other.len() && follows;
    freed.then_some(Rule::FreedWhileShared)
}

/// Categories of `PAGEMAP_SCAN` (include/uapi/linux/fs.h).
const WRITTEN: u64 = 1 << 1;
const ACCESSED: u64 = 1 << 9;
/// The categories that the interpreter requests in its return mask by default.
const TOLD: u64 = 0x17f;

/// The arguments of a scan.
pub(super) struct Scan {
    pub(super) protects: bool,
    inverted: u64,
    all: u64,
    any: u64,
    /// The maximum number of pages to report; 0 for no limit.
    pub(super) most: u64,
}

impl Scan {
    /// Parses a line of the script.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ').skip(1);
        let name = words.next()?;
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        match (name, numbers.as_slice()) {
            ("scan", [_, _, kind]) => Some(Self {
                protects: matches!(kind, 2 | 3),
                inverted: 0,
                all: if *kind == 4 { ACCESSED } else { 0 },
                any: if matches!(kind, 0 | 4) { TOLD } else { WRITTEN },
                most: 0,
            }),
            ("find", [_, _, flags, inverted, all, any, _, most]) => Some(Self {
                protects: flags & 1 != 0,
                inverted: *inverted,
                all: *all,
                any: *any,
                most: *most,
            }),
            _ => None,
        }
    }

    /// Returns the categories that the scan reports for a page with `categories`, or `None` if it does not report the
    /// page.
    fn told(&self, categories: u64) -> Option<u64> {
        let seen = categories ^ self.inverted;
        let wanted = seen & self.all == self.all && (self.any == 0 || seen & self.any != 0);
        wanted.then_some(categories & (TOLD | self.inverted | self.all | self.any))
    }
}

/// Parses the result of a scan, `RUNS START-END:CATEGORIES ... until END`. Returns the categories of each reported
/// page, and the page at which the scan ended.
pub(super) fn scanned(said: &str) -> Option<(BTreeMap<u64, u64>, u64)> {
    let (runs, until) = said.split_once(" until ")?;
    let mut pages = BTreeMap::new();
    for run in runs.split(' ').skip(1) {
        let (range, categories) = run.split_once(':')?;
        let (start, end) = range.split_once('-')?;
        let categories = u64::from_str_radix(categories, 16).ok()?;
        let range = start.parse().ok()?..end.parse().ok()?;
        pages.extend(range.map(|page: u64| (page, categories)));
    }
    Some((pages, until.parse().ok()?))
}

/// Returns whether the two reports of one page differ only because the page counts as written on the guest but not on
/// the referee.
pub(super) fn is_written_on(scan: &Scan, (referee, guest): (Option<u64>, Option<u64>)) -> bool {
    referee.or(guest).is_some_and(|categories| {
        (referee, guest)
            == (
                scan.told(categories & !WRITTEN),
                scan.told(categories | WRITTEN),
            )
    })
}

fn of_scan(referee: &str, guest: &str) -> Option<Rule> {
    let (line, one) = referee.split_once(": ")?;
    let (_, other) = guest.split_once(": ").filter(|(same, _)| *same == line)?;
    let scan = Scan::parse(line).filter(|scan| !scan.protects)?;
    let ((linux, until), (ours, end)) = (scanned(one)?, scanned(other)?);
    let (there, not_there) = (scan.told(WRITTEN), scan.told(0));
    let mut differ = 0;
    for page in 0..until.min(end) {
        let (one, other) = (linux.get(&page).copied(), ours.get(&page).copied());
        if one == other {
            continue;
        }
        if (one, other) != (there, not_there) {
            return None;
        }
        differ += 1;
    }
    // The scans may end at different pages: a scan whose output is full stops at the next page that it would report.
    // The other scan does not report that page, so it continues. The output of the scan that reports more pages is full
    // earlier.
    let is_full = |pages: &BTreeMap<u64, u64>| differ > 0 && pages.len() as u64 == scan.most;
    let ends = match until.cmp(&end) {
        Ordering::Equal => differ > 0,
        Ordering::Less => {
            is_full(&linux) || (there.is_some() && ours.get(&until).copied() == not_there)
        }
        Ordering::Greater => {
            is_full(&ours) || (not_there.is_some() && linux.get(&end).copied() == there)
        }
    };
    ends.then_some(Rule::NotThere)
}

/// The advice `MADV_GUARD_INSTALL`, as scripts write it.
const GUARD_INSTALL: &str = "102";

/// Returns whether a guard was installed on any page.
fn was_guarded(before: &[String]) -> bool {
    before.iter().any(|result| {
        let line = result.split(':').next().unwrap_or_default();
        let mut words = line.split(' ').skip(1);
        words.next() == Some("advise") && words.last() == Some(GUARD_INSTALL)
    })
}

/// Returns the rule for results that differ only in their userfaultfd events, if a guard was installed before.
fn of_told(
    before: &[String],
    (result, told): (&str, &[&str]),
    (guest, also_told): (&str, &[&str]),
) -> Option<Rule> {
    if result != guest || !was_guarded(before) {
        return None;
    }
    if whole_parts(told) == whole_parts(also_told) {
        return Some(Rule::GuardedApart);
    }
    let mut words = result.split(' ').skip(1);
    let (name, page, count) = (words.next()?, words.next()?, words.next()?);
    let gone = format!(" unmap {page} {count}");
    let others = told.iter().filter(|line| !line.ends_with(&gone));
    (name == "remap" && told.len() > also_told.len() && others.eq(also_told))
        .then_some(Rule::GuardedGone)
}

/// Returns the userfaultfd events, with remove or unmap events of adjacent ranges (` told UFFD remove PAGE COUNT`)
/// joined into one event.
fn whole_parts(told: &[&str]) -> Vec<String> {
    let parse = |line: &str| -> Option<(String, u64, u64)> {
        let (rest, count) = line.rsplit_once(' ')?;
        let (what, page) = rest.rsplit_once(' ')?;
        let parts = what.ends_with(" remove") || what.ends_with(" unmap");
        parts.then_some((what.to_owned(), page.parse().ok()?, count.parse().ok()?))
    };
    let mut whole: Vec<String> = Vec::new();
    for line in told {
        let last = whole.last().and_then(|last| parse(last));
        match (last, parse(line)) {
            (Some((what, page, count)), Some((same, next, more)))
                if what == same && page + count == next =>
            {
                whole.pop();
                whole.push(format!("{what} {page} {}", count + more));
            }
            (_, _) => whole.push((*line).to_owned()),
        }
    }
    whole
}

fn of_areas(before: &[String], referee: &str, guest: &str) -> Option<Rule> {
    if !was_guarded(before) {
        return None;
    }
    let same = |which: fn(&Area<'_>) -> bool| joined(referee, which) == joined(guest, which);
    match guest.lines().count().cmp(&referee.lines().count()) {
        Ordering::Less => same(|_| true).then_some(Rule::GuardedApart),
        Ordering::Equal => None,
        Ordering::Greater => {
            same(|area| area.is_promised_by_guard()).then_some(Rule::GuardedPromised)
        }
    }
}

/// Returns a result in which adjacent private areas with equal attributes are joined if `which` returns true for the
/// second area.
fn joined(result: &str, which: fn(&Area<'_>) -> bool) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in result.lines() {
        let last = lines.last().and_then(|last| private(last));
        if let (Some(last), Some(next)) = (last, private(line))
            && last.goes_on_in(&next)
            && which(&next)
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

/// A line of `/proc/self/maps`: page numbers, permissions, offset in bytes, and the name of the file, if any.
#[derive(Debug, Clone, Copy)]
struct Area<'a> {
    start: u64,
    end: u64,
    rights: &'a str,
    offset: u64,
    path: &'a str,
}

impl Area<'_> {
    /// Returns whether this area may stay separate from its neighbour because only one of the two areas is accounted.
    /// That is possible for private anonymous memory that is not writable.
    fn is_promised_by_guard(&self) -> bool {
        self.path.is_empty() && !self.rights.contains('w')
    }

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

/// Parses the line of a private area; `None` for any other line.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_takes_as_many_faults_less_as_a_rule_says() {
        for (before, linux, ours, rule) in [
            ("px", 1, 0, Some(Rule::RightsAtOnce)),
            ("f", 1, 0, Some(Rule::RightsAtOnce)),
            ("px", 0, 1, None),
            ("px", 2, 1, None),
            ("pxw", 1, 0, Some(Rule::TrackedWithoutFault)),
            ("fw", 1, 0, None),
            ("sw", 2, 1, Some(Rule::MarkerWithoutProtection)),
            ("sw", 2, 0, None),
            (".", 1, 0, None),
        ] {
            let said = |faults| format!("P write 1 2: {before} done faults {faults}");
            assert_eq!(Rule::of(&[], &said(linux), &said(ours)), rule, "{before}");
        }
        let refused = "P write 1 2: px SIGSEGV code 2 at 4160";
        assert_eq!(
            Rule::of(&[], "P write 1 2: px done faults 1", refused),
            None
        );
        let read = |faults| format!("P read 1: px 7 faults {faults}");
        assert_eq!(Rule::of(&[], &read(1), &read(0)), None, "no store");
        let read = |value, faults| format!("P read 1: sw {value} faults {faults}");
        let rule = Some(Rule::MarkerWithoutProtection);
        assert_eq!(Rule::of(&[], &read(7, 2), &read(7, 1)), rule);
        assert_eq!(Rule::of(&[], &read(7, 2), &read(8, 1)), None);
        let told = |faults, what| format!("P write 1 2: px done faults {faults}\n  told e {what}");
        let rule = Some(Rule::RightsAtOnce);
        assert_eq!(
            Rule::of(&[], &told(1, "fault 1"), &told(0, "fault 1")),
            rule
        );
        assert_eq!(
            Rule::of(&[], &told(1, "fault 1"), &told(0, "fault 2")),
            None
        );
        let elsewhere = "P write 1 2: p done faults 0";
        assert_eq!(
            Rule::of(&[], "P write 1 2: px done faults 1", elsewhere),
            None
        );
    }

    #[test]
    fn of_memory_that_guards_keep_apart_watchers_are_told_in_parts() {
        let guard = ["P advise 1 1 102: 0".to_owned()];
        let said = |lines: &str| format!("C advise 0 6 4: 0{lines}");
        let parts = said("\n  told e1 remove 4 1\n  told e1 remove 5 2");
        for (ours, rule) in [
            ("\n  told e1 remove 4 3", Some(Rule::GuardedApart)),
            ("\n  told e1 remove 4 2", None),
            ("\n  told e2 remove 4 3", None),
            ("\n  told e1 unmap 4 3", None),
        ] {
            assert_eq!(Rule::of(&guard, &parts, &said(ours)), rule, "{ours}");
            assert_eq!(Rule::of(&[], &parts, &said(ours)), None, "no guard");
        }
        let refused = "C advise 0 6 4: errno 12\n  told e1 remove 4 3";
        assert_eq!(Rule::of(&guard, &parts, refused), None);
        for (call, told, rule) in [
            ("remap 3 3 3 9", "unmap 3 3", Some(Rule::GuardedGone)),
            ("remap 3 3 3 9", "unmap 3 4", None),
            ("remap 3 3 3 9", "remove 3 3", None),
            ("advise 3 3 4", "unmap 3 3", None),
        ] {
            let ours = format!("P {call}: page 9");
            let linux = format!("{ours}\n  told e {told}");
            assert_eq!(Rule::of(&guard, &linux, &ours), rule, "{linux}");
            assert_eq!(Rule::of(&guard, &ours, &linux), None, "{linux}");
            assert_eq!(Rule::of(&[], &linux, &ours), None, "no guard");
        }
    }

    #[test]
    fn no_rule_permits_that_a_store_ends_a_protection() {
        let stored = ["P write 1 2: pxw done faults 1".to_owned()];
        for (linux, ours) in [
            ("P pages: .pxwpsw", "P pages: .pxpsw"),
            ("P pages: .pxpsw", "P pages: .pxwpsw"),
            ("P pages: .pxwpwsw", "P pages: .pxpsw"),
            ("P pages: .pxw.", "P pages: .p."),
            ("P pages: .sw.", "P pages: .s."),
            ("P read 1: pxw 3 faults 0", "P read 1: px 3 faults 0"),
            ("P read 1: pxw 3 faults 0", "P read 1: px 4 faults 0"),
            (
                "P scan 1 2 0: 1 1-2:8 until 3",
                "P scan 1 2 0: 1 1-2:a until 3",
            ),
            ("P scan 1 2 1: 0 until 3", "P scan 1 2 1: 1 1-2:a until 3"),
            ("P scan 1 2 1: 1 1-2:a until 3", "P scan 1 2 1: 0 until 3"),
            (
                "P scan 1 2 0: 1 2-3:8 until 3",
                "P scan 1 2 0: 1 2-3:a until 3",
            ),
            ("P scan 1 2 2: 0 until 3", "P scan 1 2 2: 1 1-2:a until 3"),
            ("P read 2: pxw 3 faults 0", "P read 2: px 3 faults 0"),
        ] {
            assert_eq!(Rule::of(&stored, linux, ours), None, "{ours}");
        }
        for before in [
            "P write 1 2: px done faults 1",
            "P write 1 2: pxw SIGSEGV code 2 at 4160",
            "P read 1: pxw 3 faults 0",
        ] {
            let before = [before.to_owned()];
            let found = Rule::of(&before, "P pages: .pxw", "P pages: .px");
            assert_eq!(found, None, "{before:?}");
        }
    }

    #[test]
    fn pages_that_are_not_there_are_written_or_nothing() {
        let rule = Some(Rule::NotThere);
        #[rustfmt::skip]
        let rows = [
            ("scan 1 8 0", "2 1-2:2 3-4:2a until 9", "1 3-4:2a until 9",  rule),
            ("scan 1 8 0", "1 3-4:a until 9",        "0 until 9",         None),
            ("scan 1 8 0", "1 3-4:3 until 9",        "0 until 9",         None),
            ("scan 1 8 0", "0 until 9",              "1 3-4:2 until 9",   None),
            ("scan 1 8 2", "1 3-4:2 until 9",        "0 until 9",         None),
            ("find 1 8 0 0 0 0 9 0", "1 1-9:2 until 9", "1 1-9:0 until 9", rule),
            ("find 1 8 0 0 0 8 9 0", "1 1-9:2 until 9", "1 1-9:0 until 9", None),
            ("find 1 8 0 2 2 0 9 0", "0 until 9",       "1 1-9:0 until 9", rule),
            ("find 1 8 0 0 2 0 9 1", "1 1-2:2 until 2", "1 5-6:a until 6", rule),
            ("find 1 8 0 0 2 0 1 0", "1 1-2:a until 5", "1 1-2:a until 9", rule),
            ("find 1 8 0 0 2 0 1 0", "1 1-2:a until 5", "2 1-2:a 5-6:a until 9", None),
            ("find 1 8 0 0 2 0 9 0", "1 1-9:2 until 9", "1 1-8:2 until 8", None),
            ("find 3 8 0 2 0 34 13 4", "2 3-4:2a 7-8:2a until 11", "2 3-4:2a 4-7:0 until 7", rule),
            ("find 3 8 0 2 0 34 13 5", "2 3-4:2a 7-8:2a until 11", "2 3-4:2a 4-7:0 until 7", None),
        ];
        for (line, linux, ours, rule) in rows {
            let said = |found| format!("P {line}: {found}");
            assert_eq!(
                Rule::of(&[], &said(linux), &said(ours)),
                rule,
                "{line}: {ours}"
            );
        }
    }

    #[test]
    fn areas_are_kept_apart_by_guards_alone() {
        let guard = ["P advise 1 1 102: 0".to_owned()];
        let apart = "P maps:\n  0-1 rw-p 0 \n  1-2 rw-p 0 \n  2-4 r--p 0 ";
        for (ours, rule) in [
            (
                "P maps:\n  0-2 rw-p 0 \n  2-4 r--p 0 ",
                Some(Rule::GuardedApart),
            ),
            ("P maps:\n  0-1 rw-p 0 \n  2-4 r--p 0 ", None),
            ("P maps:\n  0-4 rw-p 0 ", None),
        ] {
            assert_eq!(Rule::of(&guard, apart, ours), rule, "{ours}");
            assert_eq!(Rule::of(&[], apart, ours), None, "no guard");
        }
        let one = "P maps:\n  0-2 rw-p 0 memory";
        assert_eq!(Rule::of(&guard, one, apart), None, "the other way round");
        let promised = "P maps:\n  0-2 r-xp 0 \n  2-4 rw-p 0 ";
        for (ours, rule) in [
            (
                "0-1 r-xp 0 \n  1-2 r-xp 0 \n  2-4 rw-p 0 ",
                Some(Rule::GuardedPromised),
            ),
            ("0-2 r-xp 0 \n  2-3 rw-p 0 \n  3-4 rw-p 0 ", None),
            ("0-1 r-xp 0 \n  1-2 r--p 0 \n  2-4 rw-p 0 ", None),
        ] {
            let ours = format!("P maps:\n  {ours}");
            assert_eq!(Rule::of(&guard, promised, &ours), rule, "{ours}");
            assert_eq!(Rule::of(&[], promised, &ours), None, "no guard");
        }
        for (files, rule) in [
            (
                "0-1 rw-p 0 memory\n  1-2 rw-p 1000 memory",
                Some(Rule::GuardedApart),
            ),
            ("0-1 rw-p 0 memory\n  1-2 rw-p 0 memory", None),
            ("0-1 rw-s 0 memory\n  1-2 rw-s 1000 memory", None),
        ] {
            let said = format!("P maps:\n  {files}");
            assert_eq!(Rule::of(&guard, &said, one), rule, "{files}");
        }
    }
}
