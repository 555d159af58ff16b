//! Parses the headers of an ELF file that name its interpreter and its libraries.

use std::fmt;
use std::path::PathBuf;

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::StringTable;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

type Header = FileHeader64<LittleEndian>;
const LITTLE: LittleEndian = LittleEndian;

/// The properties of an x86-64 ELF file that determine how it is started.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The program interpreter (PT_INTERP); `None` for a static program.
    pub interpreter: Option<PathBuf>,
    /// The names of libraries (DT_NEEDED), in the order of the file.
    pub needed: Vec<OsString>,
    /// DT_RPATH, not yet split into folders.
    pub rpath: Option<OsString>,
    /// DT_RUNPATH, not yet split into folders.
    pub runpath: Option<OsString>,
    /// The number of bytes that its segments take in memory.
    pub memory: u64,
    /// Whether its type is one that can be executed (ET_EXEC or ET_DYN).
    pub executable: bool,
}

/// Why a file cannot be executed on x86-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElfError {
    /// It does not begin with the ELF magic.
    NotElf,
    /// Headers or segments extend beyond its end.
    Truncated,
    /// It is for another architecture. The value is the machine number in its header.
    OtherMachine(u16),
    /// It is for 32-bit x86.
    ThirtyTwoBit,
}

impl fmt::Display for ElfError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotElf => {
                formatter.write_str("neither an ELF file nor a script that begins with #!")
            }
            Self::Truncated => formatter.write_str("a truncated or damaged ELF file"),
            Self::OtherMachine(number) => {
                write!(
                    formatter,
                    "an ELF file for another machine ({}), not for x86-64",
                    machine_name(*number)
                )
            }
            Self::ThirtyTwoBit => formatter.write_str("a 32-bit ELF file; only 64-bit x86-64 runs"),
        }
    }
}

/// Returns the name of the architecture with this machine number in the ELF header, or the number for an unknown one.
fn machine_name(number: u16) -> String {
    let name = match number {
        3 => "i386",
        8 => "MIPS",
        20 => "PowerPC",
        21 => "PowerPC64",
        22 => "S390",
        40 => "ARM",
        183 => "AArch64",
        243 => "RISC-V",
        258 => "LoongArch",
        _ => return format!("machine number {number}"),
    };
    name.to_owned()
}

/// Parses the headers of an ELF file.
///
/// # Errors
/// See [`ElfError`].
pub fn read(data: &[u8]) -> Result<Image, ElfError> {
    check_identity(data)?;
    let header = Header::parse(data).map_err(|_| ElfError::Truncated)?;
    let kind = header.e_type(LITTLE);
    let segments = header
        .program_headers(LITTLE, data)
        .map_err(|_| ElfError::Truncated)?;
    let mut image = Image {
        executable: kind == elf::ET_EXEC || kind == elf::ET_DYN,
        ..Image::default()
    };
    for segment in segments {
        if segment.p_type(LITTLE) == elf::PT_LOAD {
            segment
                .data(LITTLE, data)
                .map_err(|()| ElfError::Truncated)?;
            image.memory = image.memory.saturating_add(segment.p_memsz(LITTLE));
        }
        if let Some(path) = segment
            .interpreter(LITTLE, data)
            .map_err(|_| ElfError::Truncated)?
        {
            image.interpreter = Some(PathBuf::from(OsString::from_vec(path.to_vec())));
        }
        if let Some(entries) = segment
            .dynamic(LITTLE, data)
            .map_err(|_| ElfError::Truncated)?
        {
            read_dynamic(data, segments, entries, &mut image)?;
        }
    }
    Ok(image)
}

/// Returns the contents of the sections with this name, in the order of the file. Returns no sections for a file that
/// is not an ELF file or whose section headers cannot be read, because a program can run without section headers.
///
/// # Errors
/// [`ElfError::Truncated`] if the contents of a section are not in the file, or are compressed.
pub fn sections<'a>(data: &'a [u8], name: &[u8]) -> Result<Vec<&'a [u8]>, ElfError> {
    let table = check_identity(data).ok().and_then(|()| {
        let header = Header::parse(data).ok()?;
        header.sections(LITTLE, data).ok()
    });
    let mut found = Vec::new();
    let table = table.unwrap_or_default();
    for section in table.iter() {
        if table.section_name(LITTLE, section) != Ok(name) {
            continue;
        }
        let is_compressed = section.sh_flags(LITTLE) & elf::SHF_COMPRESSED == elf::SHF_COMPRESSED;
        let content = section.data(LITTLE, data);
        found.push(
            content
                .ok()
                .filter(|_| !is_compressed)
                .ok_or(ElfError::Truncated)?,
        );
    }
    Ok(found)
}

/// Checks the identification: magic, class, byte order, machine.
fn check_identity(data: &[u8]) -> Result<(), ElfError> {
    if !data.starts_with(b"\x7fELF") {
        return Err(ElfError::NotElf);
    }
    let (Some(&class), Some(&order), Some(machine)) = (data.get(4), data.get(5), data.get(18..20))
    else {
        return Err(ElfError::Truncated);
    };
    let machine = [machine[0], machine[1]];
    let machine = if order == 2 {
        u16::from_be_bytes(machine)
    } else {
        u16::from_le_bytes(machine)
    };
    match (class, machine) {
        (2, 62) if order == 1 => Ok(()),
        (1, 3 | 62) => Err(ElfError::ThirtyTwoBit),
        (_, 62) => Err(ElfError::Truncated),
        (_, other) => Err(ElfError::OtherMachine(other)),
    }
}

fn read_dynamic(
    data: &[u8],
    segments: &[elf::ProgramHeader64<LittleEndian>],
    entries: &[elf::Dyn64<LittleEndian>],
    image: &mut Image,
) -> Result<(), ElfError> {
    let entries: Vec<_> = entries
        .iter()
        .map(|entry| (entry.d_tag(LITTLE), entry.d_val(LITTLE)))
        .take_while(|(tag, _)| *tag != elf::DT_NULL)
        .collect();
    let Some((_, address)) = entries.iter().find(|(tag, _)| *tag == elf::DT_STRTAB) else {
        return Ok(());
    };
    let start = file_offset(segments, *address).ok_or(ElfError::Truncated)?;
    let end = data.len() as u64;
    let strings = StringTable::new(data, start, end);
    let text = |value: u64| -> Result<OsString, ElfError> {
        let offset = u32::try_from(value).map_err(|_| ElfError::Truncated)?;
        let bytes = strings.get(offset).map_err(|()| ElfError::Truncated)?;
        Ok(OsString::from_vec(bytes.to_vec()))
    };
    for (tag, value) in entries {
        if tag == elf::DT_NEEDED {
            image.needed.push(text(value)?);
        } else if tag == elf::DT_RPATH {
            image.rpath = Some(text(value)?);
        } else if tag == elf::DT_RUNPATH {
            image.runpath = Some(text(value)?);
        }
    }
    Ok(())
}

/// Returns the file offset of a virtual address.
fn file_offset(segments: &[elf::ProgramHeader64<LittleEndian>], address: u64) -> Option<u64> {
    segments
        .iter()
        .filter(|segment| segment.p_type(LITTLE) == elf::PT_LOAD)
        .find_map(|segment| {
            let offset = address.checked_sub(segment.p_vaddr(LITTLE))?;
            (offset < segment.p_filesz(LITTLE))
                .then(|| segment.p_offset(LITTLE).checked_add(offset))?
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_says_why() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let mut other_machine = own[..64].to_vec();
        other_machine[18] = 183;
        let mut short_class = own[..64].to_vec();
        short_class[4] = 1;
        for (data, expected) in [
            (b"hello, world\n".as_slice(), ElfError::NotElf),
            (b"", ElfError::NotElf),
            (b"\x7fELF", ElfError::Truncated),
            (&own[..64], ElfError::Truncated),
            (&own[..4096], ElfError::Truncated),
            (&other_machine, ElfError::OtherMachine(183)),
            (&short_class, ElfError::ThirtyTwoBit),
        ] {
            assert_eq!(read(data), Err(expected));
        }
    }

    #[test]
    fn a_dynamic_program_names_what_it_needs() {
        let image = read(&std::fs::read("/proc/self/exe").unwrap()).unwrap();
        assert!(image.executable && image.memory > 0 && image.interpreter.is_some());
        assert!(
            image
                .needed
                .iter()
                .any(|name| name.to_string_lossy().starts_with("libc.so"))
        );
    }
}
