//! The names of a kernel's functions.

use std::collections::BTreeSet;

use object::LittleEndian;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader, Sym};

use crate::compare::matching::source_name;

/// The start of the addresses of the kernel's own code (Documentation/arch/x86/x86_64/mm.rst of Linux). The code of
/// Memwright's kernel has the same start.
const KERNEL: u64 = 0xffff_ffff_8000_0000;
/// The addresses of Linux's modules and generated code (BPF programs and trampolines).
const MODULES: std::ops::Range<u64> = 0xffff_ffff_c000_0000..0xffff_ffff_ff00_0000;
/// The addresses of Linux's per-CPU entry areas.
const CPU_ENTRY_AREA: std::ops::Range<u64> = 0xffff_fe00_0000_0000..0xffff_fe80_0000_0000;

/// The kind of code at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// A function.
    Function(&'a str),
    /// Code without symbols, with the name of its address range.
    Range(&'static str),
    /// An unknown address.
    Unknown,
}

/// The functions of a kernel, by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Symbols {
    // The addresses and names of the functions, sorted by address. The addresses are distinct.
    functions: Vec<(u64, String)>,
    // Whether code can be at any address. Otherwise it is only where Linux and Memwright have their code.
    anywhere: bool,
}

/// An entry of a symbol table.
struct Name {
    address: u64,
    is_local: bool,
    text: String,
}

impl Name {
    /// Returns the sort key of a name. Of the names of one address, the one with the lowest key is used.
    fn rank(&self) -> (u64, bool, bool, usize, usize, &str) {
        let name = self.text.as_str();
        // The prefixes of padding before functions (for tracing and CFI), and of 32-bit entries of system calls. If the
        // address has a name without these prefixes, that name is preferred.
        let aside = ["__pfx_", "__cfi_", "__ia32_"];
        let is_aside = aside.iter().any(|prefix| name.starts_with(prefix));
        let underscores = name.len() - name.trim_start_matches('_').len();
        (
            self.address,
            is_aside,
            self.is_local,
            underscores,
            name.len(),
            name,
        )
    }
}

impl Symbols {
    /// Parses the lines of `/proc/kallsyms`: an address, a letter for the kind, a name, and the module in brackets.
    pub fn of_kallsyms(text: &str) -> Self {
        let functions = text.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?;
            let is_code = matches!(kind, "t" | "T" | "w" | "W");
            let name = words.next()?;
            let name = match words.next() {
                Some(module) => format!("{name} {module}"),
                None => name.to_owned(),
            };
            let name = Name {
                address,
                is_local: kind == "t",
                text: name,
            };
            (is_code && address != 0).then_some(name)
        });
        Self::of(functions.collect())
    }

    /// Reads the symbol table of an ELF file. The result is empty if the file has none.
    pub fn of_elf(bytes: &[u8]) -> Self {
        Self::of(functions_of_elf::<FileHeader64<LittleEndian>>(bytes, KERNEL).unwrap_or_default())
    }

    /// Reads the symbol table of a kernel that runs alone, which can be at any address. The result is empty if the file
    /// has none.
    pub fn of_alone(bytes: &[u8]) -> Self {
        let names = functions_of_elf::<FileHeader64<LittleEndian>>(bytes, 0)
            .or_else(|_| functions_of_elf::<FileHeader32<LittleEndian>>(bytes, 0));
        Self {
            anywhere: true,
            ..Self::of(names.unwrap_or_default())
        }
    }

    /// Sorts functions by address. Of several names of an address, the one with the lowest [`Name::rank`] is used, so
    /// the result does not depend on the order of `names`.
    fn of(mut names: Vec<Name>) -> Self {
        names.sort_by(|one, other| one.rank().cmp(&other.rank()));
        names.dedup_by_key(|name| name.address);
        let functions = names.into_iter().map(|name| (name.address, name.text));
        Self {
            functions: functions.collect(),
            anywhere: false,
        }
    }

    /// Returns whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the source names of all functions.
    pub fn source_names(&self) -> BTreeSet<String> {
        let names = self.functions.iter().map(|(_, name)| name);
        names.map(|name| source_name(name).to_owned()).collect()
    }

    /// Returns whether a function begins at this address.
    pub fn begins(&self, address: u64) -> bool {
        let found = self
            .functions
            .binary_search_by_key(&address, |(start, _)| *start);
        found.is_ok()
    }

    /// Returns the kind of code at an address.
    pub fn place(&self, address: u64) -> Place<'_> {
        let after = self
            .functions
            .partition_point(|(start, _)| *start <= address);
        let before = after
            .checked_sub(1)
            .and_then(|index| self.functions.get(index));
        let same_range = |start: u64| MODULES.contains(&start) == MODULES.contains(&address);
        match before {
            Some((_, name)) if self.anywhere => Place::Function(name),
            Some((start, name)) if *start >= KERNEL && same_range(*start) => Place::Function(name),
            Some(_) | None if self.anywhere => Place::Unknown,
            Some(_) | None if MODULES.contains(&address) => Place::Range("[modules]"),
            Some(_) | None if CPU_ENTRY_AREA.contains(&address) => Place::Range("[CPU entry area]"),
            Some(_) | None => Place::Unknown,
        }
    }
}

/// Returns the symbols in the code sections of an ELF file. Symbols below the address `lowest` are omitted.
fn functions_of_elf<E: FileHeader<Endian = LittleEndian>>(
    bytes: &[u8],
    lowest: u64,
) -> object::Result<Vec<Name>> {
    let header = E::parse(bytes)?;
    let sections = header.sections(LittleEndian, bytes)?;
    let symbols = sections.symbols(LittleEndian, bytes, elf::SHT_SYMTAB)?;
    let is_code = |symbol: &E::Sym| {
        let index = object::SectionIndex(symbol.st_shndx(LittleEndian).0.into());
        let section = sections.section(index);
        section.is_ok_and(|section| section.sh_flags(LittleEndian).contains(elf::SHF_EXECINSTR))
    };
    let mut functions = Vec::new();
    for symbol in symbols.iter() {
        let in_code = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_NOTYPE);
        let address = symbol.st_value(LittleEndian).into();
        let name = symbol.name(LittleEndian, symbols.strings())?;
        if in_code && address >= lowest && !name.is_empty() && is_code(symbol) {
            let name = String::from_utf8_lossy(name);
            functions.push(Name {
                address,
                is_local: symbol.st_bind() == elf::STB_LOCAL,
                text: format!("{:#}", rustc_demangle::demangle(&name)),
            });
        }
    }
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_names() {
        let text = "ffffffff81000000 T _stext\nffffffff81000000 T startup_64\nffffffff81000100 t __pfx_f\n\
            ffffffff81000110 T f\nffffffff81000110 W __f\nffffffff81000110 t e\nffffffff82000000 D data\nffffffffc0001000 t g\t[zram]\n\
            0000000000000000 A fixed\nnonsense\n";
        let symbols = Symbols::of_kallsyms(text);
        for (address, expected) in [
            (0xffff_ffff_8000_0000, Place::Unknown),
            (0xffff_ffff_8100_0000, Place::Function("startup_64")),
            (0xffff_ffff_8100_0105, Place::Function("__pfx_f")),
            (0xffff_ffff_8100_0110, Place::Function("f")),
            (0xffff_ffff_8100_0fff, Place::Function("f")),
            (0xffff_ffff_c000_0fff, Place::Range("[modules]")),
            (0xffff_ffff_c000_1fff, Place::Function("g [zram]")),
            (0xffff_fe00_0000_1000, Place::Range("[CPU entry area]")),
            (0xffff_ffff_ff60_0000, Place::Unknown),
            (0x1000, Place::Unknown),
        ] {
            assert_eq!(symbols.place(address), expected, "{address:x}");
        }
        assert!(Symbols::of_elf(text.as_bytes()).is_empty());
        assert_eq!(
            Symbols::default().place(0xffff_ffff_8100_0000),
            Place::Unknown
        );
    }
}
