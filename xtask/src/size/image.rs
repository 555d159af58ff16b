//! The sizes of the sections and functions of a program.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};

/// The measured properties of a program.
pub struct Image {
    /// The sum of the sizes of `.text` and `.rodata`.
    pub bytes: u64,
    /// The functions with their sizes, the largest first.
    pub functions: Vec<(String, u64)>,
    /// The address and the size of each symbol whose name is not mangled.
    pub symbols: HashMap<String, (u64, u64)>,
    /// The words to which a loader adds the address of the image, each as its address and its value.
    pub relocations: Vec<(u64, u64)>,
}

impl Image {
    /// Reads an ELF file.
    ///
    /// # Errors
    /// If the file is not an ELF file of 64 bits, has no symbols, or has relocations of other types.
    pub fn read(file: &[u8]) -> Result<Self> {
        let header = FileHeader64::<LittleEndian>::parse(file)?;
        let sections = header.sections(LittleEndian, file)?;
        let mut bytes = 0;
        for name in [".text", ".rodata"] {
            let section = sections.section_by_name(LittleEndian, name.as_bytes());
            bytes += section.map_or(0, |(_, section)| section.sh_size(LittleEndian));
        }
        let symbols = sections.symbols(LittleEndian, file, elf::SHT_SYMTAB)?;
        let mut functions = Vec::new();
        let mut plain = HashMap::new();
        for symbol in symbols.iter() {
            let name = symbol.name(LittleEndian, symbols.strings())?;
            let name = std::str::from_utf8(name).context("a symbol that is not UTF-8")?;
            if !name.starts_with('_') && symbol.st_size(LittleEndian) > 0 {
                let place = (symbol.st_value(LittleEndian), symbol.st_size(LittleEndian));
                plain.insert(name.to_owned(), place);
            }
            if symbol.st_type() != elf::STT_FUNC {
                continue;
            }
            let name = format!("{:#}", rustc_demangle::demangle(name));
            functions.push((name, symbol.st_size(LittleEndian)));
        }
        functions.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
        let mut relocations = Vec::new();
        for section in sections.iter() {
            let Some((list, _)) = section.rela(LittleEndian, file)? else {
                continue;
            };
            for one in list {
                let kind = one.r_type(LittleEndian, false);
                ensure!(
                    kind == elf::R_X86_64_RELATIVE,
                    "a relocation of type {kind}"
                );
                let value = one.r_addend(LittleEndian).cast_unsigned();
                relocations.push((one.r_offset(LittleEndian), value));
            }
        }
        Ok(Self {
            bytes,
            functions,
            symbols: plain,
            relocations,
        })
    }

    /// Returns the functions of a module and of the modules in it.
    pub fn symbols_of<'a>(&'a self, module: &'a str) -> impl Iterator<Item = &'a str> {
        let names = self.functions.iter().map(|(name, _)| name.as_str());
        names.filter(move |name| is_in(name, module))
    }

    /// Returns whether there is a function of the module.
    pub fn has(&self, module: &str) -> bool {
        self.symbols_of(module).next().is_some()
    }
}

/// Returns whether the function with this name is in the module: its path begins with that of the module. The name of
/// an instance of a generic function may contain the paths of other types after its own path.
fn is_in(name: &str, module: &str) -> bool {
    let path = name.trim_start_matches('<');
    path.strip_prefix(module)
        .is_some_and(|rest| rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_in_the_module_of_its_path() {
        let module = "memwright::ksm";
        for (name, expected) in [
            ("memwright::ksm::page::compare", true),
            (
                "memwright::ksm::<impl memwright::mm::merging::Merging<M>>::shed",
                true,
            ),
            ("<memwright::ksm::Pages as core::fmt::Debug>::fmt", true),
            ("memwright::ksm_off::shed", false),
            ("core::ptr::drop_in_place<memwright::ksm::Pages>", false),
        ] {
            assert_eq!(is_in(name, module), expected, "{name}");
        }
    }
}
