//! Words of the dialect that the project's prose was once written in.

use super::source::Source;

/// Words with which prose avoids naming an actor, and words for which the field has other ones.
const WORDS: &[&str] = &[
    "anybody", "heir", "heirs", "lineage", "lineages", "nobody", "payer", "payers", "promise",
    "promised", "promises", "relieved", "somebody", "stranger", "told", "unshown", "who",
];
/// Phrases of the same kind, in lower case and with single spaces.
const TURNS: &[&str] = &["now and then", "to be had", "so many of"];

/// Returns the numbers, from 1, of the lines whose prose has such a word or phrase.
pub fn dialect_lines(source: &Source) -> Vec<usize> {
    prose(source)
        .filter(|(_, text)| is_dialect(text))
        .map(|(line, _)| line)
        .collect()
}

/// Returns the prose of a file, by line: comments, and Markdown outside of blocks of code.
pub fn prose(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let is_markdown = source.path.ends_with(".md");
    let is_rust = source.is_rust();
    let (mut in_block, mut in_comment) = (false, false);
    source
        .text
        .lines()
        .enumerate()
        .filter_map(move |(at, line)| {
            let text = if is_markdown {
                let is_fence = line.trim_start().starts_with("```");
                in_block ^= is_fence;
                (!in_block && !is_fence && !line.starts_with("    ")).then_some(line)
            } else if is_rust {
                line.split_once("//").map(|(_, comment)| comment)
            } else {
                c_comment(line, &mut in_comment)
            };
            Some((at + 1, text?))
        })
}

fn c_comment<'a>(line: &'a str, in_comment: &mut bool) -> Option<&'a str> {
    let text = match (*in_comment, line.split_once("/*")) {
        (true, _) => line,
        (false, Some((_, comment))) => comment,
        (false, None) => return line.split_once("//").map(|(_, comment)| comment),
    };
    let end = text.split_once("*/");
    *in_comment = end.is_none();
    Some(end.map_or(text, |(comment, _)| comment))
}

fn is_dialect(text: &str) -> bool {
    // Text in backquotes is code.
    let plain: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    // A word in capitals is the name of a parameter.
    let words: Vec<String> = plain
        .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty() && (word.len() == 1 || *word != word.to_uppercase()))
        .map(str::to_lowercase)
        .collect();
    let is_dialect = |(at, word): (usize, &String)| {
        // A thread that runs "until told to stop" is good English.
        let is_order = word == "told" && words.get(at + 1).is_some_and(|next| next == "to");
        WORDS.contains(&&**word) && !is_order
    };
    words.iter().enumerate().any(is_dialect)
        || TURNS.iter().any(|turn| {
            let turn: Vec<&str> = turn.split(' ').collect();
            words.windows(turn.len()).any(|found| found == turn)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialect_is_found_in_prose_alone() {
        for (text, expected) in [
            ("Who needs a page waits.", true),
            ("It is told of the change.", true),
            ("It runs until told to stop.", false),
            ("the parameter WHO", false),
            ("Checked now and then.", true),
            ("The faulting CPU polls for completion.", false),
            ("`who` is a program", false),
            ("a wholesome whole", false),
        ] {
            assert_eq!(is_dialect(text), expected, "{text}");
        }
    }

    #[test]
    fn prose_is_comments_and_text_outside_of_blocks() {
        for (path, text, expected) in [
            ("a.rs", "let who = 1; // nobody waits\n\"who\"", vec![1]),
            (
                "a.c",
                "int who; /* told\n * nobody\n */ who\n// who",
                vec![1, 2, 4],
            ),
            ("a.md", "who\n```\nwho\n```\n    who\nwho", vec![1, 6]),
        ] {
            let source = Source {
                path: path.to_owned(),
                text: text.to_owned(),
            };
            assert_eq!(dialect_lines(&source), expected, "{path}");
        }
    }
}
