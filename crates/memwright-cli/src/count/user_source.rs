//! Maps an offset in a program or library to its function, and by the debug information to inlined functions and lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, Sym};

use crate::host::host_file::{self, LARGEST_IMAGE};

/// A function of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Function {
    start: u64,
    /// The number of bytes; 0 if it is not known.
    size: u64,
    name: String,
}

/// A part of a file that is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

/// The functions of an ELF file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Functions {
    segments: Vec<Segment>,
    /// The functions, sorted by address. The addresses are distinct.
    functions: Vec<Function>,
}

impl Functions {
    /// Reads the symbols of an ELF file: those of the symbol table or, if there is none, those for the dynamic linker.
    /// The result is empty if the file cannot be parsed.
    pub fn read(bytes: &[u8]) -> Self {
        parse(bytes).unwrap_or_default()
    }

    /// Returns the address that the file gives the byte at this offset; `None` if it is not loaded.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let inside = |segment: &&Segment| {
            let into = offset.checked_sub(segment.offset);
            into.is_some_and(|into| into < segment.size)
        };
        let segment = self.segments.iter().find(inside)?;
        (offset - segment.offset).checked_add(segment.address)
    }

    /// Returns the name of the function at an address.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self
            .functions
            .partition_point(|function| function.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let is_inside = function.size == 0 || address - function.start < function.size;
        is_inside.then_some(function.name.as_str())
    }
}

fn parse(bytes: &[u8]) -> object::Result<Functions> {
    let header = FileHeader64::<LittleEndian>::parse(bytes)?;
    let segments = header.program_headers(LittleEndian, bytes)?.iter();
    let segments = segments
        .filter(|segment| segment.p_type(LittleEndian) == elf::PT_LOAD)
        .map(|segment| Segment {
            offset: segment.p_offset(LittleEndian),
            size: segment.p_filesz(LittleEndian),
            address: segment.p_vaddr(LittleEndian),
        });
    let segments = segments.collect();
    let mut functions = Vec::new();
    if let Ok(sections) = header.sections(LittleEndian, bytes) {
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            if functions.is_empty() {
                let symbols = sections.symbols(LittleEndian, bytes, kind)?;
                for symbol in symbols.iter() {
                    let is_code = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
                    let is_defined = !symbol.is_undefined(LittleEndian);
                    let name = symbol.name(LittleEndian, symbols.strings())?;
                    if is_code && is_defined && !name.is_empty() {
                        let name = String::from_utf8_lossy(name);
                        functions.push(Function {
                            start: symbol.st_value(LittleEndian),
                            size: symbol.st_size(LittleEndian),
                            name: format!("{:#}", rustc_demangle::demangle(&name)),
                        });
                    }
                }
            }
        }
    }
    Ok(Functions {
        segments,
        functions: distinct(functions),
    })
}

/// Sorts functions by address. Of several names of an address, those with a known size are preferred, then those with
/// the fewest underscores at the beginning, then the shortest.
fn distinct(mut functions: Vec<Function>) -> Vec<Function> {
    functions.sort_by(|one, other| rank(one).cmp(&rank(other)));
    functions.dedup_by_key(|function| function.start);
    functions
}

fn rank(function: &Function) -> (u64, bool, usize, usize, &str) {
    let name = function.name.as_str();
    let underscores = name.len() - name.trim_start_matches('_').len();
    let has_no_size = function.size == 0;
    (function.start, has_no_size, underscores, name.len(), name)
}

/// The code at a place in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Code {
    /// The function. With debug information, it is the innermost inlined function. Without debug information, code of
    /// other functions can be inlined in it.
    pub function: Option<String>,
    /// The line, as `FILE:LINE`; `None` without debug information.
    pub line: Option<String>,
    /// The address that the file gives the code; `None` if the file is not known.
    pub address: Option<u64>,
}

struct File {
    functions: Functions,
    lines: Option<Loader>,
}

/// The files whose code caused page faults.
pub struct UserSource<'a> {
    /// Returns the path on the host of the file that the guest has at a path.
    find: &'a dyn Fn(&Path) -> Option<PathBuf>,
    with_lines: bool,
    files: BTreeMap<String, Option<File>>,
    /// The files in which some code has no name.
    without_names: BTreeSet<String>,
    /// The files with code whose line was not found (`without_lines`), and the files with code whose line was found
    /// (`with_some_lines`).
    without_lines: BTreeSet<String>,
    with_some_lines: BTreeSet<String>,
}

impl<'a> UserSource<'a> {
    /// Returns a source that has read no file yet.
    pub fn new(find: &'a dyn Fn(&Path) -> Option<PathBuf>, with_lines: bool) -> Self {
        Self {
            find,
            with_lines,
            files: BTreeMap::new(),
            without_names: BTreeSet::new(),
            without_lines: BTreeSet::new(),
            with_some_lines: BTreeSet::new(),
        }
    }

    /// Returns the code at an offset of the guest's file at `path`.
    pub fn code(&mut self, path: &str, offset: u64) -> Code {
        let (find, with_lines) = (self.find, self.with_lines);
        let read = || {
            let host = find(Path::new(path))?;
            let bytes = host_file::read(&host, LARGEST_IMAGE).ok()?;
            let lines = with_lines.then(|| Loader::new(&host).ok()).flatten();
            let functions = Functions::read(&bytes);
            Some(File { functions, lines })
        };
        let file = self.files.entry(path.to_owned()).or_insert_with(read);
        let mut code = Code::default();
        if let Some(file) = file {
            code.address = file.functions.address(offset);
            if let Some(address) = code.address {
                code.function = file.functions.name(address).map(str::to_owned);
                code.line = file.lines.as_ref().and_then(|lines| line(lines, address));
            }
        }
        if code.function.is_none() {
            self.without_names.insert(path.to_owned());
        }
        let lines = match code.line {
            Some(_) => &mut self.with_some_lines,
            None => &mut self.without_lines,
        };
        lines.insert(path.to_owned());
        code
    }

    /// Returns one line for each kind of missing information (names or lines), with the paths of the files that lack
    /// it.
    pub fn notes(&self) -> Vec<String> {
        let note = |files: Vec<&str>, text: &str| {
            (!files.is_empty()).then(|| format!("{text}: {}", files.join(" ")))
        };
        let names = self.without_names.iter().map(String::as_str).collect();
        let names = note(
            names,
            "code without symbols, listed by its address in the file",
        );
        let files = self.without_lines.difference(&self.with_some_lines);
        let files = files.filter(|_| self.with_lines).map(String::as_str);
        let lines = note(
            files.collect(),
            "no line in the debug information (-g adds it), so functions are listed",
        );
        names.into_iter().chain(lines).collect()
    }
}

/// Returns the line of the innermost function at an address.
fn line(lines: &Loader, address: u64) -> Option<String> {
    let location = lines.find_location(address).ok()??;
    let (file, line) = (location.file?, location.line?);
    Some(format!("{file}:{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(start: u64, size: u64, name: &str) -> Function {
        Function {
            start,
            size,
            name: name.to_owned(),
        }
    }

    #[test]
    fn offsets_have_addresses_and_addresses_have_names() {
        let functions = Functions {
            segments: vec![
                Segment {
                    offset: 0,
                    size: 0x500,
                    address: 0x40_0000,
                },
                Segment {
                    offset: 0x1000,
                    size: 0x200,
                    address: 0x40_2000,
                },
            ],
            functions: distinct(vec![
                function(0x40_2010, 0x10, "__read"),
                function(0x40_2010, 0x10, "read"),
                function(0x40_2000, 0, "start"),
            ]),
        };
        for (offset, address, name) in [
            (0x1000, Some(0x40_2000), Some("start")),
            (0x1011, Some(0x40_2011), Some("read")),
            (0x1020, Some(0x40_2020), None),
            (0x4ff, Some(0x40_04ff), None),
            (0x500, None, None),
            (u64::MAX, None, None),
        ] {
            let found = functions.address(offset);
            assert_eq!(found, address, "{offset:#x}");
            let found = found.and_then(|address| functions.name(address));
            assert_eq!(found, name, "{offset:#x}");
        }
    }

    #[test]
    fn this_program_has_functions() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        assert!(!Functions::read(&bytes).functions.is_empty());
        for length in [0, 4, 64, 4096] {
            assert!(Functions::read(&bytes[..length]).functions.is_empty());
        }
    }

    #[test]
    fn a_file_that_is_not_found_is_noted_once() {
        let find = |_: &Path| None;
        let mut source = UserSource::new(&find, true);
        for offset in [1, 2] {
            assert_eq!(source.code("/x", offset), Code::default());
        }
        assert_eq!(source.notes().len(), 2);
        assert!(source.notes()[0].ends_with(": /x"));
    }
}
