//! Parses the `#!` line of a script.

/// The contents of a `#!` line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Script<'a> {
    /// Path of the interpreter.
    pub interpreter: &'a [u8],
    /// The rest of the line as one argument.
    pub argument: Option<&'a [u8]>,
}

/// The kind of a file according to its first bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FirstLine<'a> {
    /// Not a script.
    Other,
    /// A `#!` line without a usable interpreter: `execve` returns `ENOEXEC`.
    Malformed,
    /// A script.
    Script(Script<'a>),
}

/// Parses the `#!` line of a file from the file's first bytes (`load_script` of Linux 7.2, `fs/binfmt_script.c`). An
/// interpreter path that is longer than `bytes` is rejected; a longer argument is truncated.
pub fn parse(bytes: &[u8]) -> FirstLine<'_> {
    let Some(rest) = bytes.strip_prefix(b"#!") else {
        return FirstLine::Other;
    };
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let end = rest.iter().position(|byte| matches!(byte, b'\n' | 0));
    let line = &rest[..end.unwrap_or(rest.len())];
    let Some(start) = line.iter().position(|byte| !blank(byte)) else {
        return FirstLine::Malformed;
    };
    let line = &line[start..];
    let path_end = line.iter().position(blank);
    if end.is_none() && path_end.is_none() {
        return FirstLine::Malformed;
    }
    let (interpreter, after) = line.split_at(path_end.unwrap_or(line.len()));
    let argument = after.iter().position(|byte| !blank(byte)).map(|start| {
        let last = after.iter().rposition(|byte| !blank(byte)).unwrap_or(start);
        &after[start..=last]
    });
    FirstLine::Script(Script {
        interpreter,
        argument,
    })
}

#[cfg(test)]
mod tests {
    use super::{FirstLine, Script, parse};

    #[test]
    fn first_lines() {
        let script = |interpreter, argument| {
            FirstLine::Script(Script {
                interpreter,
                argument,
            })
        };
        for (line, expected) in [
            (&b"\x7fELF"[..], FirstLine::Other),
            (b"", FirstLine::Other),
            (b"#!\n", FirstLine::Malformed),
            (b"#!   ", FirstLine::Malformed),
            (b"#!/bin/a/path/that/is/cut", FirstLine::Malformed),
            (b"#!/bin/sh\necho", script(&b"/bin/sh"[..], None)),
            (b"#! /bin/sh -e \t\n", script(b"/bin/sh", Some(&b"-e"[..]))),
            (
                b"#!/usr/bin/env python3 -u\n",
                script(b"/usr/bin/env", Some(b"python3 -u")),
            ),
            (
                b"#!/bin/sh a cut argu",
                script(b"/bin/sh", Some(b"a cut argu")),
            ),
        ] {
            assert_eq!(parse(line), expected, "{line:?}");
        }
    }
}
