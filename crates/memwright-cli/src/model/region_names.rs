//! The names that a program gives its regions with `MARK_NAME` of `include/memwright/mark.h`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use memwright_linux_abi::channel::THE_RUN;

use crate::model::region::Region;

/// The maximum length of a name.
pub const LONGEST: usize = 64;

/// The names of regions, by the regions' numbers. No two regions have the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegionNames(BTreeMap<u16, String>);

/// A region as an option names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegionId {
    /// The number of the region.
    Number(u16),
    /// The name that the program gives the region.
    Name(String),
}

impl FromStr for RegionId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(number) if number < THE_RUN => Ok(Self::Number(number)),
            Ok(_) | Err(_) if is_name(text) => Ok(Self::Name(text.to_owned())),
            Ok(_) | Err(_) => Err(format!(
                "expected a number from 0 to {}, or a name that the program gives a region",
                THE_RUN - 1
            )),
        }
    }
}

/// The error for a name that no program gives to a region, or that programs give to different regions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnknownRegion {
    /// No program gives this name to a region.
    Unknown {
        /// The name that the option gives.
        name: String,
        /// The names that the programs give to regions.
        known: Vec<String>,
    },
    /// The compared programs give this name to different regions.
    Ambiguous {
        /// The name that the option gives.
        name: String,
        /// The numbers of these regions.
        numbers: Vec<u16>,
    },
}

impl fmt::Display for UnknownRegion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known } if known.is_empty() => write!(
                formatter,
                "there is no region {name}: the program names none (MARK_NAME of mark.h)"
            ),
            Self::Unknown { name, known } => write!(
                formatter,
                "there is no region {name}; the program names {}",
                known.join(", ")
            ),
            Self::Ambiguous { name, numbers } => {
                let numbers: Vec<String> = numbers.iter().map(u16::to_string).collect();
                write!(
                    formatter,
                    "the programs call regions {} {name}: give a number",
                    numbers.join(" and ")
                )
            }
        }
    }
}

impl std::error::Error for UnknownRegion {}

/// Returns whether a text is valid as a region's name. The name becomes part of the names of rows, so it must not
/// contain dots, `*` or `=`, which have a meaning there.
pub fn is_name(text: &str) -> bool {
    let mut letters = text.bytes();
    let is_start = letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic());
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    is_start && text.len() <= LONGEST && letters.all(is_part)
}

/// Formats a region for the user: its number, followed by its name if it has one.
pub fn title(region: u16, name: Option<&str>) -> String {
    let name = name.map(|name| format!(" ({name})"));
    format!("region {region}{}", name.unwrap_or_default())
}

/// Splits `region.NAME.REST` into NAME and REST. Returns `None` for another text, or if NAME is a number or a pattern.
pub fn named(row: &str) -> Option<(&str, &str)> {
    let (name, rest) = row.strip_prefix("region.")?.split_once('.')?;
    is_name(name).then_some((name, rest))
}

/// Replaces a region's name by its number. `row` is the name of a row, or a pattern of such names.
///
/// # Errors
/// If no program gives the name to a region, or if programs give it to different regions.
pub fn numbered(row: &str, programs: &[RegionNames]) -> Result<String, UnknownRegion> {
    match named(row) {
        Some((name, rest)) => Ok(format!("region.{}.{rest}", find(name, programs)?)),
        None => Ok(row.to_owned()),
    }
}

/// Applies [`numbered`] to the rows of `--rows`.
///
/// # Errors
/// The errors of [`numbered`].
pub fn all_numbered(
    rows: &[String],
    programs: &[RegionNames],
) -> Result<Vec<String>, UnknownRegion> {
    rows.iter().map(|row| numbered(row, programs)).collect()
}

/// Returns the number of a region that an option names.
///
/// # Errors
/// The errors of [`numbered`].
pub fn number(region: &RegionId, programs: &[RegionNames]) -> Result<u16, UnknownRegion> {
    match region {
        RegionId::Number(number) => Ok(*number),
        RegionId::Name(name) => find(name, programs),
    }
}

/// Returns the number of the region to which the programs give this name.
fn find(name: &str, programs: &[RegionNames]) -> Result<u16, UnknownRegion> {
    let all = || programs.iter().flat_map(|names| &names.0);
    let mut numbers: Vec<u16> = all()
        .filter(|(_, own)| *own == name)
        .map(|(number, _)| *number)
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    match numbers.as_slice() {
        [number] => Ok(*number),
        [] => {
            let mut known: Vec<String> = all().map(|(_, name)| name.clone()).collect();
            known.sort();
            known.dedup();
            Err(UnknownRegion::Unknown {
                name: name.to_owned(),
                known,
            })
        }
        [..] => Err(UnknownRegion::Ambiguous {
            name: name.to_owned(),
            numbers,
        }),
    }
}

impl RegionNames {
    /// Returns the names of regions by their numbers. The names must be distinct.
    pub fn new(names: BTreeMap<u16, String>) -> Self {
        Self(names)
    }

    /// Returns the names that a document contains: those of the regions that the program marked.
    pub fn of_regions<'a>(regions: impl Iterator<Item = &'a Region>) -> Self {
        let named = regions.filter_map(|one| Some((one.region, one.name.clone()?)));
        Self(named.collect())
    }

    /// Returns the name of a region, or `None` if it has none.
    pub fn get(&self, region: u16) -> Option<&str> {
        self.0.get(&region).map(String::as_str)
    }

    /// Formats a region for the user.
    pub fn title(&self, region: u16) -> String {
        title(region, self.get(region))
    }

    /// Sets the name of each of these regions.
    pub fn give(&self, regions: &mut [Region]) {
        for one in regions {
            one.name = self.get(one.region).map(str::to_owned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[(u16, &str)]) -> RegionNames {
        let named = list
            .iter()
            .map(|(number, name)| (*number, (*name).to_owned()));
        RegionNames(named.collect())
    }

    #[test]
    fn names_stand_for_numbers() {
        let (one, other) = (names(&[(1, "toggle"), (2, "b")]), names(&[(3, "toggle")]));
        let known = vec!["b".to_owned(), "toggle".to_owned()];
        let unknown = UnknownRegion::Unknown {
            name: "togle".to_owned(),
            known,
        };
        let ambiguous = UnknownRegion::Ambiguous {
            name: "toggle".to_owned(),
            numbers: vec![1, 3],
        };
        let both = [one.clone(), other];
        let row = |text: &str| Ok(text.to_owned());
        for (text, programs, expected) in [
            ("region.toggle.invlpg", &both[..1], row("region.1.invlpg")),
            ("region.toggle.*", &both[..1], row("region.1.*")),
            ("region.b.each.max.*", &both, row("region.2.each.max.*")),
            ("region.7.invlpg", &both, row("region.7.invlpg")),
            ("region.*.invlpg", &both, row("region.*.invlpg")),
            ("region.t*.invlpg", &both, row("region.t*.invlpg")),
            ("run.toggle.invlpg", &both, row("run.toggle.invlpg")),
            ("Page faults", &[], row("Page faults")),
            ("region.togle.invlpg", &both[..1], Err(unknown)),
            ("region.toggle.invlpg", &both, Err(ambiguous)),
        ] {
            assert_eq!(numbered(text, programs), expected, "{text}");
        }
        for (text, expected) in [
            ("7", Some(RegionId::Number(7))),
            ("32766", Some(RegionId::Number(32_766))),
            ("32767", None),
            ("-1", None),
            ("", None),
            ("toggle", Some(RegionId::Name("toggle".to_owned()))),
            ("a,b", None),
        ] {
            assert_eq!(text.parse::<RegionId>().ok(), expected, "{text}");
        }
        let by_name = RegionId::Name("b".to_owned());
        assert_eq!(number(&by_name, std::slice::from_ref(&one)), Ok(2));
        assert_eq!(number(&RegionId::Number(9), &[]), Ok(9));
        assert_eq!(
            (&*one.title(1), &*one.title(9)),
            ("region 1 (toggle)", "region 9")
        );
    }
}
