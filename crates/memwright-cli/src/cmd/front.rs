//! Finds the options before PROGRAM in a command line that clap has not parsed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, Command};

/// The options of a subcommand, and the index at which they end.
pub struct Front {
    /// The options before PROGRAM, in order.
    pub options: Vec<Found>,
    /// The index of the first word that is neither an option nor an option's value: PROGRAM, or the `--` before it.
    pub end: usize,
}

/// An option of a command line.
pub struct Found {
    /// The indices of the option's words in the command line.
    pub words: std::ops::Range<usize>,
    /// The long name of the option.
    pub name: String,
    /// The value of the option; `None` if it has none.
    pub value: Option<OsString>,
}

/// Finds the options of a subcommand in `words`, of which the first two are the command and the subcommand. If the
/// subcommand takes all words from PROGRAM on, the options end at the first word that is neither an option nor the
/// value of an option.
pub fn front(subcommand: &Command, words: &[OsString]) -> Front {
    let ends_at_program = subcommand
        .get_positionals()
        .any(Arg::is_trailing_var_arg_set);
    let mut options = Vec::new();
    let mut index = 2;
    while let Some(word) = words.get(index) {
        let Some((name, inline)) = named(subcommand, word) else {
            if word == "--" || ends_at_program {
                break;
            }
            index += 1;
            continue;
        };
        let mut known = subcommand.get_arguments();
        let known = known.find(|known| known.get_long() == Some(&*name));
        let takes = known.is_some_and(|known| known.get_action().takes_values());
        let separate = inline.is_none() && takes;
        let end = index + 1 + usize::from(separate);
        let value = match separate {
            true => words.get(index + 1).cloned(),
            false => inline,
        };
        options.push(Found {
            words: index..end.min(words.len()),
            name,
            value,
        });
        index = end;
    }
    Front {
        options,
        end: index.min(words.len()),
    }
}

/// Returns the long name of an option, and its value if the same word contains the value. Returns `None` if the word is
/// not an option.
fn named(subcommand: &Command, word: &OsStr) -> Option<(String, Option<OsString>)> {
    let bytes = word.as_bytes();
    if bytes == b"--" {
        return None;
    }
    if let Some(long) = bytes.strip_prefix(b"--") {
        let text = String::from_utf8_lossy(long).into_owned();
        return Some(match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.into())),
            None => (text, None),
        });
    }
    let [b'-', letter, rest @ ..] = bytes else {
        return None;
    };
    let mut known = subcommand.get_arguments();
    let known = known.find(|known| known.get_short() == Some(char::from(*letter)));
    let name = known.and_then(Arg::get_long).unwrap_or_default();
    let rest = rest.strip_prefix(b"=").unwrap_or(rest);
    let value = (!rest.is_empty()).then(|| OsStr::from_bytes(rest).to_owned());
    Some((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cmd::args::Cli;

    #[test]
    fn options_end_where_the_program_begins() {
        let command = Cli::command();
        for (line, names, end) in [
            (
                "memwright check --bisect --kernel k x --y",
                "bisect kernel=k",
                5,
            ),
            ("memwright check --kernel=k -- x", "kernel=k", 3),
            ("memwright run --env A=1 --strace", "env=A=1 strace", 5),
            ("memwright run --memory", "memory", 3),
            (
                "memwright bench a -L p=1 b -Lq=2 -- x --cold",
                "parameter=p=1 parameter=q=2",
                7,
            ),
            ("memwright run --odd --x y", "odd x", 4),
            ("memwright run", "", 2),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let subcommand = words[1].to_str().unwrap();
            let front = front(command.find_subcommand(subcommand).unwrap(), &words);
            let text = |one: &Found| match &one.value {
                Some(value) => format!("{}={}", one.name, value.display()),
                None => one.name.clone(),
            };
            let found: Vec<String> = front.options.iter().map(text).collect();
            assert_eq!(
                (found.join(" ").as_str(), front.end),
                (names, end),
                "{line}"
            );
        }
    }
}
