//! Splits Rust source into tokens, to compare code regardless of white space and comments.

/// A token and its byte offset in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'t> {
    pub text: &'t str,
    pub start: usize,
}

impl Token<'_> {
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// Returns the tokens of `text`. A name, a number, a lifetime and a literal are one token each, and any other character
/// is a token. Omits white space, comments, and commas before a closing delimiter, which rustfmt adds and removes.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found: Vec<Token<'_>> = Vec::new();
    let mut start = 0;
    while let Some(first) = text[start..].chars().next() {
        let rest = &text[start..];
        let length = length(rest, first);
        if !first.is_whitespace() && !rest.starts_with("//") && !rest.starts_with("/*") {
            if ")]}".contains(first) && found.last().is_some_and(|last| last.text == ",") {
                found.pop();
            }
            let text = &rest[..length];
            found.push(Token { text, start });
        }
        start += length;
    }
    found
}

/// Returns the length, in bytes, of the token, comment, or character of white space at the start of `rest`.
fn length(rest: &str, first: char) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return comment(rest);
    }
    if let Some(length) = string(rest) {
        return length;
    }
    if first == '\'' {
        return quote(rest);
    }
    if is_word(first) {
        word(rest)
    } else {
        first.len_utf8()
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn word(rest: &str) -> usize {
    rest.find(|c| !is_word(c)).unwrap_or(rest.len())
}

/// Returns the length of the block comment at the start of `rest`. Block comments can be nested.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_u32, 0);
    loop {
        let left = &rest[at..];
        if left.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if left.starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            match left.chars().next() {
                Some(character) => at += character.len_utf8(),
                None => return at,
            }
        }
        if depth == 0 {
            return at;
        }
    }
}

/// Returns the length of the string literal, of any kind, at the start of `rest`, or `None` if there is none.
fn string(rest: &str) -> Option<usize> {
    let prefix = rest.len() - rest.trim_start_matches(['b', 'c']).len();
    let after = &rest[prefix.min(1)..];
    let (raw, after) = match after.strip_prefix('r') {
        Some(after) => (true, after),
        None => (false, after),
    };
    let hashes = if raw {
        after.len() - after.trim_start_matches('#').len()
    } else {
        0
    };
    let content = after[hashes..].strip_prefix('"')?;
    let begun = rest.len() - content.len();
    let end = if raw {
        let close = format!("\"{}", "#".repeat(hashes));
        content.find(&close).map(|at| at + close.len())
    } else {
        closed(content, '"')
    };
    Some(begun + end.unwrap_or(content.len()))
}

/// Returns the offset after the first `quote` of `content` that is not escaped.
fn closed(content: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, character) in content.char_indices() {
        if is_escaped {
            is_escaped = false;
        } else if character == '\\' {
            is_escaped = true;
        } else if character == quote {
            return Some(at + 1);
        }
    }
    None
}

/// Returns the length of the character literal or lifetime at the start of `rest`.
fn quote(rest: &str) -> usize {
    let content = &rest[1..];
    let mut characters = content.chars();
    let first = characters.next();
    if first == Some('\\') || characters.next() == Some('\'') {
        return 1 + closed(content, '\'').unwrap_or(content.len());
    }
    1 + word(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        tokens(text).iter().map(|token| token.text).collect()
    }

    #[test]
    fn white_space_and_comments_are_left_out() {
        let code = "a /* b /* c */ \"d */ +=\n    // e\n  1_u64;";
        assert_eq!(texts(code), ["a", "+", "=", "1_u64", ";"]);
        assert_eq!(texts("a // b"), ["a"]);
        assert_eq!(texts(""), [""; 0]);
    }

    #[test]
    fn a_token_knows_where_it_is() {
        let found = tokens("ä  = b2");
        assert_eq!(
            (found[2].text, found[2].start, found[2].end()),
            ("b2", 6, 8)
        );
    }

    #[test]
    fn literals_and_lifetimes_are_one_token() {
        for literal in [
            r#""a \" // b""#,
            r##"r#"a " b"#"##,
            r#"b"a""#,
            r#"br"\""#,
            r#"c"a""#,
            "'a'",
            r"'\''",
            r"'\\'",
            "'{'",
            "'ä'",
            "'static",
            "0x10_u8",
        ] {
            let code = format!("f({literal})");
            assert_eq!(texts(&code), ["f", "(", literal, ")"], "{literal}");
        }
        assert_eq!(texts("&'a T"), ["&", "'a", "T"]);
        assert_eq!(texts("b'x' r#fn"), ["b", "'x'", "r", "#", "fn"]);
        assert_eq!(texts("crab == brc"), ["crab", "=", "=", "brc"]);
    }

    #[test]
    fn a_comma_that_wrapping_adds_is_left_out() {
        assert_eq!(texts("f(\n    a,\n    b, // c\n)"), texts("f(a, b)"));
        assert_eq!(texts("[1, 2,]"), texts("[1, 2]"));
        assert_ne!(texts("(a, b)"), texts("(a b)"));
    }

    #[test]
    fn what_is_not_closed_ends_with_the_text() {
        assert_eq!(texts("a \"b"), ["a", "\"b"]);
        assert_eq!(texts("a /* b"), ["a"]);
        assert_eq!(texts("a '\\"), ["a", "'\\"]);
    }
}
