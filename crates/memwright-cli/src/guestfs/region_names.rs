//! Reads the names of regions from a program's file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use memwright_linux_abi::channel::THE_RUN;

use crate::guestfs::elf::{self, ElfError};
use crate::host::host_file::{self, LARGEST_IMAGE};
use crate::model::region_names::{LONGEST, RegionNames, is_name};

/// The section with the names. Each entry is a region number (4 bytes, little-endian), then the name and a NUL. The
/// section is not loaded into memory.
const SECTION: &[u8] = b".memwright.regions";
/// The maximum number of bytes of an invalid name that a message prints.
const SHOWN: usize = 32;

/// Why the names that a program gives its regions cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamesError {
    /// The section extends beyond the end of the file, or is compressed.
    Section(ElfError),
    /// The section ends inside an entry.
    Truncated,
    /// An entry's number is not a region number.
    Number(u32),
    /// A name contains characters that options do not accept.
    Name {
        /// The region's number.
        region: u16,
        /// The beginning of the invalid name.
        start: String,
    },
    /// One region has two names.
    TwoNames {
        /// The region's number.
        region: u16,
        /// One of its names.
        one: String,
        /// Its other name.
        other: String,
    },
    /// Two regions have the same name.
    TwoRegions {
        /// The name that both regions have.
        name: String,
        /// The number of one of the regions.
        one: u16,
        /// The number of the other region.
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

/// Reads the names from a program. A script and a program whose section headers were removed have no names. This is not
/// an error, because such programs can run.
///
/// # Errors
/// [`NamesError`]. If one entry is invalid, no entry is used, because the others may be wrong too.
pub fn read(path: &Path) -> Result<RegionNames, NamesError> {
    match host_file::read(path, LARGEST_IMAGE) {
        Ok(program) => of_program(&program),
        // The run reports the I/O error when it reads the program itself.
        Err(_) => Ok(RegionNames::default()),
    }
}

/// Reads the names from the bytes of a program.
///
/// # Errors
/// The errors of [`read`].
pub fn of_program(program: &[u8]) -> Result<RegionNames, NamesError> {
    let mut names = BTreeMap::new();
    for section in elf::sections(program, SECTION).map_err(NamesError::Section)? {
        add_all(&mut names, section)?;
    }
    let mut numbers: BTreeMap<&str, u16> = BTreeMap::new();
    for (number, name) in &names {
        if let Some(one) = numbers.insert(name, *number) {
            return Err(NamesError::TwoRegions {
                name: name.clone(),
                one,
                other: *number,
            });
        }
    }
    Ok(RegionNames::new(names))
}

/// Parses the entries of a section and adds them to `names`.
fn add_all(names: &mut BTreeMap<u16, String>, mut section: &[u8]) -> Result<(), NamesError> {
    while !section.is_empty() {
        let (number, rest) = section.split_first_chunk().ok_or(NamesError::Truncated)?;
        let number = u32::from_le_bytes(*number);
        let end = rest.iter().position(|byte| *byte == 0);
        let (name, rest) = rest.split_at(end.ok_or(NamesError::Truncated)?);
        add(names, number, name)?;
        section = &rest[1..];
    }
    Ok(())
}

fn add(names: &mut BTreeMap<u16, String>, number: u32, name: &[u8]) -> Result<(), NamesError> {
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
    let known = names.entry(region).or_insert_with(|| name.to_owned());
    // An entry is repeated if several source files include the header that defines it.
    if known != name {
        return Err(NamesError::TwoNames {
            region,
            one: known.clone(),
            other: name.to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an entry of the section.
    fn entry(number: u32, name: &[u8]) -> Vec<u8> {
        [&number.to_le_bytes(), name, b"\0"].concat()
    }

    fn names(list: &[(u16, &str)]) -> RegionNames {
        let named = list
            .iter()
            .map(|(number, name)| (*number, (*name).to_owned()));
        RegionNames::new(named.collect())
    }

    fn added(section: &[u8]) -> Result<RegionNames, NamesError> {
        let mut names = BTreeMap::new();
        add_all(&mut names, section).map(|()| RegionNames::new(names))
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
            // Two source files include the header that defines the name.
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

    /// Every error is formatted as one short line of plain text.
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

    /// The executable of this test has no section with names of regions. The test builds a file with such a section
    /// from the executable's ELF header and new section headers.
    #[test]
    fn a_program_has_a_section_of_names_or_none() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(of_program(&own), Ok(names(&[])));
        assert_eq!(of_program(b"#!/bin/sh\n"), Ok(names(&[])));
        assert_eq!(of_program(b""), Ok(names(&[])));
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
            // The fields of the ELF header about section headers: their offset, the size of one, their number, and the
            // index of the section with the section names.
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
            // A compressed section.
            (0, size, 0x800, damaged),
        ] {
            let found = of_program(&program(offset, size, flags, &content));
            assert_eq!(found, expected, "{offset} {size} {flags}");
        }
        let twice = [entry(1, b"a"), entry(2, b"a")].concat();
        let found = of_program(&program(0, twice.len() as u64, 0, &twice));
        let two = NamesError::TwoRegions {
            name: "a".to_owned(),
            one: 1,
            other: 2,
        };
        assert_eq!(found, Err(two));
        // Reading the file truncated at any length must not panic.
        let whole = program(0, size, 0, &content);
        for length in 0..whole.len() {
            let _ = of_program(&whole[..length]);
        }
    }
}
