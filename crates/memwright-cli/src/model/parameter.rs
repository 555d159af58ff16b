//! Parameters of a program that a bench sweeps: `-L pages=1,16,256` runs the program once with each value in place of
//! `{pages}`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The maximum number of points of a sweep. The number of points is the product of the numbers of values of all
/// parameters.
pub const MOST_POINTS: usize = 10_000;

/// A parameter and its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// The name, which occurs in braces in the command.
    pub name: String,
    /// The values of the parameter, in the order of the command line.
    pub values: Vec<String>,
}

impl FromStr for Parameter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected NAME=VALUE[,VALUE]..., for example pages=1,16,256";
        let (name, values) = text.split_once('=').ok_or(EXPECTED)?;
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.is_empty() || !name.bytes().all(is_part) || values.is_empty() {
            return Err(EXPECTED.to_owned());
        }
        let values: Vec<String> = values.split(',').map(str::to_owned).collect();
        for (index, value) in values.iter().enumerate() {
            if values[..index].contains(value) {
                return Err(format!("{name} has the value {value:?} twice"));
            }
        }
        Ok(Self {
            name: name.to_owned(),
            values,
        })
    }
}

impl Parameter {
    /// Returns the placeholder of the parameter in a word of the command: its name in braces.
    fn placeholder(&self) -> String {
        format!("{{{}}}", self.name)
    }
}

/// Checks that the command uses every parameter, and that the number of points does not exceed [`MOST_POINTS`].
///
/// # Errors
/// If two parameters have the same name, if no word of the command uses a parameter, or if there are too many points.
pub fn check(parameters: &[Parameter], command: &[OsString]) -> Result<(), String> {
    for (index, one) in parameters.iter().enumerate() {
        let name = &one.name;
        if parameters[..index].iter().any(|other| other.name == *name) {
            return Err(format!("-L {name} is given twice"));
        }
        let placeholder = one.placeholder();
        let uses = |word: &OsString| {
            let mut parts = word.as_bytes().windows(placeholder.len());
            parts.any(|part| part == placeholder.as_bytes())
        };
        if !command.iter().any(uses) {
            return Err(format!(
                "-L {name}: no word of the command has {placeholder}"
            ));
        }
    }
    match count(parameters) {
        Some(points) if points <= MOST_POINTS => Ok(()),
        Some(_) | None => Err(format!("-L: more than {MOST_POINTS} runs for each column")),
    }
}

/// Returns the number of points of a sweep, or `None` if it exceeds `usize`.
pub fn count(parameters: &[Parameter]) -> Option<usize> {
    let mut counts = parameters.iter().map(|one| one.values.len());
    counts.try_fold(1usize, usize::checked_mul)
}

/// Returns the points of a sweep: every combination of values, with the last parameter changing fastest. Without
/// parameters there is one point without values.
pub fn points(parameters: &[Parameter]) -> Vec<Vec<String>> {
    let mut points = vec![Vec::new()];
    for parameter in parameters {
        let with = |point: &Vec<String>| {
            let values = parameter.values.iter();
            let longer =
                values.map(|value| [point.as_slice(), std::slice::from_ref(value)].concat());
            longer.collect::<Vec<_>>()
        };
        points = points.iter().flat_map(with).collect();
    }
    points
}

/// Returns the command at a point of the sweep. A placeholder in a value is not replaced.
pub fn command(words: &[OsString], parameters: &[Parameter], point: &[String]) -> Vec<OsString> {
    let word = |word: &OsString| OsString::from_vec(filled(word.as_bytes(), parameters, point));
    words.iter().map(word).collect()
}

/// Returns one word of the command at a point of the sweep, as [`command`] does for all words.
pub fn word(word: &str, parameters: &[Parameter], point: &[String]) -> String {
    String::from_utf8_lossy(&filled(word.as_bytes(), parameters, point)).into_owned()
}

/// Replaces the placeholders in a word.
fn filled(mut rest: &[u8], parameters: &[Parameter], point: &[String]) -> Vec<u8> {
    let placeholders: Vec<(Vec<u8>, &String)> = parameters
        .iter()
        .map(|one| one.placeholder().into_bytes())
        .zip(point)
        .collect();
    let mut made = Vec::new();
    while let Some((first, behind)) = rest.split_first() {
        let here = placeholders
            .iter()
            .find(|(placeholder, _)| rest.starts_with(placeholder));
        match here {
            Some((placeholder, value)) => {
                made.extend_from_slice(value.as_bytes());
                rest = &rest[placeholder.len()..];
            }
            None => {
                made.push(*first);
                rest = behind;
            }
        }
    }
    made
}

/// Formats a point: `pages=16 mode=x`.
pub fn title(parameters: &[Parameter], point: &[String]) -> String {
    let pairs = parameters.iter().zip(point);
    let pairs = pairs.map(|(parameter, value)| format!("{}={value}", parameter.name));
    pairs.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn parameters_are_names_with_values() {
        let one: Parameter = "pages=1,16".parse().unwrap();
        assert_eq!((one.name.as_str(), one.values.len()), ("pages", 2));
        assert_eq!("x=a=b".parse::<Parameter>().unwrap().values, ["a=b"]);
        assert_eq!("x=,a".parse::<Parameter>().unwrap().values, ["", "a"]);
        for wrong in ["pages", "=1", "pages=", "a b=1", "{a}=1", "x=1,2,1"] {
            assert!(wrong.parse::<Parameter>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn points_are_all_combinations() {
        let parameters: Vec<Parameter> = ["a=1,2", "b={a},y"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let found: Vec<String> = points(&parameters)
            .iter()
            .map(|point| title(&parameters, point))
            .collect();
        assert_eq!(found, ["a=1 b={a}", "a=1 b=y", "a=2 b={a}", "a=2 b=y"]);
        let given = words(&["./x", "{a}{b}", "{c}", "{", "-{a}-{a}"]);
        assert_eq!(
            command(&given, &parameters, &["1".to_owned(), "{a}".to_owned()]),
            words(&["./x", "1{a}", "{c}", "{", "-1-1"])
        );
        assert_eq!(points(&[]), [Vec::<String>::new()]);
    }

    #[test]
    fn parameters_must_fit_the_command() {
        let check = |texts: &[&str], given: &[&str]| {
            let parameters: Vec<Parameter> =
                texts.iter().map(|text| text.parse().unwrap()).collect();
            check(&parameters, &words(given))
        };
        assert_eq!(check(&["a=1,2"], &["x", "{a}"]), Ok(()));
        assert_eq!(check(&[], &["x"]), Ok(()));
        let many: Vec<String> = (0..200).map(|number: u32| number.to_string()).collect();
        let many = |name: &str| format!("{name}={}", many.join(","));
        let all = [many("a"), many("b")];
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        for (texts, given, part) in [
            (
                &["a=1"][..],
                &["x", "{b}"][..],
                "no word of the command has {a}",
            ),
            (&["a=1", "a=2"], &["x", "{a}"], "twice"),
            (&all, &["x", "{a}", "{b}"], "more than 10000"),
        ] {
            let error = check(texts, given).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
