//! Scripts of memory operations: generates random scripts, and writes and parses them as text.

use std::collections::BTreeSet;

use super::random::Random;

/// The number of pages of the range on which scripts operate. `programs/fuzz/interpret.c` has the same constant.
const PAGES: u64 = 24;
/// The number of pages of the file at the start of a script.
const FILE_PAGES: u64 = 12;
/// The maximum length, in pages, of the range of most operations.
const LONGEST: u64 = 8;

/// The lines of a script, without its title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The operations, one in each line, by the parent (P) or the child (C).
    pub lines: Vec<String>,
}

/// The numbers of the `madvise` advice in scripts (include/uapi/asm-generic/mman-common.h of Linux 7.2). A number that
/// occurs more than once is more frequent. The numbers are those of NORMAL, RANDOM, SEQUENTIAL, WILLNEED, DONTNEED,
/// FREE, REMOVE, DONTFORK, DOFORK, DONTDUMP, DODUMP, WIPEONFORK, KEEPONFORK, COLD, POPULATE_READ, POPULATE_WRITE,
/// DONTNEED_LOCKED, and two invalid numbers.
const ADVICE: &[u64] = &[
    0, 1, 2, 3, 8, 8, 8, 4, 4, 4, 4, 9, 10, 11, 16, 17, 18, 19, 20, 22, 22, 23, 23, 24, 7, 77,
];
/// The category of `PAGEMAP_SCAN` that not every kernel supports (include/uapi/linux/fs.h).
const SOFT_DIRTY: u64 = 1 << 7;
/// `UFFD_FEATURE_RWP` and `UFFD_FEATURE_RWP_ASYNC`.
const ACCESSES: [u64; 2] = [1 << 17, 1 << 18];
/// The advice GUARD_INSTALL, twice, and GUARD_REMOVE.
const GUARDS: &[u64] = &[102, 102, 103];

/// The optional features of a kernel, as the interpreter names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Abilities(pub BTreeSet<String>);

impl Abilities {
    /// Parses the names of features, one in each line, that the interpreter printed.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().map(str::to_owned).collect())
    }

    /// Returns whether the kernel has this feature.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// The properties of a random script.
struct Kind<'a> {
    abilities: &'a Abilities,
    /// Whether the script registers memory with userfaultfds.
    watched: bool,
    /// The userfaultfd with which the script registers most of the memory.
    watcher: char,
    /// Whether `watcher` is for read-write protection.
    accesses: bool,
    /// The userfaultfds whose messages the script reads.
    told: &'static [char],
}

/// The names of the userfaultfds whose messages a script can read.
const TOLD: [char; 2] = ['e', 'v'];
/// The features that a userfaultfd in [`TOLD`] can request (include/uapi/linux/userfaultfd.h), each with a number. A
/// script requests a feature with the number `n` with a probability of 1 in `n`, or 3 in 4 if the number is 1. The
/// features are `UFFD_FEATURE_EVENT_FORK`, `_REMAP`, `_REMOVE`, `_UNMAP`; `UFFD_FEATURE_THREAD_ID`, `_EXACT_ADDRESS`,
/// `_WP_UNPOPULATED`; `UFFD_FEATURE_SIGBUS`, `_WP_ASYNC`.
const FEATURES: [(u64, u64); 9] = [
    (1 << 1, 1),
    (1 << 2, 2),
    (1 << 3, 1),
    (1 << 6, 1),
    (1 << 8, 2),
    (1 << 11, 2),
    (1 << 13, 2),
    (1 << 7, 6),
    (1 << 15, 8),
];
/// The ways to answer messages, as letters that the interpreter understands. A way that occurs more than once is chosen
/// more often.
const ANSWERS: &[&str] = &["k", "k", "k", "kw", "kd", "kz", "kx", "ku", "b", "z", "q"];

impl<'a> Kind<'a> {
    /// Chooses random properties.
    fn random(random: &mut Random, abilities: &'a Abilities) -> Self {
        let watched = abilities.has("watch") && random.one_in(2);
        let told = match random.below(4) {
            0 if watched && abilities.has("events") => &TOLD[..],
            1 if watched && abilities.has("events") => &TOLD[..1],
            _ => &[],
        };
        let kind = Self {
            abilities,
            watched,
            told,
            accesses: watched && abilities.has("accesses") && random.one_in(2),
            watcher: if let Some(told) = told.first() {
                *told
            } else if abilities.has("watch-async") && random.one_in(2) {
                'a'
            } else if random.one_in(4) {
                't'
            } else {
                's'
            },
        };
        Self {
            watcher: if kind.accesses && told.is_empty() {
                'r'
            } else {
                kind.watcher
            },
            ..kind
        }
    }

    /// Returns the name of a random userfaultfd. It is most often the userfaultfd with which most of the memory is
    /// registered.
    fn who(&self, random: &mut Random) -> char {
        match random.below(8) {
            0 => 't',
            1 => 's',
            2 if self.abilities.has("watch-async") => 'a',
            5 if self.abilities.has("accesses") => 'r',
            3 if !self.told.is_empty() => 'h',
            4 if !self.told.is_empty() => random.pick(self.told),
            _ => self.watcher,
        }
    }
}

/// Returns an operation that creates a userfaultfd whose messages the script reads.
fn agree(random: &mut Random, who: char, kind: &Kind<'_>) -> String {
    let mut features = FEATURES.iter().fold(0, |features, (bit, rarity)| {
        // A feature with the number 1 is requested with a probability of 3 in 4.
        let asked = if *rarity == 1 {
            !random.one_in(4)
        } else {
            random.one_in(*rarity)
        };
        if asked { features | bit } else { features }
    });
    if kind.accesses {
        features |= ACCESSES[0] | random.pick(&[0, ACCESSES[1]]);
    }
    format!("agree {who} {features:x} {}", random.pick(ANSWERS))
}

/// Returns an operation that may cause a userfaultfd event.
fn event(random: &mut Random) -> String {
    let (start, length) = range(random);
    match random.below(8) {
        0..=1 => format!("unmap {start} {length}"),
        2..=4 => remap(random),
        5 => map(random),
        _ => format!("advise {start} {length} {}", random.pick(&[4, 4, 8, 9, 24])),
    }
}

impl Script {
    /// Generates a script of about `length` operations that need no feature outside of `abilities`.
    pub fn random(random: &mut Random, length: u64, abilities: &Abilities) -> Self {
        let kind = Kind::random(random, abilities);
        let mut lines = Vec::new();
        let mut child = false;
        // Map memory first, so that most operations find a mapping.
        for _ in 0..random.within(1, 3) {
            lines.push(format!("P {}", map(random)));
        }
        for who in kind.told {
            lines.push(format!("P {}", agree(random, *who, &kind)));
        }
        if kind.accesses && !random.one_in(4) {
            lines.extend(populated(random));
        }
        if kind.watched && (kind.accesses || random.one_in(2)) {
            // Register most of the memory at once, because a call that write-protects a range stops at memory that is
            // not registered.
            let modes = if kind.accesses {
                ["r", "r", "r", "mr"]
            } else {
                ["w", "w", "w", "mw"]
            };
            let mode = random.pick(&modes);
            lines.push(format!("P watch 0 {PAGES} {} {mode}", kind.watcher));
        }
        for _ in 0..length {
            if !child && random.one_in(12) {
                lines.push("P fork".to_owned());
                child = true;
            } else if child && random.one_in(10) {
                lines.extend(["C exit", "P join"].map(str::to_owned));
                child = false;
            }
            let who = if child && random.one_in(2) { 'C' } else { 'P' };
            // The child has no userfaultfd.
            if who == 'P' && kind.watched && random.one_in(3) {
                lines.push(format!("P {}", watching(random, &kind)));
            } else if !kind.told.is_empty() && random.one_in(5) {
                lines.push(format!("{who} {}", event(random)));
            } else {
                lines.push(format!("{who} {}", operation(random, &kind)));
            }
            if random.one_in(8) {
                lines.push(format!("{who} maps"));
            }
            if random.one_in(8) {
                lines.push(format!("{who} pages"));
            }
        }
        if child {
            lines.extend(["C maps", "C contents", "C exit", "P join"].map(str::to_owned));
        }
        lines.extend(["P maps", "P pages", "P totals", "P contents"].map(str::to_owned));
        Self { lines }
    }

    /// Parses the text that [`write`](Self::write) produces, or a handwritten script. Skips empty lines and lines that
    /// begin with #.
    pub fn parse(text: &str) -> Self {
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| {
                !line.is_empty() && !line.starts_with('#') && !line.starts_with("script")
            })
            .map(str::to_owned)
            .collect();
        Self { lines }
    }

    /// Returns the feature that the script needs and that is not in `abilities`, if any. Checks only for protection
    /// keys, which depend on the processor. A Linux that lacks any other feature is never used.
    pub fn lacks(&self, abilities: &Abilities) -> Option<&'static str> {
        let operation = |line: &String| {
            let mut words = line.split_whitespace();
            let first = words.next();
            // The name of the process may precede the operation.
            if matches!(first, Some("P" | "C")) {
                words.next()
            } else {
                first
            }
            .map(str::to_owned)
        };
        let mut operations = self.lines.iter().filter_map(operation);
        let uses_keys = operations.any(|name| matches!(name.as_str(), "key" | "rights"));
        (uses_keys && !abilities.has("keys")).then_some("keys")
    }

    /// Appends the text of the script, with its title, to `out`.
    pub fn write(&self, number: usize, out: &mut String) {
        out.push_str(&format!("script {number}\n"));
        for line in &self.lines {
            out.push_str(line);
            out.push('\n');
        }
    }

    /// Returns the script without the lines `from..to`, or `None` if it would then not be balanced: a fork would lack
    /// its exit or its join, for example.
    pub fn without(&self, from: usize, to: usize) -> Option<Self> {
        let mut lines = self.lines.clone();
        lines.drain(from..to);
        let script = Self { lines };
        script.is_balanced().then_some(script)
    }

    /// Returns whether every fork has its exit and its join, in this order, and the child has operations only between
    /// the fork and the exit.
    fn is_balanced(&self) -> bool {
        #[derive(PartialEq)]
        enum Child {
            None,
            Lives,
            Exited,
        }
        let mut child = Child::None;
        for line in &self.lines {
            match (line.as_str(), &child) {
                ("P fork", Child::None) => child = Child::Lives,
                ("C exit", Child::Lives) => child = Child::Exited,
                ("P join", Child::Exited) => child = Child::None,
                ("P fork" | "C exit" | "P join", _) => return false,
                (other, Child::Lives) if other.starts_with('C') => {}
                (other, Child::None | Child::Exited) if other.starts_with('C') => return false,
                // After the exit of the child, the parent must join before any other operation.
                (_, Child::Exited) => return false,
                (_, Child::None | Child::Lives) => {}
            }
        }
        child == Child::None
    }
}

fn protection(random: &mut Random) -> &'static str {
    random.pick(&["-", "r", "r", "rw", "rw", "rw", "rx", "rwx"])
}

/// Returns a random start and length, in pages, of a part of the range.
fn range(random: &mut Random) -> (u64, u64) {
    let start = random.below(PAGES);
    let length = random.within(1, LONGEST).min(PAGES - start);
    (start, length)
}

fn map(random: &mut Random) -> String {
    let (start, length) = range(random);
    let mut kind = random.pick(&["a", "a", "a", "s", "F", "f", "f"]).to_owned();
    for (flag, rarity) in [('n', 6), ('p', 6), ('r', 10), ('l', 12)] {
        if random.one_in(rarity) {
            kind.push(flag);
        }
    }
    let offset = random.below(FILE_PAGES + 2);
    format!(
        "map {start} {length} {} {kind} {offset}",
        protection(random)
    )
}

fn remap(random: &mut Random) -> String {
    let (start, length) = range(random);
    let longer = if random.one_in(3) {
        random.within(1, LONGEST)
    } else {
        length
    };
    let to = match random.below(5) {
        0 => "-1".to_owned(),
        1 => "-2".to_owned(),
        2 => (1000 + random.below(PAGES - LONGEST)).to_string(),
        _ => random.below(PAGES - LONGEST).to_string(),
    };
    format!("remap {start} {length} {longer} {to}")
}

fn advice(random: &mut Random, kind: &Kind<'_>) -> u64 {
    match random.below(8) {
        0 | 1 if kind.abilities.has("guard") => random.pick(GUARDS),
        _ => random.pick(ADVICE),
    }
}

/// Returns an operation on memory that is registered with a userfaultfd.
fn watching(random: &mut Random, kind: &Kind<'_>) -> String {
    let (start, length) = range(random);
    let who = kind.who(random);
    let has = |name| kind.abilities.has(name);
    match random.below(22) {
        0..=3 => {
            let modes = if who == 'r' || kind.accesses && random.one_in(2) {
                ["r", "r", "r", "r", "mr", "r", "rn", "mrn"]
            } else {
                ["w", "w", "w", "m", "mw", "n", "mn", "mwn"]
            };
            let mode = random.pick(if has("minor") { &modes } else { &modes[..5] });
            format!("watch {start} {length} {who} {mode}")
        }
        5..=21 if kind.accesses && !random.one_in(4) => armed(random, kind.watcher),
        4 => format!("unwatch {start} {length} {who}"),
        5..=8 => format!("wp {start} {length} {who} {}", random.pick(&[1, 1, 1, 0])),
        9..=10 => {
            let from = random.below(FILE_PAGES - LONGEST);
            format!("fill {start} {length} {from} {} {who}", random.below(2))
        }
        11 => format!("zero {start} {length} {who}"),
        12 if has("minor") => format!("show {start} {length} {} {who}", random.below(2)),
        13 if has("poison") && random.one_in(2) => {
            format!("poison {start} {} {who}", length.min(2))
        }
        14..=16 if has("move") => {
            let from = random.below(PAGES + 1 - length);
            let holes = random.pick(&[1, 1, 0]);
            format!("move {start} {length} {from} {holes} {who}")
        }
        17..=19 if has("scan") => {
            let kinds = if has("accesses") {
                [0, 4, 1, 2, 4, 3]
            } else {
                [0, 0, 1, 2, 2, 3]
            };
            format!("scan {start} {length} {}", random.pick(&kinds))
        }
        20 if has("scan") => find(random, kind, start, length),
        _ => format!("write {start} {}", random.below(100)),
    }
}

/// Returns operations that map most of the range and store to some pages. They are needed because a call that
/// read-write-protects a range stops at memory that is not registered, and protects only present pages.
fn populated(random: &mut Random) -> Vec<String> {
    let kind = random.pick(&["a", "a", "ap", "s", "F", "f"]);
    let mut lines = vec![format!("P map 2 20 rw {kind} 0")];
    for _ in 0..random.within(2, 12) {
        let (page, value) = (random.within(2, 21), random.below(100));
        lines.push(format!("P write {page} {value}"));
    }
    lines
}

/// Returns an operation for a script with read-write protection: most often one that protects a range, otherwise one
/// that removes the protection, changes the mode, scans, accesses or pages out.
fn armed(random: &mut Random, who: char) -> String {
    let (start, length) = range(random);
    match random.below(12) {
        0 => format!("mode {who} {}", random.below(2)),
        1 => format!("arm {start} {length} {who} 0"),
        2..=3 => format!("scan {start} {length} 4"),
        4 => format!("read {start}"),
        5 => format!("write {start} {length}"),
        6 => format!("out {start} {length}"),
        _ => format!("arm {start} {length} {who} 1"),
    }
}

/// Returns a `PAGEMAP_SCAN` with random masks. Each mask has at most two categories, so that pages are likely to match.
fn find(random: &mut Random, kind: &Kind<'_>, start: u64, length: u64) -> String {
    // `PAGE_IS_ACCESSED` is the tenth category.
    let categories = if kind.accesses { 10 } else { 9 };
    let among = if kind.abilities.has("soft-dirty") {
        !0
    } else {
        !SOFT_DIRTY
    };
    let mut mask =
        || (0..random.below(3)).fold(0, |mask, _| mask | 1 << random.below(categories)) & among;
    let (inverted, all, any) = (mask(), mask(), mask());
    let flags = random.pick(&[0, 0, 1, 2, 3]);
    let (room, most) = (random.within(1, PAGES), random.below(5));
    format!("find {start} {length} {flags} {inverted} {all} {any} {room} {most}")
}

fn operation(random: &mut Random, kind: &Kind<'_>) -> String {
    let (start, length) = range(random);
    match random.below(45) {
        0..=2 => map(random),
        3 => format!("unmap {start} {length}"),
        4..=9 => format!("protect {start} {length} {}", protection(random)),
        10..=11 => remap(random),
        12..=14 => format!("advise {start} {length} {}", advice(random, kind)),
        15 => format!("lock {start} {length}"),
        16 => format!("lockfault {start} {length}"),
        17 => format!("unlock {start} {length}"),
        27..=32 => format!("read {start}"),
        33 => format!("kread {start} {length} {}", random.below(FILE_PAGES)),
        34 => format!("kwrite {start} {length}"),
        35 => format!("resident {start} {length}"),
        36 => format!("sync {start} {length} {}", random.pick(&[1, 2, 4, 6, 5])),
        37 => format!("truncate {}", random.within(0, FILE_PAGES + 4)),
        38 => format!("punch {start} {length}"),
        39 if kind.abilities.has("seal") && random.one_in(3) => format!("seal {start} {length}"),
        41 if kind.abilities.has("keys") => {
            let key = random.below(3);
            format!("key {start} {length} {} {key}", protection(random))
        }
        42 if kind.abilities.has("keys") => {
            format!("rights {} {}", random.within(1, 2), random.below(4))
        }
        43 => format!("out {start} {length}"),
        40 if kind.abilities.has("soft-dirty") => random.pick(&["clear", "dirtied"]).to_owned(),
        _ => format!("write {start} {}", random.below(100)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_processors() {
        for (text, keys, missing) in [
            ("P key 3 6 r 2", false, Some("keys")),
            ("P map 1 8 rw a 3\nC rights 2 1", false, Some("keys")),
            ("P key 3 6 r 2", true, None),
            ("P read 5", false, None),
        ] {
            let abilities = Abilities::parse(if keys { "keys" } else { "scan" });
            assert_eq!(Script::parse(text).lacks(&abilities), missing, "{text}");
        }
    }

    #[test]
    fn random_scripts_are_balanced_and_repeat() {
        let abilities = Abilities::parse(
            "watch\nwatch-async\nevents\nscan\nguard\nseal\nkeys\nmove\npoison\nminor\nsoft-dirty\n",
        );
        for seed in 0..200 {
            let random = || Script::random(&mut Random::new(seed), 40, &abilities);
            let script = random();
            assert!(script.is_balanced(), "{:#?}", script.lines);
            assert_eq!(script, random());
            let mut text = String::new();
            script.write(3, &mut text);
            assert_eq!(Script::parse(&text), script);
        }
    }

    #[test]
    fn a_fork_keeps_its_end() {
        let script = Script::parse("P fork\nC read 1\nC exit\nP join\nP maps\n");
        assert!(script.without(1, 2).is_some() && script.without(0, 4).is_some());
        assert!(script.without(0, 1).is_none());
        assert!(script.without(2, 3).is_none() && script.without(3, 4).is_none());
    }
}
