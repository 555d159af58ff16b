//! Counts the figures of `cargo xtask house`.

use super::prose;
use super::source::Source;

/// The maximum number of lines of a Rust file.
const LONGEST_FILE: usize = 800;
/// The maximum number of lines of a function.
const LONGEST_FUNCTION: usize = 80;

/// A figure of the structure of the source or of the prose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    ContextSignatures,
    KernelSignatures,
    PlantedLines,
    NumberedRules,
    DialectLines,
    LongFiles,
    LongFunctions,
}

impl Measure {
    /// Returns the name of the figure for `--show`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ContextSignatures => "context",
            Self::KernelSignatures => "kernel",
            Self::PlantedLines => "planted",
            Self::NumberedRules => "rules",
            Self::DialectLines => "dialect",
            Self::LongFiles => "files",
            Self::LongFunctions => "functions",
        }
    }

    /// Returns the description of the figure.
    pub fn title(self) -> &'static str {
        match self {
            Self::ContextSignatures => "signatures of the personality with &Context",
            Self::KernelSignatures => "signatures of the personality with &Kernel",
            Self::PlantedLines => "lines with a planted mistake in production code",
            Self::NumberedRules => "design rules cited by number",
            Self::DialectLines => "lines of prose with words of the dialect",
            Self::LongFiles => "files of Rust with more than 800 lines",
            Self::LongFunctions => "functions with more than 80 lines",
        }
    }

    /// Returns the places that the figure counts, as `path:line`.
    pub fn places(self, sources: &[Source]) -> Vec<String> {
        sources
            .iter()
            .flat_map(|source| {
                let lines = self.lines(source).into_iter();
                lines.map(|line| format!("{}:{line}", source.path))
            })
            .collect()
    }

    /// Returns the line numbers, from 1, of the places in a file that the figure counts.
    fn lines(self, source: &Source) -> Vec<usize> {
        let personality = source.path.starts_with("crates/memwright-linux")
            && source.path.contains("/src/")
            && source.is_production();
        match self {
            Self::ContextSignatures if personality => signatures_with(&source.text, "Context"),
            Self::KernelSignatures if personality => signatures_with(&source.text, "Kernel"),
            Self::PlantedLines if source.is_production() => {
                lines_with(&source.text, |line| line.contains("planted("))
            }
            Self::NumberedRules => prose::prose(source)
                .filter(|(_, text)| cites_a_number(text))
                .map(|(line, _)| line)
                .collect(),
            Self::DialectLines => prose::dialect_lines(source),
            Self::LongFiles => {
                let lines = source.text.lines().count();
                let is_long = source.is_rust() && lines > LONGEST_FILE;
                is_long.then_some(lines).into_iter().collect()
            }
            Self::LongFunctions if source.is_rust() => long_functions(&source.text),
            Self::ContextSignatures
            | Self::KernelSignatures
            | Self::PlantedLines
            | Self::LongFunctions => Vec::new(),
        }
    }
}

fn lines_with(text: &str, counts: impl Fn(&str) -> bool) -> Vec<usize> {
    let numbered = text.lines().enumerate().filter(|(_, line)| counts(line));
    numbered.map(|(at, _)| at + 1).collect()
}

/// Returns whether a line is the first line of a function.
fn is_function(line: &str) -> bool {
    let code = line.split_once("//").map_or(line, |(code, _)| code);
    code.split_whitespace().any(|word| word == "fn")
}

/// Returns the numbers of the first lines of functions with a parameter that is a reference to this type.
fn signatures_with(text: &str, name: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if !is_function(line) {
            continue;
        }
        let mut signature = lines[at..]
            .iter()
            .scan(false, |ended, line| {
                let goes_on = !*ended;
                *ended = line.contains('{') || line.trim_end().ends_with(';');
                goes_on.then_some(*line)
            })
            .flat_map(|line| line.split([',', '(']));
        if signature.any(|part| has_type(part, name)) {
            found.push(at + 1);
        }
    }
    found
}

/// Returns whether the type of a parameter is a reference to this type.
fn has_type(parameter: &str, name: &str) -> bool {
    let reference = parameter
        .split_once(": ")
        .and_then(|(_, kind)| kind.trim().strip_prefix('&'));
    let Some(kind) = reference else {
        return false;
    };
    let kind = match kind.split_once(' ') {
        Some((lifetime, kind)) if lifetime.starts_with('\'') => kind,
        _ => kind,
    };
    let is_whole = |rest: &str| !rest.starts_with(|letter: char| letter.is_alphanumeric());
    kind.strip_prefix(name).is_some_and(is_whole)
}

/// Returns whether a text cites a design rule by number.
fn cites_a_number(text: &str) -> bool {
    let lower = text.to_lowercase();
    lower.match_indices("rule ").any(|(at, _)| {
        let rest = &lower[at + "rule ".len()..];
        rest.starts_with(|letter: char| letter.is_ascii_digit())
    })
}

/// Returns the numbers of the first lines of functions that are longer than [`LONGEST_FUNCTION`]. The text must be
/// formatted by rustfmt, because the function looks for the closing brace with the same indentation as the first line.
fn long_functions(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if !is_function(line) {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let ends = |line: &&str| {
            line.len() - line.trim_start().len() == indent && line.trim_start().starts_with('}')
        };
        let is_declaration = lines[at..]
            .iter()
            .find(|line| line.contains('{') || line.trim_end().ends_with(';'))
            .is_none_or(|line| !line.contains('{') || line.trim_end().ends_with('}'));
        let length = lines[at..].iter().position(ends);
        if !is_declaration && length.is_some_and(|length| length + 1 > LONGEST_FUNCTION) {
            found.push(at + 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_on_any_line_of_a_signature() {
        let text = "fn a(context: &Context<'_>) {}\n\
                    pub(crate) fn b(\n    x: u8,\n    context: &Context<'_>,\n) -> u8 {\n\
                    fn c(x: &ContextId) {\n    let y: &Context = z;\n}\n\
                    // fn d(context: &Context)\n\
                    fn e(context: &'a Context<'_>);\n";
        assert_eq!(signatures_with(text, "Context"), [1, 2, 10]);
        let text = "fn a(kernel: &'static Kernel) {}\nfn b(kernel: &Kernel, x: u8) {}\n";
        assert_eq!(signatures_with(text, "Kernel"), [1, 2]);
    }

    #[test]
    fn rules_with_numbers_are_citations() {
        for (text, expected) in [
            ("Design rule 6: pins.", true),
            ("(rule 12)", true),
            ("the rule decides", false),
            ("rule never-half-changed", false),
        ] {
            assert_eq!(cites_a_number(text), expected, "{text}");
        }
    }

    #[test]
    fn a_long_function_is_found_by_its_first_line() {
        let body = "    call();\n".repeat(LONGEST_FUNCTION - 2);
        let fits = format!("fn fits() {{\n{body}}}\n");
        assert_eq!(long_functions(&fits), Vec::<usize>::new());
        let long = format!("fn short();\nfn long() {{\n    call();\n{body}}}\n");
        assert_eq!(long_functions(&long), [2]);
    }
}
