//! Edits the source to plant mistakes.
//!
//! An edit identifies a piece of code in a function by its tokens, regardless of comments and line breaks. The code
//! must occur exactly once in the function.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;

use super::tokens::{Token, tokens};

/// The function that edited code calls to check whether its mistake is enabled.
const SWITCH: &str = "planted";

/// An edit of one function.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The file, relative to the root of the workspace.
    pub file: String,
    /// The name of the function.
    pub function: String,
    /// The complete header of the `impl` that contains the function, if the file has several functions of that name.
    #[serde(rename = "impl")]
    pub block: Option<String>,
    /// The code in the source that is replaced.
    pub find: String,
    /// The replacement. It calls `planted("NAME")` for each mistake that it contains.
    pub replace: String,
}

/// The reason why an edit does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The file has no such function.
    NoFunction,
    /// The file has several such functions. Contains their number.
    SeveralFunctions(usize),
    /// The function does not contain the code.
    NotFound,
    /// The function contains the code several times. Contains the number of times.
    FoundSeveral(usize),
    /// The replacement has the same tokens as the code.
    Same,
    /// The code overlaps the code that another edit replaces.
    Overlaps,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFunction => f.write_str("the file has no such function"),
            Self::SeveralFunctions(count) => {
                write!(f, "the file has {count} such functions: name the `impl`")
            }
            Self::NotFound => f.write_str("the function does not have the code to find"),
            Self::FoundSeveral(count) => {
                write!(f, "the function has the code to find {count} times")
            }
            Self::Same => f.write_str("the replacement changes nothing"),
            Self::Overlaps => f.write_str("another edit replaces the same code: make them one"),
        }
    }
}

impl Edit {
    /// Returns the names of the mistakes that the replacement contains.
    pub fn switches(&self) -> Vec<&str> {
        let found = tokens(&self.replace);
        let names = found.windows(3).filter(|three| is_switch(three));
        names.map(|three| three[2].text.trim_matches('"')).collect()
    }

    /// Returns the replacement, in which each call of `SWITCH` has the complete path of that function.
    fn replacement(&self) -> String {
        let path = if self.file.starts_with("crates/memwright-table/") {
            "crate::mistake::"
        } else {
            "memwright_table::mistake::"
        };
        let mut text = String::new();
        let mut done = 0;
        for three in tokens(&self.replace)
            .windows(3)
            .filter(|three| is_switch(three))
        {
            text.push_str(&self.replace[done..three[0].start]);
            text.push_str(path);
            done = three[0].start;
        }
        text + &self.replace[done..]
    }

    /// Returns the byte range of the code that the edit replaces, in the text whose tokens are `all`.
    fn place(&self, all: &[Token<'_>]) -> Result<Range<usize>, Misfit> {
        let code = texts(&tokens(&self.find));
        if code == texts(&tokens(&self.replace)) {
            return Err(Misfit::Same);
        }
        let within = &all[self.function(all)?];
        let found = occurrences(within, &code);
        match found.as_slice() {
            [] => Err(Misfit::NotFound),
            [at] => {
                let last = at + code.len() - 1;
                Ok(within[*at].start..within[last].end())
            }
            several => Err(Misfit::FoundSeveral(several.len())),
        }
    }

    /// Returns the range of the function's tokens in `all`, from the token `fn` to the end of the body.
    fn function(&self, all: &[Token<'_>]) -> Result<Range<usize>, Misfit> {
        let header = self.block.as_deref().map(tokens);
        let blocks = header.map(|header| blocks(all, &texts(&header)));
        let is_within = |at: &usize| {
            let mut blocks = blocks.iter().flatten();
            self.block.is_none() || blocks.any(|block| block.contains(at))
        };
        let found: Vec<Range<usize>> = occurrences(all, &["fn", &self.function])
            .into_iter()
            .filter(is_within)
            .filter_map(|at| Some(at..end_of_block(all, body(all, at)?)))
            .collect();
        match found.as_slice() {
            [] => Err(Misfit::NoFunction),
            [one] => Ok(one.clone()),
            several => Err(Misfit::SeveralFunctions(several.len())),
        }
    }
}

/// Applies edits to the text of their file. The code of each edit is searched for in the original text, so the order of
/// the edits has no effect.
///
/// # Errors
/// If edits do not apply: their indexes, each with the reason.
pub fn apply(text: &str, edits: &[&Edit]) -> Result<String, Vec<(usize, Misfit)>> {
    let all = tokens(text);
    let (mut places, mut misfits) = (Vec::new(), Vec::new());
    for (number, edit) in edits.iter().enumerate() {
        match edit.place(&all) {
            Ok(place) => places.push((place, number)),
            Err(why) => misfits.push((number, why)),
        }
    }
    places.sort_by_key(|(place, _)| place.start);
    let mut edited = String::new();
    let mut done = 0;
    for (place, number) in places {
        if place.start < done {
            misfits.push((number, Misfit::Overlaps));
            continue;
        }
        edited.push_str(&text[done..place.start]);
        edited.push_str(&edits[number].replacement());
        done = place.end;
    }
    edited.push_str(&text[done..]);
    if misfits.is_empty() {
        Ok(edited)
    } else {
        Err(misfits)
    }
}

fn is_switch(three: &[Token<'_>]) -> bool {
    three[0].text == SWITCH && three[1].text == "(" && three[2].text.starts_with('"')
}

fn texts<'t>(tokens: &[Token<'t>]) -> Vec<&'t str> {
    tokens.iter().map(|token| token.text).collect()
}

/// Returns the index of each token of `all` at which an occurrence of `code` begins.
fn occurrences(all: &[Token<'_>], code: &[&str]) -> Vec<usize> {
    if code.is_empty() {
        return Vec::new();
    }
    let is_here = |piece: &[Token<'_>]| {
        piece
            .iter()
            .zip(code)
            .all(|(token, text)| token.text == *text)
    };
    let pieces = all.windows(code.len()).enumerate();
    pieces
        .filter_map(|(at, piece)| is_here(piece).then_some(at))
        .collect()
}

/// Returns the token ranges of the blocks with this header.
fn blocks(all: &[Token<'_>], header: &[&str]) -> Vec<Range<usize>> {
    let follows = |at: &usize| {
        let next = all.get(at + header.len());
        next.is_some_and(|next| ["{", "where"].contains(&next.text))
    };
    let found = occurrences(all, header).into_iter().filter(follows);
    found
        .filter_map(|at| Some(at..end_of_block(all, body(all, at)?)))
        .collect()
}

/// Returns the index of the brace that opens the body of the item that begins at `at`, or `None` if it has no body.
fn body(all: &[Token<'_>], at: usize) -> Option<usize> {
    let mut depth = 0_u32;
    for (index, token) in all.iter().enumerate().skip(at) {
        match token.text {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "{" if depth == 0 => return Some(index),
            ";" if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Returns the index after the closing brace that matches the brace at `open`.
fn end_of_block(all: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_u32;
    for (index, token) in all.iter().enumerate().skip(open) {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    all.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
trait Send {
    fn send(&self, pages: [u8; 2]);
}

impl<M: Machine> Send for Local<M> {
    fn send(&self, pages: [u8; 2]) {
        // Flush, then free: flush(pages);
        flush(pages);
        free(
            pages,
            '}', // not the end
        );
    }
}

impl<M> Send for Remote<M>
where
    M: Machine,
{
    fn send(&self, pages: [u8; 2]) {
        flush(pages);
        flush(pages);
    }
}

fn receive(pages: u64) -> u64 {
    flush(pages);
    pages + 1
}
";

    fn edit(function: &str, find: &str, replace: &str) -> Edit {
        Edit {
            file: "crates/memwright/src/lib.rs".to_owned(),
            function: function.to_owned(),
            block: None,
            find: find.to_owned(),
            replace: replace.to_owned(),
        }
    }

    fn within(block: &str, edit: Edit) -> Edit {
        Edit {
            block: Some(block.to_owned()),
            ..edit
        }
    }

    fn misfit(edit: &Edit) -> Misfit {
        apply(SOURCE, &[edit]).expect_err("no place")[0].1
    }

    #[test]
    fn an_edit_replaces_the_code_of_its_function() {
        let edit = edit(
            "receive",
            "flush(pages);",
            "if !planted(\"late\") { flush(pages); }",
        );
        let edited = apply(SOURCE, &[&edit]).expect("a place");
        let expected =
            "    if !memwright_table::mistake::planted(\"late\") { flush(pages); }\n    pages + 1";
        assert!(edited.contains(expected), "{edited}");
        assert_eq!(edited.matches("planted").count(), 1);
        assert_eq!(edit.switches(), ["late"]);
    }

    #[test]
    fn the_crate_of_the_switch_calls_it_by_another_path() {
        let mut edit = edit(
            "receive",
            "pages + 1",
            "pages + u64::from(!planted(\"short\"))",
        );
        edit.file = "crates/memwright-table/src/lib.rs".to_owned();
        let edited = apply(SOURCE, &[&edit]).expect("a place");
        assert!(
            edited.contains("!crate::mistake::planted(\"short\")"),
            "{edited}"
        );
    }

    #[test]
    fn white_space_comments_and_wrapping_make_no_difference() {
        let local = "impl<M:Machine>\nSend for Local<M>";
        for find in [
            "flush( pages ) ;",
            "free(pages, '}')",
            "flush(pages);\n\n  free(\npages, '}');",
        ] {
            let edit = within(local, edit("send", find, "planted(\"x\");"));
            let edited = apply(SOURCE, &[&edit]).expect(find);
            assert!(edited.contains("// Flush, then free: flush(pages);"));
            assert!(edited.contains("mistake::planted(\"x\");"));
        }
    }

    #[test]
    fn an_edit_without_its_code_does_not_apply() {
        let other = "return;";
        assert_eq!(
            misfit(&edit("receive", "free(pages)", other)),
            Misfit::NotFound
        );
        assert_eq!(misfit(&edit("receive", "", other)), Misfit::NotFound);
        // Another function contains the code.
        assert_eq!(
            misfit(&edit("receive", "free(pages, '}')", other)),
            Misfit::NotFound
        );
        assert_eq!(
            misfit(&edit("receives", "flush(pages)", other)),
            Misfit::NoFunction
        );
        // Tokens are compared as a whole.
        assert_eq!(misfit(&edit("receive", "page", other)), Misfit::NotFound);
    }

    #[test]
    fn an_edit_whose_code_is_there_twice_does_not_apply() {
        let remote = "impl<M> Send for Remote<M>";
        let twice = within(remote, edit("send", "flush(pages);", "return;"));
        assert_eq!(misfit(&twice), Misfit::FoundSeveral(2));
        let both = within(
            remote,
            edit("send", "flush(pages); flush(pages);", "return;"),
        );
        assert!(apply(SOURCE, &[&both]).is_ok());
    }

    #[test]
    fn a_name_that_several_functions_have_takes_the_impl() {
        let edit = edit("send", "flush(pages);", "return;");
        assert_eq!(misfit(&edit), Misfit::SeveralFunctions(2));
        let other = within("impl<M: Machine> Send for Nothing<M>", edit.clone());
        assert_eq!(misfit(&other), Misfit::NoFunction);
        // A part of the header does not match.
        let part = within("impl<M: Machine> Send", edit.clone());
        assert_eq!(misfit(&part), Misfit::NoFunction);
        let local = within("impl<M: Machine> Send for Local<M>", edit);
        assert!(apply(SOURCE, &[&local]).is_ok());
    }

    #[test]
    fn an_edit_that_changes_nothing_does_not_apply() {
        let same = edit("receive", "flush(pages);", "flush(\n  pages, // again\n);");
        assert_eq!(misfit(&same), Misfit::Same);
    }

    #[test]
    fn edits_of_one_function_apply_together_in_any_order() {
        let one = edit("receive", "flush(pages);", "planted(\"a\");");
        let other = edit("receive", "pages + 1", "pages");
        let edited = apply(SOURCE, &[&one, &other]).expect("two places");
        assert_eq!(apply(SOURCE, &[&other, &one]), Ok(edited.clone()));
        assert!(
            edited.ends_with("{\n    memwright_table::mistake::planted(\"a\");\n    pages\n}\n")
        );
    }

    #[test]
    fn edits_of_the_same_code_do_not_apply() {
        let one = edit("receive", "flush(pages);", "planted(\"a\");");
        let other = edit("receive", "flush(pages); pages", "pages");
        let first = edit("receive", "pages + 1", "pages");
        assert_eq!(
            apply(SOURCE, &[&one, &other, &first]),
            Err(vec![(1, Misfit::Overlaps)])
        );
        assert_eq!(
            apply(SOURCE, &[&first, &other]),
            Err(vec![(0, Misfit::Overlaps)])
        );
    }
}
