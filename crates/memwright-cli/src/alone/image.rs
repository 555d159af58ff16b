//! An image of a kernel of any kind that QEMU boots itself: an ELF file with the note of Xen's PVH, or an image with a
//! header of multiboot 1.

use std::fmt;
use std::ops::Range;

use object::LittleEndian;
use object::elf::{ELFMAG, EM_386, FileHeader32, FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

use crate::linux::image::PVH_NOTE;
use crate::model::code::Code;

/// How QEMU boots an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// By the entry in the note of Xen's PVH.
    Pvh,
    /// By a header of multiboot 1.
    Multiboot,
}

impl fmt::Display for Form {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Pvh => "booted by its PVH note",
            Self::Multiboot => "booted by multiboot 1",
        })
    }
}

/// Why QEMU does not boot an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It has neither a PVH note nor a multiboot header.
    Unknown,
    /// It has only a header of multiboot 2.
    Multiboot2,
    /// It has a header of multiboot 1 without addresses, and is not a 32-bit ELF file for x86.
    NotElf32,
    /// Its ELF headers are damaged.
    Damaged,
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unknown => {
                "not a Linux kernel image (bzImage or vmlinux), and no other kernel that QEMU boots: an ELF file with a \
                 PVH note, or a multiboot 1 image"
            }
            Self::Multiboot2 => "a multiboot 2 image; QEMU boots multiboot 1 and ELF files with a PVH note",
            Self::NotElf32 => {
                "a multiboot image without addresses in its header that is not a 32-bit ELF file: QEMU does not boot it \
                 (objcopy -O elf32-i386 makes one of a 64-bit file)"
            }
            Self::Damaged => "an ELF file whose headers are damaged",
        })
    }
}

impl std::error::Error for Refused {}

/// The magic numbers of the multiboot 1 and 2 headers. `..._WITHIN` is the number of bytes at the start of the file in
/// which the header must begin: QEMU's limit for multiboot 1, and the specification's limit for multiboot 2.
const MULTIBOOT: u32 = 0x1bad_b002;
const MULTIBOOT_WITHIN: usize = 8132 - 48;
const MULTIBOOT2: u32 = 0xe852_50d6;
const MULTIBOOT2_WITHIN: usize = 32768;
/// The flag of a multiboot header that contains addresses.
const HAS_ADDRESSES: u32 = 1 << 16;
/// The maximum number of ranges that are passed to the plugin. If there are more, they are joined to a single range.
const MOST_RANGES: usize = 32;

/// Returns how QEMU boots an image, and the addresses of its code.
///
/// # Errors
/// If QEMU does not boot it.
pub fn read(bytes: &[u8]) -> Result<(Form, Code), Refused> {
    // QEMU looks for multiboot first.
    if let Some(at) = multiboot(bytes) {
        return Ok((Form::Multiboot, of_multiboot(bytes, at)?));
    }
    if bytes.starts_with(&ELFMAG) {
        let parsed = match is_wide(bytes) {
            true => pvh(FileHeader64::parse(bytes), bytes),
            false => pvh(FileHeader32::parse(bytes), bytes),
        };
        if let Some(code) = parsed.map_err(|_| Refused::Damaged)? {
            return Ok((Form::Pvh, code));
        }
    }
    let mut words = words(bytes, MULTIBOOT2_WITHIN).step_by(2);
    Err(match words.any(|(_, word)| word == MULTIBOOT2) {
        true => Refused::Multiboot2,
        false => Refused::Unknown,
    })
}

/// Returns the aligned 32-bit words in the first `within` bytes of a file, with their offsets.
fn words(bytes: &[u8], within: usize) -> impl Iterator<Item = (usize, u32)> {
    let start = bytes.get(..within).unwrap_or(bytes);
    let words = start.chunks_exact(4).enumerate();
    words.map(|(index, word)| {
        (
            4 * index,
            word.iter()
                .rev()
                .fold(0, |all, byte| all << 8 | u32::from(*byte)),
        )
    })
}

/// Returns the offset of the multiboot header; `None` if the file has no header with a correct checksum.
fn multiboot(bytes: &[u8]) -> Option<usize> {
    let mut found = words(bytes, MULTIBOOT_WITHIN).filter(|(_, word)| *word == MULTIBOOT);
    found.find_map(|(at, _)| {
        let [flags, checksum] = [word(bytes, at + 4)?, word(bytes, at + 8)?];
        let sum = MULTIBOOT.wrapping_add(flags).wrapping_add(checksum);
        (sum == 0).then_some(at)
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

/// Returns the code of an image with a multiboot header at the offset `at`.
fn of_multiboot(bytes: &[u8], at: usize) -> Result<Code, Refused> {
    let field = |index: usize| {
        word(bytes, at + 4 * index)
            .map(u64::from)
            .ok_or(Refused::Damaged)
    };
    if field(1)? & u64::from(HAS_ADDRESSES) != 0 {
        let [header, load, load_end, bss_end, entry] =
            [field(3)?, field(4)?, field(5)?, field(6)?, field(7)?];
        // If the header states no end, everything from the beginning to the end of the file is loaded.
        let skipped = (at as u64).saturating_sub(header.saturating_sub(load));
        let rest = (bytes.len() as u64).saturating_sub(skipped);
        let end = match load_end {
            0 => load.saturating_add(rest),
            end => end,
        };
        let ranges = joined(only(load..end.max(bss_end)));
        return Ok(Code { entry, ranges });
    }
    if !bytes.starts_with(&ELFMAG) || is_wide(bytes) {
        return Err(Refused::NotElf32);
    }
    let header = FileHeader32::<LittleEndian>::parse(bytes).map_err(|_| Refused::Damaged)?;
    if header.e_machine(LittleEndian) != EM_386 {
        return Err(Refused::NotElf32);
    }
    let ranges = loaded(header, bytes).map_err(|_| Refused::Damaged)?;
    Ok(Code {
        entry: header.e_entry(LittleEndian).into(),
        ranges,
    })
}

/// Returns whether an ELF file is 64-bit.
fn is_wide(bytes: &[u8]) -> bool {
    bytes.get(4) == Some(&object::elf::ELFCLASS64.0)
}

/// Returns the code of an ELF file with a PVH note; `None` if it has no such note.
fn pvh<E: FileHeader<Endian = LittleEndian>>(
    header: object::Result<&E>,
    bytes: &[u8],
) -> object::Result<Option<Code>> {
    let header = header?;
    for segment in header.program_headers(LittleEndian, bytes)? {
        let Some(mut notes) = segment.notes(LittleEndian, bytes)? else {
            continue;
        };
        while let Some(note) = notes.next()? {
            if (note.name(), note.n_type(LittleEndian)) == PVH_NOTE
                && let Some(entry) = word(note.desc(), 0)
            {
                let (entry, ranges) = (entry.into(), loaded(header, bytes)?);
                return Ok(Some(Code { entry, ranges }));
            }
        }
    }
    Ok(None)
}

/// Returns the physical and the virtual address ranges of the segments that an ELF file loads.
fn loaded<E: FileHeader<Endian = LittleEndian>>(
    header: &E,
    bytes: &[u8],
) -> object::Result<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    for segment in header.program_headers(LittleEndian, bytes)? {
        if segment.p_type(LittleEndian) == PT_LOAD {
            let size: u64 = segment.p_memsz(LittleEndian).into();
            let addresses = [
                segment.p_paddr(LittleEndian).into(),
                segment.p_vaddr(LittleEndian).into(),
            ];
            ranges.extend(addresses.map(|start: u64| start..start.saturating_add(size)));
        }
    }
    Ok(joined(ranges))
}

/// Returns a list that contains only `range`.
fn only(range: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(range).collect()
}

/// Returns the ranges in order. Joins ranges that overlap or are adjacent. Omits ranges in the upper half of the
/// address space, because all code there is the kernel's. If more than [`MOST_RANGES`] are left, returns one range that
/// covers all of them.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty() && range.start >> 63 == 0);
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            Some(_) | None => all.push(range),
        }
    }
    match (all.first(), all.last()) {
        (Some(first), Some(last)) if all.len() > MOST_RANGES => only(first.start..last.end),
        (_, _) => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the little-endian bytes of 32-bit words.
    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Returns a 64-bit ELF file with one segment that is loaded at `physical` and runs at `virtual_`. The file has a
    /// note with the name `name` and the type `kind`, whose description is `entry`.
    fn elf(physical: u64, virtual_: u64, name: &[u8; 4], kind: u32, entry: u32) -> Vec<u8> {
        let mut file = ELFMAG.to_vec();
        file.extend([2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        file.extend(bytes(&[0x003e_0002, 1]));
        for word in [0_u64, 64, 0] {
            file.extend(word.to_le_bytes());
        }
        file.extend(bytes(&[0, 0x0038_0040, 0x0040_0002, 0]));
        for (kind, offset, size) in [(1_u32, 0_u64, 0x2000_u64), (4, 0xb0, 20)] {
            file.extend(bytes(&[kind, 7]));
            for word in [offset, virtual_, physical, size.min(20), size, 4] {
                file.extend(word.to_le_bytes());
            }
        }
        file.extend(bytes(&[4, 4, kind]));
        file.extend(name);
        file.extend(bytes(&[entry]));
        file
    }

    #[test]
    fn a_pvh_note_has_the_entry() {
        const UPPER: u64 = 0xffff_ffff_8010_0000;
        let code = |entry, ranges: &[Range<u64>]| Code {
            entry,
            ranges: ranges.to_vec(),
        };
        for (file, expected) in [
            (
                elf(0x10_0000, 0x10_0000, b"Xen\0", 18, 0x10_0010),
                Ok((Form::Pvh, code(0x10_0010, &only(0x10_0000..0x10_2000)))),
            ),
            (
                elf(0x10_0000, UPPER, b"Xen\0", 18, 0x10_0010),
                Ok((Form::Pvh, code(0x10_0010, &only(0x10_0000..0x10_2000)))),
            ),
            (
                elf(0x10_0000, 0xc010_0000, b"Xen\0", 18, 0x10_0010),
                Ok((
                    Form::Pvh,
                    code(0x10_0010, &[0x10_0000..0x10_2000, 0xc010_0000..0xc010_2000]),
                )),
            ),
            (elf(0, 0, b"Xen\0", 17, 0), Err(Refused::Unknown)),
            (elf(0, 0, b"GNU\0", 18, 0), Err(Refused::Unknown)),
        ] {
            assert_eq!(read(&file), expected);
        }
        let whole = elf(0x10_0000, 0x10_0000, b"Xen\0", 18, 0x10_0010);
        for length in 0..whole.len() {
            // A file that was cut is never taken for a kernel.
            assert!(read(&whole[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_multiboot_header_has_addresses_or_is_in_a_32_bit_file() {
        let header = |flags: u32| {
            [
                MULTIBOOT,
                flags,
                0_u32.wrapping_sub(MULTIBOOT.wrapping_add(flags)),
            ]
        };
        let addresses = |load_end: u32, bss_end: u32| {
            let places = [0x10_0004, 0x10_0000, load_end, bss_end, 0x10_0024];
            bytes(&[&[0], &header(HAS_ADDRESSES)[..], &places, &[0; 8]].concat())
        };
        let is = |range: Range<u64>| {
            let code = Code {
                entry: 0x10_0024,
                ranges: vec![range],
            };
            Ok((Form::Multiboot, code))
        };
        let elf32 = |machine: u16| {
            let mut file = ELFMAG.to_vec();
            file.extend([1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            file.extend(bytes(&[
                u32::from(machine) << 16 | 2,
                1,
                0x20_0000,
                52,
                0,
                0,
                0x0020_0034,
                0x0028_0001,
                0,
            ]));
            file.extend(bytes(&[1, 0, 0xc020_0000, 0x20_0000, 4, 0x1000, 7, 4]));
            file.extend(bytes(&header(0)));
            file
        };
        let split = Code {
            entry: 0x20_0000,
            ranges: vec![0x20_0000..0x20_1000, 0xc020_0000..0xc020_1000],
        };
        for (file, expected) in [
            (addresses(0x10_2000, 0x10_5000), is(0x10_0000..0x10_5000)),
            (addresses(0x10_2000, 0), is(0x10_0000..0x10_2000)),
            (addresses(0, 0), is(0x10_0000..0x10_0044)),
            (elf32(3), Ok((Form::Multiboot, split))),
            (elf32(62), Err(Refused::NotElf32)),
            (bytes(&header(0)), Err(Refused::NotElf32)),
            (bytes(&header(HAS_ADDRESSES)), Err(Refused::Damaged)),
            (bytes(&[MULTIBOOT, 0, 0]), Err(Refused::Unknown)),
            (bytes(&[MULTIBOOT2, 0]), Err(Refused::Multiboot2)),
            (Vec::new(), Err(Refused::Unknown)),
        ] {
            assert_eq!(read(&file), expected);
        }
    }

    #[test]
    fn many_ranges_are_one() {
        let ranges = |count: u64| {
            (0..count)
                .map(|index| 0x1000 * 2 * index..0x1000 * (2 * index + 1))
                .collect()
        };
        assert_eq!(joined(ranges(MOST_RANGES as u64)).len(), MOST_RANGES);
        assert_eq!(joined(ranges(40)), only(0..0x1000 * 79));
    }
}
