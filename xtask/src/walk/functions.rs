//! Reads the functions of a program from its symbols and line tables.

use std::collections::HashMap;
use std::path::Path;

use addr2line::Loader;
use anyhow::{Context, Result, anyhow};
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Sym};

use super::names;

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The address in the image.
    pub address: u64,
    /// The path, such as `memwright_table::table::level::slot_index`.
    pub path: String,
    /// The name. For a method, with the name of its type.
    pub name: String,
    /// The file that defines the function, relative to the root of the workspace.
    pub file: String,
    /// The number of lines from its signature to its end.
    pub lines: u32,
    /// Whether `derive` generated the function.
    pub derived: bool,
}

/// The functions of a program that are defined in one workspace.
pub struct Functions(Vec<Function>);

impl Functions {
    /// Reads the functions that are defined in the workspace in the folder `root`.
    ///
    /// # Errors
    /// If the image cannot be read or has no symbols or line tables.
    pub fn read(program: &Path, root: &Path) -> Result<Self> {
        let image = std::fs::read(program)?;
        let loader = Loader::new(program).map_err(|error| anyhow!("{error}"))?;
        let header = FileHeader64::<LittleEndian>::parse(&*image)?;
        let sections = header.sections(LittleEndian, &*image)?;
        let symbols = sections.symbols(LittleEndian, &*image, elf::SHT_SYMTAB)?;
        let mut texts = Texts {
            root,
            files: HashMap::new(),
        };
        let root = root.to_str().context("a path that is not UTF-8")?;
        let mut functions = Vec::new();
        for symbol in symbols.iter() {
            if symbol.st_type() != elf::STT_FUNC {
                continue;
            }
            let name = symbol.name(LittleEndian, symbols.strings())?;
            let path = format!(
                "{:#}",
                rustc_demangle::demangle(&String::from_utf8_lossy(name))
            );
            let address = symbol.st_value(LittleEndian);
            let end = address + symbol.st_size(LittleEndian);
            let Some((file, first, last)) = source(&loader, address, end, root)? else {
                continue;
            };
            functions.push(Function {
                address,
                name: names::short(&path),
                path,
                derived: texts.line(&file, first).starts_with("#[derive("),
                file,
                lines: last - first + 1,
            });
        }
        functions.sort_by_key(|function| function.address);
        functions.dedup_by_key(|function| function.address);
        Ok(Self(functions))
    }

    /// Returns the functions, sorted by address.
    pub fn all(&self) -> &[Function] {
        &self.0
    }
}

/// Returns the file and the first and last line of the function at `address`, or `None` if the function is not defined
/// in the workspace.
fn source(
    loader: &Loader,
    address: u64,
    end: u64,
    root: &str,
) -> Result<Option<(String, u32, u32)>> {
    let failed = |error| anyhow!("line tables: {error}");
    let location = loader.find_location(address).map_err(failed)?;
    let Some(whole) = location.and_then(|location| location.file) else {
        return Ok(None);
    };
    let Some(file) = whole.strip_prefix(root) else {
        return Ok(None);
    };
    let rows = loader.find_location_range(address, end).map_err(failed)?;
    let own = rows.filter(|(_, _, row)| row.file == Some(whole));
    let lines: Vec<u32> = own
        .filter_map(|(_, _, row)| row.line)
        .filter(|line| *line > 0)
        .collect();
    let file = file.trim_start_matches('/').to_owned();
    let ends = lines.iter().min().zip(lines.iter().max());
    Ok(ends.map(|(first, last)| (file, *first, *last)))
}

/// The lines of the source files, read on demand.
struct Texts<'a> {
    root: &'a Path,
    files: HashMap<String, Vec<String>>,
}

impl Texts<'_> {
    /// Returns the line with this number, from 1, of a file, without indentation; an empty string if there is no such
    /// line.
    fn line(&mut self, file: &str, number: u32) -> &str {
        let lines = self.files.entry(file.to_owned()).or_insert_with(|| {
            let text = std::fs::read_to_string(self.root.join(file)).unwrap_or_default();
            text.lines().map(|line| line.trim().to_owned()).collect()
        });
        let line = lines.get(number as usize - 1);
        line.map_or("", String::as_str)
    }
}
