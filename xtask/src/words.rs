//! Reads the words that the prose must not use. Vale and `cargo xtask house` share the list of these words.

use std::path::Path;

/// The text of the list.
const LIST: &str = include_str!("../../.vale/styles/Memwright/Words.yml");

/// A word or phrase, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry<'a> {
    text: &'a str,
    /// Texts that permit the word if they precede it.
    not_after: Vec<&'a str>,
    /// Texts that permit the word if they follow it.
    not_before: Vec<&'a str>,
}

/// The words that the prose must not use.
pub struct Words<'a>(Vec<Entry<'a>>);

impl Words<'static> {
    /// Returns the words of the list.
    pub fn read() -> Self {
        Self::parse(LIST)
    }
}

impl<'a> Words<'a> {
    /// Parses the keys of the YAML map `swap`, one on each line. The map must be the last of the text.
    fn parse(list: &'a str) -> Self {
        let lines = list.lines().skip_while(|line| *line != "swap:").skip(1);
        let keys = lines.filter_map(|line| {
            let line = line.trim();
            let key = match line.strip_prefix('\'') {
                Some(quoted) => quoted.split_once("':")?.0,
                None => line.split_once(": ")?.0,
            };
            (!line.starts_with('#')).then_some(key)
        });
        Self(keys.map(Entry::parse).collect())
    }

    /// Returns whether a line of prose contains one of the words. Ignores text in backquotes, names of files, and words
    /// in capitals, which are names of parameters.
    pub fn are_in(&self, line: &str) -> bool {
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let words: Vec<String> = plain.split_whitespace().map(lowered).collect();
        let text = words.join(" ");
        self.0.iter().any(|entry| entry.is_in(&text))
    }
}

impl<'a> Entry<'a> {
    /// Parses a key: literal text with `(?<!...)` before it and `(?!...)` after it.
    fn parse(key: &'a str) -> Self {
        let (mut text, mut not_after, mut not_before) = (key, Vec::new(), Vec::new());
        while let Some((before, rest)) = text
            .strip_prefix("(?<!")
            .and_then(|rest| rest.split_once(')'))
        {
            not_after.push(before);
            text = rest;
        }
        while let Some((rest, after)) = text
            .strip_suffix(')')
            .and_then(|rest| rest.rsplit_once("(?!"))
        {
            not_before.push(after);
            text = rest;
        }
        Self {
            text,
            not_after,
            not_before,
        }
    }

    fn is_in(&self, text: &str) -> bool {
        let inside = |letter: char| letter.is_alphanumeric() || letter == '_';
        text.match_indices(self.text).any(|(at, found)| {
            let (before, after) = (&text[..at], &text[at + found.len()..]);
            let is_whole = !before.ends_with(inside)
                && (!found.ends_with(inside) || !after.starts_with(inside));
            is_whole
                && !self.not_after.iter().any(|one| before.ends_with(one))
                && !self.not_before.iter().any(|one| after.starts_with(one))
        })
    }
}

/// Returns a word in lower case, or a dash if the word is the name of a file or a parameter.
fn lowered(word: &str) -> String {
    let bare = word.trim_matches(|letter: char| !letter.is_alphanumeric());
    let kind = Path::new(bare).extension().and_then(|kind| kind.to_str());
    let is_file = word.contains('/') || matches!(kind, Some("rs" | "c" | "h" | "md"));
    let is_name =
        bare.len() > 1 && bare.chars().any(char::is_alphabetic) && bare == bare.to_uppercase();
    match is_file || is_name {
        true => "-".to_owned(),
        false => word.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_understood() {
        let Words(entries) = Words::read();
        let keys = LIST.split_once("swap:\n").map(|(_, keys)| keys);
        let lines = keys.unwrap_or_default().lines().map(str::trim);
        let count = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .count();
        assert_eq!(entries.len(), count);
        assert!(count > 50);
        for Entry { text, .. } in entries {
            let is_literal = |letter: char| letter.is_alphanumeric() || " _':,".contains(letter);
            assert!(text.chars().all(is_literal), "{text}");
        }
    }

    #[test]
    fn keys_have_text_beside_which_they_are_allowed() {
        let list = "extends: x\nswap:\n  # Text.\n  '(?<!set )(?<!step )aside': a: b\n  told(?! to): c\n  'no record:': d\n  now and then: e\n";
        let Words(entries) = Words::parse(list);
        let entry = |text, not_after: &[&'static str], not_before: &[&'static str]| Entry {
            text,
            not_after: not_after.to_vec(),
            not_before: not_before.to_vec(),
        };
        let expected = [
            entry("aside", &["set ", "step "], &[]),
            entry("told", &[], &[" to"]),
            entry("no record:", &[], &[]),
            entry("now and then", &[], &[]),
        ];
        assert_eq!(entries, expected);
    }

    #[test]
    fn words_are_found_in_prose_alone() {
        let words = Words::read();
        for (text, expected) in [
            ("Who needs a page waits.", true),
            ("It is told of the change.", true),
            ("It runs until told to stop.", false),
            ("the parameter WHO", false),
            ("Checked now and then.", true),
            ("The faulting CPU polls for completion.", false),
            ("`who` is a program", false),
            ("a wholesome whole", false),
            ("frames that are set aside", false),
            ("(aside)", true),
            ("see [quiet.rs](../quiet.rs) and quiet.rs", false),
            ("no record: x", true),
            ("no record of it", false),
        ] {
            assert_eq!(words.are_in(text), expected, "{text}");
        }
    }
}
