//! Plans the loading of an ELF file from its headers. Accesses neither the file nor an address space.

use alloc::vec::Vec;
use core::ops::Range;
use elf::{
    abi::{
        EM_X86_64, ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_GNU_STACK, PT_INTERP, PT_LOAD, PT_PHDR,
    },
    endian::LittleEndian,
    file::{Class, FileHeader, parse_ident},
    segment::{ProgramHeader, SegmentTable},
};
use memwright::Rights;
use memwright_linux_abi::errno::Errno;
use memwright_table::TryPush;

/// Size of an ELF header in bytes.
pub const HEADER_SIZE: usize = 64;
/// Size of a program header in bytes.
pub const PROGRAM_HEADER_SIZE: usize = 56;
/// Maximum number of program headers (`load_elf_phdrs` of Linux 7.2 limits their size to 64 KiB by `ELF_MIN_ALIGN`).
const PROGRAM_HEADERS_MAX: usize = 65_536 / PROGRAM_HEADER_SIZE;
const PAGE: u64 = 4096;
/// The first address after user addresses.
const ADDRESS_END: u64 = memwright_linux_vfs::user::USER_END;

/// The reason why a file cannot be executed on this machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ElfError {
    /// The file does not begin with the ELF magic.
    NotElf,
    /// The file is for another machine or word size.
    OtherMachine,
    /// The file is neither an executable nor a shared object.
    OtherType,
    /// The headers are contradictory or invalid.
    Malformed,
    /// The file ends before the data that its headers describe.
    Truncated,
    /// The plan cannot be allocated. `execve` returns `ENOMEM` for this variant and `ENOEXEC` for all others.
    OutOfMemory,
}

/// The ELF header of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// Whether the program can be loaded at any address.
    pub relocatable: bool,
    /// Address of the first instruction.
    pub entry: u64,
    /// File offset of the program headers.
    pub headers_offset: u64,
    /// Number of program headers.
    pub headers: usize,
}

/// A loadable segment: a range of addresses and their contents.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {
    /// First address.
    pub address: u64,
    /// File offset of the contents.
    pub offset: u64,
    /// Number of bytes that are loaded from the file.
    pub file_size: u64,
    /// Number of bytes in memory. The bytes after the first `file_size` bytes are zero.
    pub memory_size: u64,
    /// Access rights of the segment.
    pub rights: Rights,
}

/// How to load a program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// The ELF header.
    pub header: Header,
    /// The segments, in ascending order of their addresses.
    pub segments: Vec<Segment>,
    /// File offset and length in bytes of the interpreter's path, including its NUL. `None` without an interpreter.
    pub interpreter: Option<(u64, usize)>,
    /// Whether the program requests an executable stack.
    pub executable_stack: bool,
    /// Address of the program headers, without the load bias.
    pub headers_address: u64,
    /// The largest alignment of a segment in bytes.
    pub alignment: u64,
}

impl ElfError {
    /// Returns the error that `execve` returns.
    pub const fn errno(self) -> Errno {
        match self {
            Self::NotElf
            | Self::OtherMachine
            | Self::OtherType
            | Self::Malformed
            | Self::Truncated => Errno::ENOEXEC,
            Self::OutOfMemory => Errno::ENOMEM,
        }
    }
}

impl Plan {
    /// Returns the address of the first page of the image, without the load bias.
    pub fn start(&self) -> u64 {
        self.segments
            .first()
            .map_or(0, |segment| segment.address & !(PAGE - 1))
    }

    /// Returns the range of the code, without the load bias: from the start of the first executable segment to the end
    /// of the file contents of the last executable segment (`load_elf_binary` in `fs/binfmt_elf.c` of Linux 7.2).
    pub fn code(&self) -> Range<u64> {
        let code = || {
            let all = self.segments.iter();
            all.filter(|segment| segment.rights.contains(Rights::EXECUTE))
        };
        let start = code().map(|segment| segment.address).min();
        let end = code()
            .map(|segment| segment.address + segment.file_size)
            .max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    /// Returns the range of the initialised data, without the load bias: from the start of the last segment to the
    /// largest end of any segment's file contents.
    pub fn data(&self) -> Range<u64> {
        let all = || self.segments.iter();
        let start = all().map(|segment| segment.address).max();
        let end = all()
            .map(|segment| segment.address + segment.file_size)
            .max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    /// Returns the end of the last page of the image, without the load bias.
    pub fn end(&self) -> u64 {
        let ends = self
            .segments
            .iter()
            .map(|segment| segment.address + segment.memory_size);
        ends.max().unwrap_or(0).next_multiple_of(PAGE)
    }
}

/// Parses the header from the first bytes of a file.
///
/// # Errors
/// The [`ElfError`] that describes why the header is rejected.
pub fn parse_header(bytes: &[u8]) -> Result<Header, ElfError> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err(ElfError::NotElf);
    }
    let bytes = bytes.get(..HEADER_SIZE).ok_or(ElfError::Truncated)?;
    let ident = parse_ident::<LittleEndian>(bytes).map_err(|_| ElfError::OtherMachine)?;
    if ident.1 != Class::ELF64 {
        return Err(ElfError::OtherMachine);
    }
    let header = FileHeader::parse_tail(ident, &bytes[16..]).map_err(|_| ElfError::Malformed)?;
    if header.e_machine != EM_X86_64 {
        return Err(ElfError::OtherMachine);
    }
    if header.e_type != ET_EXEC && header.e_type != ET_DYN {
        return Err(ElfError::OtherType);
    }
    let headers = usize::from(header.e_phnum);
    let size = usize::from(header.e_phentsize);
    if size != PROGRAM_HEADER_SIZE || headers == 0 || headers > PROGRAM_HEADERS_MAX {
        return Err(ElfError::Malformed);
    }
    Ok(Header {
        relocatable: header.e_type == ET_DYN,
        entry: header.e_entry,
        headers_offset: header.e_phoff,
        headers,
    })
}

/// Plans the loading of a program from its program headers. `file_size` is the size of the file in bytes.
///
/// # Errors
/// The [`ElfError`] that describes why the program is rejected.
pub fn plan(header: Header, headers: &[u8], file_size: u64) -> Result<Plan, ElfError> {
    let mut plan = Plan {
        header,
        segments: Vec::new(),
        interpreter: None,
        executable_stack: false,
        headers_address: 0,
        alignment: PAGE,
    };
    let mut stated_headers = None;
    let table: SegmentTable<'_, LittleEndian> =
        SegmentTable::new(LittleEndian, Class::ELF64, headers);
    for entry in table.iter() {
        match entry.p_type {
            PT_LOAD if entry.p_memsz > 0 => add_segment(&mut plan, &entry, file_size)?,
            PT_INTERP if plan.interpreter.is_none() => {
                // The length includes the NUL and is at most `PATH_MAX`.
                if !(2..=4096).contains(&entry.p_filesz) {
                    return Err(ElfError::Malformed);
                }
                contained(entry.p_offset, entry.p_filesz, file_size)?;
                plan.interpreter = Some((entry.p_offset, entry.p_filesz as usize));
            }
            PT_PHDR => stated_headers = Some(entry.p_vaddr),
            PT_GNU_STACK => plan.executable_stack = entry.p_flags & PF_X != 0,
            _ => {}
        }
    }
    if plan.segments.is_empty() {
        return Err(ElfError::Malformed);
    }
    let covering = plan.segments.iter().find(|segment| {
        segment.offset <= header.headers_offset
            && header.headers_offset - segment.offset < segment.file_size
    });
    let found = covering.map(|segment| header.headers_offset - segment.offset + segment.address);
    plan.headers_address = stated_headers.or(found).unwrap_or(0);
    Ok(plan)
}

fn contained(offset: u64, size: u64, file_size: u64) -> Result<(), ElfError> {
    match offset.checked_add(size) {
        Some(end) if end <= file_size => Ok(()),
        Some(_) => Err(ElfError::Truncated),
        None => Err(ElfError::Malformed),
    }
}

fn add_segment(plan: &mut Plan, entry: &ProgramHeader, file_size: u64) -> Result<(), ElfError> {
    contained(entry.p_offset, entry.p_filesz, file_size)?;
    let end = entry
        .p_vaddr
        .checked_add(entry.p_memsz)
        .ok_or(ElfError::Malformed)?;
    let previous = plan
        .segments
        .last()
        .map_or(0, |last| last.address + last.memory_size);
    if end > ADDRESS_END
        || entry.p_filesz > entry.p_memsz
        || entry.p_vaddr % PAGE != entry.p_offset % PAGE
        || entry.p_vaddr < previous
    {
        return Err(ElfError::Malformed);
    }
    if entry.p_align.is_power_of_two() {
        plan.alignment = plan.alignment.max(entry.p_align);
    }
    let mut rights = Rights::empty();
    rights.set(Rights::READ, entry.p_flags & PF_R != 0);
    rights.set(Rights::WRITE, entry.p_flags & PF_W != 0);
    rights.set(Rights::EXECUTE, entry.p_flags & PF_X != 0);
    let segment = Segment {
        address: entry.p_vaddr,
        offset: entry.p_offset,
        file_size: entry.p_filesz,
        memory_size: entry.p_memsz,
        rights,
    };
    let added = plan.segments.try_push(segment);
    added.map_err(|_| ElfError::OutOfMemory)
}

#[cfg(test)]
mod tests {
    use super::{ElfError, HEADER_SIZE, Header, PROGRAM_HEADER_SIZE, parse_header, plan};
    use alloc::vec::Vec;
    use memwright::Rights;

    fn header(kind: u16, machine: u16) -> Vec<u8> {
        let mut bytes = Vec::from(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        bytes.extend(kind.to_le_bytes());
        bytes.extend(machine.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(0x40_1000_u64.to_le_bytes());
        bytes.extend(64u64.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        for half in [64u16, 56, 2, 0, 0, 0] {
            bytes.extend(half.to_le_bytes());
        }
        assert_eq!(bytes.len(), HEADER_SIZE);
        bytes
    }

    fn segment(
        kind: u32,
        flags: u32,
        offset: u64,
        address: u64,
        file: u64,
        memory: u64,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(kind.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        for word in [offset, address, address, file, memory, 0x1000] {
            bytes.extend(word.to_le_bytes());
        }
        assert_eq!(bytes.len(), PROGRAM_HEADER_SIZE);
        bytes
    }

    #[test]
    fn headers_of_other_machines_are_refused() {
        assert!(parse_header(&header(2, 62)).is_ok());
        for (bytes, error) in [
            (header(2, 183), ElfError::OtherMachine),
            (header(1, 62), ElfError::OtherType),
            (b"#!/bin/sh\n".to_vec(), ElfError::NotElf),
            (header(2, 62)[..40].to_vec(), ElfError::Truncated),
            (Vec::new(), ElfError::NotElf),
        ] {
            assert_eq!(parse_header(&bytes), Err(error));
        }
    }

    #[test]
    fn segments_become_a_plan() {
        let head = parse_header(&header(2, 62)).expect("a header");
        let mut table = segment(1, 5, 0, 0x40_0000, 0x1800, 0x1800);
        table.extend(segment(1, 6, 0x1800, 0x40_2800, 0x100, 0x5000));
        table.extend(segment(3, 4, 0x200, 0x40_0200, 0x1c, 0x1c));
        let plan = plan(head, &table, 0x2000).expect("a plan");
        assert_eq!(plan.segments.len(), 2);
        assert_eq!(plan.segments[0].rights, Rights::READ | Rights::EXECUTE);
        assert_eq!(plan.interpreter, Some((0x200, 0x1c)));
        assert_eq!((plan.start(), plan.end()), (0x40_0000, 0x40_8000));
        assert_eq!(plan.headers_address, 0x40_0040);
        assert!(!plan.executable_stack);
    }

    #[test]
    fn bad_segments_are_refused() {
        let head = Header {
            relocatable: false,
            entry: 0,
            headers_offset: 64,
            headers: 1,
        };
        for (bytes, error) in [
            (
                segment(1, 5, 0, 0x40_0000, 0x3000, 0x3000),
                ElfError::Truncated,
            ),
            (
                segment(1, 5, 0, 0x40_0010, 0x1000, 0x1000),
                ElfError::Malformed,
            ),
            (
                segment(1, 5, 0, 0x40_0000, 0x1000, 0x800),
                ElfError::Malformed,
            ),
            (
                segment(1, 5, 0, 0x7fff_ffff_e000, 0x1000, 0x9000),
                ElfError::Malformed,
            ),
            (
                segment(1, 5, u64::MAX, 0x40_0fff, 0x1000, 0x1000),
                ElfError::Malformed,
            ),
            (segment(6, 5, 0, 0, 0, 0), ElfError::Malformed),
        ] {
            assert_eq!(plan(head, &bytes, 0x2000), Err(error));
        }
    }
}
