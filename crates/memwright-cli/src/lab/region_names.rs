//! The names that a program gives its regions, by `MARK_NAME` of `include/memwright/mark.h`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use memwright_linux::channel::THE_RUN;

use super::log::Region;
use crate::guest::elf::{self, ElfError};
use crate::host_file::{self, LARGEST_IMAGE};

/// The section that has the names: for each a number of four bytes, the low one first, and the name with a NUL behind it.
/// The loader does not read it.
const SECTION: &[u8] = b".memwright.regions";
/// The longest name.
const LONGEST: usize = 64;
/// So much of a wrong name is shown.
const SHOWN: usize = 32;

/// The names of regions, by their numbers. No two regions have the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegionNames(BTreeMap<u16, String>);

/// Why the names that a program gives are not used, none of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamesError {
    /// The section lies beyond the end of the file, or is compressed.
    Section(ElfError),
    /// The section ends inside an entry.
    Truncated,
    /// A number that is no region's.
    Number(u32),
    /// A name that options could not take.
    Name {
        /// The region.
        region: u16,
        /// How the name begins.
        start: String,
    },
    /// One region has two names.
    TwoNames {
        /// The region.
        region: u16,
        /// One of them.
        one: String,
        /// The other.
        other: String,
    },
    /// Two regions have one name.
    TwoRegions {
        /// The name.
        name: String,
        /// One of them.
        one: u16,
        /// The other.
        other: u16,
    },
}

impl fmt::Display for NamesError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Section(error) => write!(formatter, "its section of names is in {error}"),
            Self::Truncated => formatter.write_str("its section of names ends inside a name"),
            Self::Number(number) => write!(
                formatter,
                "it names region {number}, and regions are 0 to {}",
                THE_RUN - 1
            ),
            Self::Name { region, start } => write!(
                formatter,
                "the name of region {region}, \"{start}\", is not a letter and up to {} letters, digits, \"_\" and \"-\"",
                LONGEST - 1
            ),
            Self::TwoNames { region, one, other } => {
                write!(formatter, "it calls region {region} {one} and {other}")
            }
            Self::TwoRegions { name, one, other } => {
                write!(formatter, "it calls regions {one} and {other} {name}")
            }
        }
    }
}

impl std::error::Error for NamesError {}

/// A region as options name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegionId {
    /// By its number.
    Number(u16),
    /// By the name that the program gives it.
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

/// A name that no program gave a region, or that programs gave different ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnknownRegion {
    /// No program has it.
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// Programs that are compared call different regions by it.
    Ambiguous {
        /// The name.
        name: String,
        /// The regions.
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

/// Whether a text can be a region's name: it is part of the names of rows, which have dots, `*` and `=` between the parts.
pub fn is_name(text: &str) -> bool {
    let mut letters = text.bytes();
    let is_start = letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic());
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    is_start && text.len() <= LONGEST && letters.all(is_part)
}

/// A region for people: its number, and its name where it has one.
pub fn title(region: u16, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("region {region} ({name})"),
        None => format!("region {region}"),
    }
}

/// Takes `region.NAME.REST` apart: NAME and REST. A number, or a pattern, is no name.
pub fn named(row: &str) -> Option<(&str, &str)> {
    let (name, rest) = row.strip_prefix("region.")?.split_once('.')?;
    is_name(name).then_some((name, rest))
}

/// The name of a row, or a pattern of such names, with the number of a region in place of its name.
///
/// # Errors
/// A name that none of the programs gives a region, or by which they call different ones.
pub fn numbered(row: &str, programs: &[RegionNames]) -> Result<String, UnknownRegion> {
    match named(row) {
        Some((name, rest)) => Ok(format!("region.{}.{rest}", find(name, programs)?)),
        None => Ok(row.to_owned()),
    }
}

/// The number of a region that an option names.
///
/// # Errors
/// As those of [`numbered`].
pub fn number(region: &RegionId, programs: &[RegionNames]) -> Result<u16, UnknownRegion> {
    match region {
        RegionId::Number(number) => Ok(*number),
        RegionId::Name(name) => find(name, programs),
    }
}

/// The region that programs call by a name.
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
    /// Reads the names out of a program. A script has none, and neither has a program whose section headers were taken away,
    /// which runs all the same.
    ///
    /// # Errors
    /// See [`NamesError`]: one wrong entry makes the others doubtful, so that none is used.
    pub fn read(path: &Path) -> Result<Self, NamesError> {
        match host_file::read(path, LARGEST_IMAGE) {
            Ok(program) => Self::of_program(&program),
            // The command that runs the program reports the error.
            Err(_) => Ok(Self::default()),
        }
    }

    fn of_program(program: &[u8]) -> Result<Self, NamesError> {
        let mut names = Self::default();
        for section in elf::sections(program, SECTION).map_err(NamesError::Section)? {
            names.add_all(section)?;
        }
        let mut numbers: BTreeMap<&str, u16> = BTreeMap::new();
        for (number, name) in &names.0 {
            if let Some(one) = numbers.insert(name, *number) {
                return Err(NamesError::TwoRegions {
                    name: name.clone(),
                    one,
                    other: *number,
                });
            }
        }
        Ok(names)
    }

    /// Reads the entries of a section.
    fn add_all(&mut self, mut section: &[u8]) -> Result<(), NamesError> {
        while !section.is_empty() {
            let (number, rest) = section.split_first_chunk().ok_or(NamesError::Truncated)?;
            let number = u32::from_le_bytes(*number);
            let end = rest.iter().position(|byte| *byte == 0);
            let (name, rest) = rest.split_at(end.ok_or(NamesError::Truncated)?);
            self.add(number, name)?;
            section = &rest[1..];
        }
        Ok(())
    }

    fn add(&mut self, number: u32, name: &[u8]) -> Result<(), NamesError> {
        let region = u16::try_from(number)
            .ok()
            .filter(|region| *region < THE_RUN);
        let region = region.ok_or(NamesError::Number(number))?;
        let Some(name) = str::from_utf8(name).ok().filter(|name| is_name(name)) else {
            let start = &name[..name.len().min(SHOWN)];
            return Err(NamesError::Name {
                region,
                start: start.escape_ascii().to_string(),
            });
        };
        let known = self.0.entry(region).or_insert_with(|| name.to_owned());
        // A header that several source files include names its regions in each.
        if known != name {
            return Err(NamesError::TwoNames {
                region,
                one: known.clone(),
                other: name.to_owned(),
            });
        }
        Ok(())
    }

    /// The names in documents: of those regions alone that the program marked.
    pub fn of_regions<'a>(regions: impl Iterator<Item = &'a Region>) -> Self {
        let named = regions.filter_map(|one| Some((one.region, one.name.clone()?)));
        Self(named.collect())
    }

    /// The name of a region, where it has one.
    pub fn get(&self, region: u16) -> Option<&str> {
        self.0.get(&region).map(String::as_str)
    }

    /// A region for people.
    pub fn title(&self, region: u16) -> String {
        title(region, self.get(region))
    }

    /// Gives the regions their names.
    pub fn give(&self, regions: &mut [Region]) {
        for one in regions {
            one.name = self.get(one.region).map(str::to_owned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of the section.
    fn entry(number: u32, name: &[u8]) -> Vec<u8> {
        [&number.to_le_bytes(), name, b"\0"].concat()
    }

    fn names(list: &[(u16, &str)]) -> RegionNames {
        let named = list
            .iter()
            .map(|(number, name)| (*number, (*name).to_owned()));
        RegionNames(named.collect())
    }

    fn added(section: &[u8]) -> Result<RegionNames, NamesError> {
        let mut names = RegionNames::default();
        names.add_all(section).map(|()| names)
    }

    #[test]
    fn entries_are_names_or_say_what_is_wrong() {
        let wrong = |region: u16, start: &str| {
            Err(NamesError::Name {
                region,
                start: start.to_owned(),
            })
        };
        let longest = "x".repeat(LONGEST);
        let huge = vec![b'x'; 1 << 20];
        let shown = "x".repeat(SHOWN);
        for (section, expected) in [
            (vec![], Ok(names(&[]))),
            (entry(1, b"toggle"), Ok(names(&[(1, "toggle")]))),
            (
                [entry(32_766, b"a-b_9"), entry(0, b"A")].concat(),
                Ok(names(&[(0, "A"), (32_766, "a-b_9")])),
            ),
            (entry(1, longest.as_bytes()), Ok(names(&[(1, &longest)]))),
            // The same header in two source files.
            (entry(1, b"a").repeat(2), Ok(names(&[(1, "a")]))),
            (
                [entry(1, b"a"), entry(1, b"b")].concat(),
                Err(NamesError::TwoNames {
                    region: 1,
                    one: "a".to_owned(),
                    other: "b".to_owned(),
                }),
            ),
            (entry(32_767, b"a"), Err(NamesError::Number(32_767))),
            (entry(u32::MAX, b"a"), Err(NamesError::Number(u32::MAX))),
            (entry(1, b""), wrong(1, "")),
            (entry(1, b"7"), wrong(1, "7")),
            (entry(1, b"a.b"), wrong(1, "a.b")),
            (entry(1, b"a=b"), wrong(1, "a=b")),
            (entry(1, b"a,b"), wrong(1, "a,b")),
            (entry(1, b"*"), wrong(1, "*")),
            (entry(1, b"a b"), wrong(1, "a b")),
            (entry(1, b"a\nb\x1b[2J"), wrong(1, "a\\nb\\x1b[2J")),
            (entry(1, b"\xff\xfe"), wrong(1, "\\xff\\xfe")),
            (entry(1, "ä".as_bytes()), wrong(1, "\\xc3\\xa4")),
            (entry(1, &huge), wrong(1, &shown)),
        ] {
            assert_eq!(added(&section), expected, "{:?}", section.get(..40));
        }
        let whole = [entry(1, b"toggle"), entry(2, b"b")].concat();
        for length in 1..whole.len() {
            let cut = added(&whole[..length]);
            match length == entry(1, b"toggle").len() {
                true => assert_eq!(cut, Ok(names(&[(1, "toggle")]))),
                false => assert_eq!(cut, Err(NamesError::Truncated), "{length}"),
            }
        }
    }

    /// Whatever is wrong is said in one short line of plain text.
    #[test]
    fn what_is_wrong_is_a_short_line() {
        for section in [
            entry(1, &vec![0x1b; 1 << 20]),
            entry(1, b"\n\r\t"),
            entry(40_000, b"a"),
            [entry(1, b"a"), entry(1, b"b")].concat(),
            vec![1],
        ] {
            let line = added(&section).unwrap_err().to_string();
            assert!(line.is_ascii() && line.len() < 300, "{line}");
            assert!(
                !line.contains(|letter: char| letter.is_ascii_control()),
                "{line:?}"
            );
        }
    }

    /// This test's own program has no such section: one is put behind it, at the place of one that it has.
    #[test]
    fn a_program_has_a_section_of_names_or_none() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(RegionNames::of_program(&own), Ok(names(&[])));
        assert_eq!(RegionNames::of_program(b"#!/bin/sh\n"), Ok(names(&[])));
        assert_eq!(RegionNames::of_program(b""), Ok(names(&[])));
        let program = |offset: u64, size: u64, flags: u64, content: &[u8]| {
            let header = |name: u32, kind: u32, flags: u64, offset: u64, size: u64| {
                let mut header = [0; 64];
                header[..4].copy_from_slice(&name.to_le_bytes());
                header[4..8].copy_from_slice(&kind.to_le_bytes());
                header[8..16].copy_from_slice(&flags.to_le_bytes());
                header[24..32].copy_from_slice(&offset.to_le_bytes());
                header[32..40].copy_from_slice(&size.to_le_bytes());
                header
            };
            let texts = [b"\0", SECTION, b"\0"].concat();
            let mut file = own[..64].to_vec();
            let place = 64 + 3 * 64;
            // The table of sections: where, the size of each, how many, and which has their names.
            file[40..48].copy_from_slice(&64u64.to_le_bytes());
            file[58..64].copy_from_slice(&[64, 0, 3, 0, 1, 0]);
            file.extend(header(0, 0, 0, 0, 0));
            file.extend(header(0, 3, 0, place, texts.len() as u64));
            file.extend(header(
                1,
                1,
                flags,
                place + texts.len() as u64 + offset,
                size,
            ));
            [&file, &texts, content].concat()
        };
        let content = entry(1, b"toggle");
        let size = content.len() as u64;
        let damaged = Err(NamesError::Section(ElfError::Truncated));
        for (offset, size, flags, expected) in [
            (0, size, 0, Ok(names(&[(1, "toggle")]))),
            (0, 0, 0, Ok(names(&[]))),
            (0, size - 1, 0, Err(NamesError::Truncated)),
            (0, size + 1, 0, damaged.clone()),
            (1, size, 0, damaged.clone()),
            (u64::MAX / 2, size, 0, damaged.clone()),
            (0, u64::MAX, 0, damaged.clone()),
            // Compressed.
            (0, size, 0x800, damaged),
        ] {
            let found = RegionNames::of_program(&program(offset, size, flags, &content));
            assert_eq!(found, expected, "{offset} {size} {flags}");
        }
        let twice = [entry(1, b"a"), entry(2, b"a")].concat();
        let found = RegionNames::of_program(&program(0, twice.len() as u64, 0, &twice));
        let two = NamesError::TwoRegions {
            name: "a".to_owned(),
            one: 1,
            other: 2,
        };
        assert_eq!(found, Err(two));
        // No beginning of such a file makes the reader panic.
        let whole = program(0, size, 0, &content);
        for length in 0..whole.len() {
            let _ = RegionNames::of_program(&whole[..length]);
        }
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
