//! Maps an address to the kernel's source: to a function by the symbol table, and to inlined functions and lines by the
//! debug information.

use std::collections::BTreeSet;
use std::path::Path;

use addr2line::Loader;
use anyhow::{Context, anyhow, ensure};

use crate::compare::matching::source_name;
use crate::count::symbols::{Place, Symbols};
use crate::model::hash::hexadecimal;
use crate::model::profile::UNATTRIBUTED;

/// The functions of a kernel, and its debug information if there is any.
pub struct Source {
    symbols: Symbols,
    debug: Option<Loader>,
    with_lines: bool,
}

/// The inlined functions and the source line at an address, from the debug information.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inlined {
    /// The functions that are inlined there; the innermost is last.
    pub functions: Vec<String>,
    /// The line in the innermost function, as `FILE:LINE`.
    pub line: Option<String>,
}

impl Source {
    /// Returns a source without debug information.
    pub fn of(symbols: Symbols) -> Self {
        Self {
            symbols,
            debug: None,
            with_lines: false,
        }
    }

    /// Adds the debug information of a vmlinux, which must be from the same build as the kernel that ran.
    ///
    /// # Errors
    /// One line if the file cannot be read, has no debug information, or is from another build.
    pub fn add_debug(
        &mut self,
        path: &Path,
        build_id: Option<&str>,
        with_lines: bool,
    ) -> anyhow::Result<()> {
        let context = || path.display().to_string();
        let own = build_id_of(path).with_context(context)?;
        ensure!(
            build_id.is_none_or(|expected| expected == own),
            "{}: debug information of another build: its build ID is {own}, the kernel's {}",
            path.display(),
            build_id.unwrap_or_default()
        );
        let loader = Loader::new(path).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        self.debug = Some(loader);
        self.with_lines = with_lines;
        Ok(())
    }

    /// Returns the names of all functions. `None` if there is no symbol table. Also `None` with debug information:
    /// profiles then also contain inlined functions, which a symbol table does not list.
    pub fn names(&self) -> Option<BTreeSet<String>> {
        let is_list = self.debug.is_none() && !self.symbols.is_empty();
        is_list.then(|| self.symbols.source_names())
    }

    /// Returns the source name of the function that contains an address. Other functions can be inlined in this
    /// function.
    pub fn function(&self, address: u64) -> &str {
        match self.symbols.place(address) {
            Place::Function(name) => source_name(name),
            Place::Range(name) => name,
            Place::Unknown => UNATTRIBUTED,
        }
    }

    /// Returns whether a function begins at this address.
    pub fn begins(&self, address: u64) -> bool {
        self.symbols.begins(address)
    }

    /// Returns the inlined functions and the line at an address; empty without debug information.
    pub fn inlined(&self, address: u64) -> Inlined {
        let frames = self
            .debug
            .as_ref()
            .and_then(|debug| debug.find_frames(address).ok());
        let Some(mut frames) = frames else {
            return Inlined::default();
        };
        let mut found = Inlined::default();
        let mut is_innermost = true;
        while let Ok(Some(frame)) = frames.next() {
            if std::mem::take(&mut is_innermost) && self.with_lines {
                found.line = frame.location.and_then(|location| {
                    let (file, line) = (location.file?, location.line?);
                    Some(format!("{}:{line}", from_top(file)))
                });
            }
            let name = frame.function.and_then(|function| {
                let name = function.raw_name().ok()?;
                let name = format!("{:#}", rustc_demangle::demangle(&name));
                Some(source_name(&name).to_owned())
            });
            found
                .functions
                .push(name.unwrap_or_else(|| UNATTRIBUTED.to_owned()));
        }
        // The outermost frame is the function itself, which is not inlined.
        found.functions.pop();
        found.functions.reverse();
        found
    }
}

/// Checks that an ELF file has debug information. Returns its build ID, in hexadecimal.
fn build_id_of(path: &Path) -> anyhow::Result<String> {
    use object::Object;
    let file = std::fs::File::open(path)?;
    let bytes = object::ReadCache::new(file);
    let file = object::read::elf::ElfFile64::<object::LittleEndian, _>::parse(&bytes)?;
    ensure!(
        object::Object::has_debug_symbols(&file),
        "it has no debug information"
    );
    let id = file.build_id()?.context("it has no build ID")?;
    Ok(hexadecimal(id))
}

/// Returns the path of a source file relative to the root of the kernel source, independent of the build folder. The
/// root is the last folder in the path whose name begins with `linux-` or `build_`.
fn from_top(file: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ if part.starts_with("linux-") || part.starts_with("build_") => parts.clear(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_the_top_of_the_source() {
        for (file, expected) in [
            (
                "/build/reproducible-path/linux-6.12.1/mm/mprotect.c",
                "mm/mprotect.c",
            ),
            (
                "/b/linux-6.1/debian/build/build_amd64_none/./mm/../include/linux/mm.h",
                "include/linux/mm.h",
            ),
            ("mm/mmap.c", "mm/mmap.c"),
        ] {
            assert_eq!(from_top(file), expected);
        }
    }

    #[test]
    fn this_programs_own_debug_information_is_read() {
        let own = Path::new("/proc/self/exe");
        let mut source = Source::of(Symbols::default());
        let id = build_id_of(own);
        // A file without a build ID is rejected like one with a different ID.
        let Ok(id) = id else {
            assert!(source.add_debug(own, None, true).is_err());
            return;
        };
        let other = source
            .add_debug(own, Some("00"), true)
            .unwrap_err()
            .to_string();
        assert!(other.contains("another build"), "{other}");
        source.add_debug(own, Some(&id), true).unwrap();
        assert_eq!(source.names(), None);
    }
}
