//! Finds the prose of a file, and the lines with words that the prose must not use.

use super::source::Source;
use crate::words::Words;

/// Returns the numbers, from 1, of the lines of prose with a word that the prose must not use.
pub fn dialect_lines(source: &Source) -> Vec<usize> {
    let words = Words::read();
    prose(source)
        .filter(|(_, text)| words.are_in(text))
        .map(|(line, _)| line)
        .collect()
}

/// Returns the lines of prose of a file, each with its number: comments, and Markdown outside of code blocks.
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

#[cfg(test)]
mod tests {
    use super::*;

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
