//! Scripts of memory operations: made at random, written as text, taken apart again.

use super::random::Random;

/// Pages of the range that scripts work on; `programs/fuzz/interpret.c` has the same.
const PAGES: u64 = 24;
/// Pages of the file at the start of a script.
const FILE_PAGES: u64 = 12;
/// The longest range of most operations.
const LONGEST: u64 = 8;

/// The lines of a script, without its title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Each is one operation of the parent (P) or the child (C).
    pub lines: Vec<String>,
}

/// The advice that both kernels must treat alike, by its number (include/uapi/asm-generic/mman-common.h of Linux 7.2):
/// DONTNEED, REMOVE, DONTFORK, DOFORK, WIPEONFORK, KEEPONFORK, COLD, POPULATE_READ, POPULATE_WRITE, and one that is none.
const ADVICE: &[u64] = &[4, 4, 4, 9, 10, 11, 18, 19, 20, 22, 23, 77];

impl Script {
    /// A script of about `length` operations.
    pub fn random(random: &mut Random, length: u64) -> Self {
        let mut lines = Vec::new();
        let mut child = false;
        // Most operations should meet a mapping.
        for _ in 0..random.within(1, 3) {
            lines.push(format!("P {}", map(random)));
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
            lines.push(format!("{who} {}", operation(random)));
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

    /// Reads what [`write`](Self::write) wrote, or someone: lines that are empty or begin with # are passed over.
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

    /// Appends it to a file of scripts.
    pub fn write(&self, number: usize, out: &mut String) {
        out.push_str(&format!("script {number}\n"));
        for line in &self.lines {
            out.push_str(line);
            out.push('\n');
        }
    }

    /// The script without some of its lines; `None` where a fork would lose its end.
    pub fn without(&self, from: usize, to: usize) -> Option<Self> {
        let mut lines = self.lines.clone();
        lines.drain(from..to);
        let script = Self { lines };
        script.is_balanced().then_some(script)
    }

    /// Every fork has its exit and join, in this order, and the child acts only between them.
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
                // The parent must come to its join next: the child's end passes the turn to nobody.
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

/// A start and a length within the range.
fn range(random: &mut Random) -> (u64, u64) {
    let start = random.below(PAGES);
    let length = random.within(1, LONGEST).min(PAGES - start);
    (start, length)
}

fn map(random: &mut Random) -> String {
    let (start, length) = range(random);
    let mut kind = random.pick(&["a", "a", "a", "s", "f", "f", "F"]).to_owned();
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
    let to = match random.below(4) {
        0 => "-1".to_owned(),
        1 => (1000 + random.below(PAGES - LONGEST)).to_string(),
        _ => random.below(PAGES - LONGEST).to_string(),
    };
    format!("remap {start} {length} {longer} {to}")
}

fn operation(random: &mut Random) -> String {
    let (start, length) = range(random);
    match random.below(40) {
        0..=2 => map(random),
        3 => format!("unmap {start} {length}"),
        4..=9 => format!("protect {start} {length} {}", protection(random)),
        10..=11 => remap(random),
        12..=14 => format!("advise {start} {length} {}", random.pick(ADVICE)),
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
        _ => format!("write {start} {}", random.below(100)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_scripts_are_balanced_and_repeat() {
        for seed in 0..200 {
            let script = Script::random(&mut Random::new(seed), 40);
            assert!(script.is_balanced(), "{:#?}", script.lines);
            assert_eq!(script, Script::random(&mut Random::new(seed), 40));
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
