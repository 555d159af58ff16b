//! Symbolizes addresses of the kernel in backtraces.

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Sym};

/// The functions of a kernel image, by address.
#[derive(Debug, Default)]
pub struct Symbols {
    functions: Vec<Function>,
}

#[derive(Debug)]
struct Function {
    start: u64,
    size: u64,
    name: String,
}

impl Symbols {
    /// Reads the symbol table of an ELF image. Without a valid table, the result has no symbols.
    pub fn read(image: &[u8]) -> Self {
        let mut functions = read_functions(image).unwrap_or_default();
        functions.sort_by_key(|function| function.start);
        Self { functions }
    }

    /// Appends `function+offset` to each line of the form `  at 0x...`.
    pub fn annotate(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() * 2);
        for line in text.split_inclusive('\n') {
            let body = line.trim_end();
            out.push_str(body);
            if let Some(name) = address_of(body).and_then(|address| self.name(address)) {
                out.push_str("  ");
                out.push_str(&name);
            }
            out.push_str(&line[body.len()..]);
        }
        out
    }

    /// Returns `function+offset` for an address inside a function, or `None` for other addresses.
    pub fn name(&self, address: u64) -> Option<String> {
        let after = self
            .functions
            .partition_point(|function| function.start <= address);
        let function = &self.functions[after.checked_sub(1)?];
        let offset = address - function.start;
        // A return address is just after the function if the function's last instruction is a call.
        (offset <= function.size)
            .then(|| format!("{:#}+{offset:#x}", rustc_demangle::demangle(&function.name)))
    }
}

fn address_of(line: &str) -> Option<u64> {
    let digits = line.trim_start().strip_prefix("at 0x")?;
    let end = digits
        .find(|digit: char| !digit.is_ascii_hexdigit())
        .unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], 16).ok()
}

fn read_functions(image: &[u8]) -> object::Result<Vec<Function>> {
    let header = FileHeader64::<LittleEndian>::parse(image)?;
    let sections = header.sections(LittleEndian, image)?;
    let symbols = sections.symbols(LittleEndian, image, elf::SHT_SYMTAB)?;
    let mut functions = Vec::new();
    for symbol in symbols.iter() {
        if symbol.st_type() == elf::STT_FUNC {
            let name =
                String::from_utf8_lossy(symbol.name(LittleEndian, symbols.strings())?).into_owned();
            let (start, size) = (symbol.st_value(LittleEndian), symbol.st_size(LittleEndian));
            functions.push(Function { start, size, name });
        }
    }
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols() -> Symbols {
        let function = |start, size, name: &str| Function {
            start,
            size,
            name: name.to_owned(),
        };
        Symbols {
            functions: vec![
                function(0x1000, 0x20, "_RNvCs1234_7mycrate3foo"),
                function(0x2000, 0x10, "entry"),
            ],
        }
    }

    #[test]
    fn addresses_are_named_where_a_function_holds_them() {
        for (address, expected) in [
            (0xfff, None),
            (0x1000, Some("mycrate::foo+0x0")),
            (0x1020, Some("mycrate::foo+0x20")),
            (0x1021, None),
            (0x2008, Some("entry+0x8")),
        ] {
            assert_eq!(symbols().name(address).as_deref(), expected, "{address:#x}");
        }
    }

    #[test]
    fn only_backtrace_lines_change() {
        let text = "panicked at 0x1000\nCPU 0\n  at 0x1004\n  at 0x9999 somewhere\n  at nothing";
        let expected = "panicked at 0x1000\nCPU 0\n  at 0x1004  mycrate::foo+0x4\n  at 0x9999 somewhere\n  at nothing";
        assert_eq!(symbols().annotate(text), expected);
    }

    #[test]
    fn an_image_without_symbols_names_nothing() {
        assert!(Symbols::read(b"no image").functions.is_empty());
        let own = Symbols::read(&std::fs::read("/proc/self/exe").unwrap());
        assert!(
            own.functions
                .iter()
                .any(|function| function.name.contains("main"))
        );
    }
}
