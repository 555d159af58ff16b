//! The stays of a walk, and their counts.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::calls::Call;

/// A maximal part of a walk in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    pub file: String,
    /// The functions that run during the stay, in the order in which they first run.
    pub functions: Vec<String>,
}

/// A file that a walk enters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub file: String,
    /// The function through which the walk enters the file.
    pub function: String,
    /// The files that the walk enters from this one. A file that is not new is included only if it leads to a new file.
    pub entries: Vec<Entry>,
}

/// The figures of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub stays: usize,
    pub files: usize,
    pub crossings: usize,
    pub returns: usize,
}

impl Counts {
    pub const HEAD: &'static str = "   stays   files  crossings  returns";

    /// Returns the figures as a line of a table with the header [`HEAD`](Self::HEAD).
    pub fn line(&self) -> String {
        format!(
            "{:>8}{:>8}{:>11}{:>9}",
            self.stays, self.files, self.crossings, self.returns
        )
    }
}

/// A walk: the path of a reader through the calls and returns of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    pub stays: Vec<Stay>,
    /// The files in the order in which the walk enters them.
    pub files: Vec<String>,
    /// The files as a tree. A file is in the tree more than once only if a later entry leads to a new file.
    pub entries: Vec<Entry>,
}

impl Walk {
    /// Returns the walk through these calls.
    pub fn of(calls: &[Call<'_>]) -> Self {
        let mut walk = Self::default();
        let mut entries = Vec::new();
        for call in calls {
            walk.follow(call, "", &mut entries);
        }
        walk.entries = entries;
        walk
    }

    /// Adds a call from a function in the file `from` to the walk. `entries` are the files entered from that file.
    fn follow(&mut self, call: &Call<'_>, from: &str, entries: &mut Vec<Entry>) {
        let function = call.function;
        self.be_in(&function.file, &function.name);
        if from == function.file {
            return self.follow_all(call, entries);
        }
        let is_new = !self.files.contains(&function.file);
        if is_new {
            self.files.push(function.file.clone());
        }
        let mut inner = Vec::new();
        self.follow_all(call, &mut inner);
        match entries.last_mut() {
            Some(last) if last.file == function.file => last.entries.append(&mut inner),
            _ if is_new || !inner.is_empty() => entries.push(Entry {
                file: function.file.clone(),
                function: function.name.clone(),
                entries: inner,
            }),
            _ => {}
        }
    }

    /// Adds the calls inside a call, and the return from each, to the walk.
    fn follow_all(&mut self, call: &Call<'_>, entries: &mut Vec<Entry>) {
        for inner in &call.calls {
            self.follow(inner, &call.function.file, entries);
            self.be_in(&call.function.file, &call.function.name);
        }
    }

    fn be_in(&mut self, file: &str, function: &str) {
        let current = self.stays.last_mut().filter(|stay| stay.file == file);
        match current {
            Some(stay) if stay.functions.iter().any(|known| known == function) => {}
            Some(stay) => stay.functions.push(function.to_owned()),
            None => self.stays.push(Stay {
                file: file.to_owned(),
                functions: vec![function.to_owned()],
            }),
        }
    }

    /// Returns the figures of the walk.
    pub fn counts(&self) -> Counts {
        let pairs = self.stays.windows(2);
        let crossings = pairs.filter(|pair| crate_of(&pair[0].file) != crate_of(&pair[1].file));
        Counts {
            stays: self.stays.len(),
            files: self.files.len(),
            crossings: crossings.count(),
            returns: self.stays.len() - self.files.len(),
        }
    }

    /// Returns the pair of files between which the walk switches most often, with the number of switches; `None` for a
    /// walk with one stay.
    pub fn ping_pong(&self) -> Option<(usize, [&str; 2])> {
        let mut changes: BTreeMap<[&str; 2], usize> = BTreeMap::new();
        for pair in self.stays.windows(2) {
            let mut files = [pair[0].file.as_str(), pair[1].file.as_str()];
            files.sort_unstable();
            *changes.entry(files).or_default() += 1;
        }
        let most = changes.into_iter().rev().max_by_key(|(_, count)| *count);
        most.map(|(files, count)| (count, files))
    }

    /// Returns the stays as text, one line for each.
    pub fn table(&self) -> String {
        let mut table = String::new();
        for (index, stay) in self.stays.iter().enumerate() {
            let (number, file) = (index + 1, place(&stay.file));
            let functions = stay.functions.join(", ");
            // Writing to a string does not fail.
            let _ = writeln!(table, "{number:>4}  {file:<40} {functions}");
        }
        table
    }

    /// Returns the figures as sentences.
    pub fn summary(&self) -> String {
        let Counts {
            stays,
            files,
            crossings,
            returns,
        } = self.counts();
        let mut text = format!(
            "{stays} stays in {files} files, {crossings} crossings between crates, {returns} returns to a file"
        );
        if let Some((count, [one, other])) = self.ping_pong() {
            let _ = write!(
                text,
                "; {count} changes between {} and {}",
                place(one),
                place(other)
            );
        }
        text
    }
}

/// Returns the crate of a file.
fn crate_of(file: &str) -> &str {
    file.split('/').nth(1).unwrap_or(file)
}

/// Returns the name of a file in `ARCHITECTURE.md`, such as `memwright/src/fault/anon.rs`.
pub fn place(file: &str) -> &str {
    file.strip_prefix("crates/").unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::functions::Function;

    fn function(file: &str, name: &str) -> Function {
        Function {
            address: 0,
            path: name.to_owned(),
            name: name.to_owned(),
            file: file.to_owned(),
            lines: 9,
            derived: false,
        }
    }

    fn call<'a>(function: &'a Function, calls: Vec<Call<'a>>) -> Call<'a> {
        Call { function, calls }
    }

    /// Returns the functions of entries as text. After a function, brackets contain the functions of the entries below
    /// its entry.
    fn text(entries: &[Entry]) -> String {
        let one = |entry: &Entry| match entry.entries.as_slice() {
            [] => entry.function.clone(),
            inner => format!("{}({})", entry.function, text(inner)),
        };
        entries.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    fn files(walk: &Walk) -> Vec<&str> {
        walk.stays.iter().map(|stay| stay.file.as_str()).collect()
    }

    #[test]
    fn a_walk_goes_into_calls_and_back() {
        let (low, high, other) = (
            function("crates/a/src/low.rs", "low"),
            function("crates/b/src/high.rs", "high"),
            function("crates/b/src/other.rs", "other"),
        );
        let help = function("crates/b/src/high.rs", "help");
        let walk = Walk::of(&[call(
            &high,
            vec![
                call(&help, vec![call(&low, vec![])]),
                call(&low, vec![]),
                call(&other, vec![]),
            ],
        )]);
        let (a, b, c) = (
            "crates/a/src/low.rs",
            "crates/b/src/high.rs",
            "crates/b/src/other.rs",
        );
        assert_eq!(files(&walk), [b, a, b, a, b, c, b]);
        let expected = Counts {
            stays: 7,
            files: 3,
            crossings: 4,
            returns: 4,
        };
        assert_eq!(walk.counts(), expected);
        assert_eq!(walk.ping_pong(), Some((4, [a, b])));
        assert_eq!(walk.stays[0].functions, ["high", "help"]);
        assert_eq!(walk.files, [b, a, c]);
        assert_eq!(text(&walk.entries), "high(low other)");
    }

    #[test]
    fn a_file_that_leads_to_a_new_one_is_listed_again() {
        let file = |name: &str| function(&format!("crates/a/src/{name}.rs"), name);
        let [main, low, high, new] = ["main", "low", "high", "new"].map(file);
        let leads = |to| call(&low, vec![call(to, vec![])]);
        let walk = Walk::of(&[call(
            &main,
            vec![
                call(&low, vec![]),
                call(&high, vec![call(&low, vec![]), leads(&new)]),
                call(&low, vec![]),
                leads(&new),
            ],
        )]);
        assert_eq!(text(&walk.entries), "main(low high(low(new)))");
    }

    #[test]
    fn a_walk_without_calls_is_empty() {
        let walk = Walk::of(&[]);
        assert_eq!(walk.counts(), Counts::default());
        assert_eq!(walk.ping_pong(), None);
    }

    #[test]
    fn places_begin_with_the_crate() {
        for (file, expected) in [
            ("crates/memwright/src/lib.rs", "memwright/src/lib.rs"),
            ("xtask/src/main.rs", "xtask/src/main.rs"),
        ] {
            assert_eq!(place(file), expected);
        }
    }
}
