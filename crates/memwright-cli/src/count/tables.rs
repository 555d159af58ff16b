//! Summarizes a program's page tables, which are read from the guest's memory while the guest is stopped.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::count::system::SoftwareBits;
use crate::model::page_tables::PageTables;

/// Bits of a page-table entry (Intel SDM volume 3, 4.5).
const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const DIRTY: u64 = 1 << 6;
const NO_EXECUTE: u64 = 1 << 63;
const LARGE: u64 = 1 << 7;
/// The bits of an entry that contain the address.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const ENTRIES: usize = 512;
/// The number of entries in the root table for the lower half.
const LOWER_HALF: usize = 256;
/// The maximum number of tables that are read, enough to map 512 GiB. Without a limit, reading a corrupted table that
/// points to itself would never end.
const MOST_TABLES: u64 = 1 << 18;

/// Physical memory of a guest.
pub trait Physical {
    /// Returns the contents of the page at this physical address, or `None` if there is no memory.
    fn page(&self, address: u64) -> Option<[u8; 4096]>;
}

/// A part of a guest's physical memory.
#[derive(Debug)]
pub struct Part {
    /// The file that backs this part.
    pub file: File,
    /// The size of this part in bytes.
    pub size: u64,
}

/// The physical memory of QEMU's `pc` machine, in order of addresses.
#[derive(Debug)]
pub struct Memory<'a>(pub &'a [Part]);

/// A machine with at least `SPLIT_FROM` bytes has its memory in two ranges (hw/i386/pc_piix.c): `BELOW` bytes at
/// address 0, and the rest at `ABOVE`.
const SPLIT_FROM: u64 = 0xe000_0000;
const BELOW: u64 = 0xc000_0000;
const ABOVE: u64 = 1 << 32;

impl Memory<'_> {
    /// Returns the file that backs a physical address, and the offset in the file.
    fn locate(&self, address: u64) -> Option<(&File, u64)> {
        let size: u64 = self.0.iter().map(|part| part.size).sum();
        let below = if size >= SPLIT_FROM { BELOW } else { size };
        let mut offset = if address < below {
            address
        } else {
            address.checked_sub(ABOVE)?.checked_add(below)?
        };
        for part in self.0 {
            if offset < part.size {
                return Some((&part.file, offset));
            }
            offset -= part.size;
        }
        None
    }
}

impl Physical for Memory<'_> {
    fn page(&self, address: u64) -> Option<[u8; 4096]> {
        let mut page = [0; 4096];
        let (file, offset) = self.locate(address)?;
        file.read_exact_at(&mut page, offset).ok()?;
        Some(page)
    }
}

/// Translates a virtual address of either half to a physical one. Returns `None` if nothing is mapped or a table cannot
/// be read.
pub fn translate(memory: &impl Physical, cr3: u64, address: u64) -> Option<u64> {
    let mut table = cr3 & ADDRESS;
    for level in (1..=4).rev() {
        let shift = 12 + 9 * (level - 1);
        let index = (address >> shift) as usize % ENTRIES;
        let page = memory.page(table)?;
        let entry = u64::from_le_bytes(page[8 * index..8 * index + 8].try_into().ok()?);
        if entry & PRESENT == 0 {
            return None;
        }
        if level == 1 || entry & LARGE != 0 && level < 4 {
            let within = (1 << shift) - 1;
            return Some(entry & ADDRESS & !within | address & within);
        }
        table = entry & ADDRESS;
    }
    None
}

/// Summarizes the lower half of the page tables at `cr3`; `None` if they cannot be read.
pub fn read(memory: &impl Physical, cr3: u64, bits: SoftwareBits) -> Option<PageTables> {
    let vdso = Vdso::find(memory, cr3)?;
    let mut found = PageTables::default();
    let tables = visit(memory, cr3, &mut |leaf| match leaf.kind() {
        Kind::NotPresent => found.not_present += 1,
        Kind::Giant => found.giant += 1,
        Kind::Small if vdso.is_some_and(|vdso| vdso.contains(leaf, bits)) => found.vdso += 1,
        Kind::Small => leaf.count(
            &mut found.small_writable,
            &mut found.small_read_only,
            &mut found.small_dirty,
            bits,
        ),
        Kind::Large => leaf.count(
            &mut found.large_writable,
            &mut found.large_read_only,
            &mut found.large_dirty,
            bits,
        ),
    })?;
    Some(PageTables { tables, ..found })
}

/// A page-table entry that does not point to a table.
#[derive(Debug, Clone, Copy)]
struct Leaf {
    address: u64,
    entry: u64,
    level: u32,
}

/// What a [`Leaf`] maps: nothing, or a page of one of the three sizes.
enum Kind {
    NotPresent,
    Small,
    Large,
    Giant,
}

impl Leaf {
    fn kind(self) -> Kind {
        match (self.entry & PRESENT, self.level) {
            (0, _) => Kind::NotPresent,
            (_, 1) => Kind::Small,
            (_, 2) => Kind::Large,
            (_, _) => Kind::Giant,
        }
    }

    /// Counts a page in `writable` or in `read_only`, and in `dirty` if it is dirty.
    fn count(self, writable: &mut u64, read_only: &mut u64, dirty: &mut u64, bits: SoftwareBits) {
        if self.entry & WRITABLE != 0 {
            *writable += 1;
        } else {
            *read_only += 1;
        }
        *dirty += u64::from(self.entry & (DIRTY | bits.saved_dirty) != 0);
    }

    fn is_executable(self) -> bool {
        matches!(self.kind(), Kind::Small) && self.entry & (WRITABLE | NO_EXECUTE) == 0
    }
}

/// Calls `see` for each non-empty entry of the lower half that does not point to a table, in order of addresses.
/// Returns the number of tables; `None` if a table cannot be read, or if there are more than [`MOST_TABLES`].
fn visit(memory: &impl Physical, cr3: u64, see: &mut impl FnMut(Leaf)) -> Option<u64> {
    let mut tables = 0;
    visit_table(memory, cr3 & ADDRESS, (4, 0), &mut tables, see)?;
    Some(tables)
}

fn visit_table(
    memory: &impl Physical,
    table: u64,
    (level, start): (u32, u64),
    tables: &mut u64,
    see: &mut impl FnMut(Leaf),
) -> Option<()> {
    let page = memory.page(table)?;
    *tables += 1;
    if *tables > MOST_TABLES {
        return None;
    }
    let count = if level == 4 { LOWER_HALF } else { ENTRIES };
    let entries = page.chunks_exact(8).take(count);
    let entries = entries.map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
    for (index, entry) in (0..).zip(entries) {
        let address = start + (index << (12 + 9 * (level - 1)));
        let leads_on = level > 1 && entry & PRESENT != 0 && (level == 4 || entry & LARGE == 0);
        if leads_on {
            visit_table(memory, entry & ADDRESS, (level - 1, address), tables, see)?;
        } else if entry != 0 {
            see(Leaf {
                address,
                entry,
                level,
            });
        }
    }
    Some(())
}

/// Where the kernel has mapped its vDSO, a shared object that the kernel provides. The vDSO's data are at lower
/// addresses (arch/x86/entry/vdso/vma.c).
#[derive(Debug, Clone, Copy)]
struct Vdso {
    /// The address of the first page.
    start: u64,
    /// The address after the last present page.
    end: u64,
}

/// The beginning of the vDSO's name, which its first page contains.
const VDSO_NAME: &[u8] = b"linux-vdso.so";
/// The maximum size of the vDSO's data in bytes (include/vdso/datapage.h has 7 pages in Linux 7.3), rounded up.
const VDSO_DATA: u64 = 16 * 4096;

impl Vdso {
    /// Searches the executable pages for the vDSO. Returns `Some(None)` if no entry maps the vDSO, because the program
    /// has not used it. Returns `None` if the tables cannot be read.
    fn find(memory: &impl Physical, cr3: u64) -> Option<Option<Self>> {
        let mut found: Option<Self> = None;
        visit(memory, cr3, &mut |leaf| {
            if !leaf.is_executable() {
                return;
            }
            match &mut found {
                Some(vdso) if vdso.end == leaf.address => vdso.end += 4096,
                None if is_vdso(memory, leaf.entry & ADDRESS) => {
                    found = Some(Self {
                        start: leaf.address,
                        end: leaf.address + 4096,
                    });
                }
                Some(_) | None => {}
            }
        })?;
        Some(found)
    }

    /// Returns whether an entry maps the vDSO or its data.
    fn contains(self, leaf: Leaf, bits: SoftwareBits) -> bool {
        let is_data = leaf.address < self.start && leaf.address + VDSO_DATA >= self.start;
        (self.start..self.end).contains(&leaf.address)
            || is_data && leaf.entry & (bits.special | WRITABLE) == bits.special
    }
}

/// Returns whether a frame contains the first page of the vDSO.
fn is_vdso(memory: &impl Physical, frame: u64) -> bool {
    memory.page(frame).is_some_and(|page| {
        page.starts_with(b"\x7fELF") && page.windows(VDSO_NAME.len()).any(|name| name == VDSO_NAME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::system::LINUX_BITS;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Fake(BTreeMap<u64, [u8; 4096]>);

    impl Fake {
        fn set(&mut self, table: u64, index: usize, entry: u64) {
            let page = self.0.entry(table).or_insert([0; 4096]);
            page[8 * index..8 * index + 8].copy_from_slice(&entry.to_le_bytes());
        }
    }

    impl Physical for Fake {
        fn page(&self, address: u64) -> Option<[u8; 4096]> {
            self.0.get(&address).copied()
        }
    }

    #[test]
    fn every_kind_of_entry_is_counted() {
        let mut memory = Fake::default();
        memory.set(0x1000, 0, 0x2000 | 7);
        // The upper half belongs to the kernel.
        memory.set(0x1000, 256, 0x9000 | 7);
        memory.set(0x2000, 0, 0x3000 | 7);
        memory.set(0x2000, 1, 0x4000_0000 | LARGE | 7);
        memory.set(0x3000, 0, 0x4000 | 7);
        memory.set(0x3000, 1, 0x20_0000 | LARGE | DIRTY | 7);
        memory.set(0x3000, 2, 0x40_0000 | LARGE | 5);
        memory.set(0x3000, 3, 0x8000_0000_0000_0100);
        memory.set(0x4000, 0, 0x5000 | DIRTY | 7);
        memory.set(0x4000, 1, 0x6000 | 5 | 1 << 63);
        memory.set(0x4000, 2, 0x7000 | LARGE | 7);
        memory.set(0x4000, 3, 0x100);
        // Linux saves the dirty bit of a write-protected page in a software bit.
        memory.set(0x4000, 4, 0x8000 | LINUX_BITS.saved_dirty | 5);
        memory.set(0x3000, 4, 0x60_0000 | LARGE | LINUX_BITS.saved_dirty | 5);
        let found = read(&memory, 0x1000 | 0x18, LINUX_BITS).unwrap();
        let expected = PageTables {
            tables: 4,
            small_writable: 2,
            small_read_only: 2,
            small_dirty: 2,
            large_writable: 1,
            large_read_only: 2,
            large_dirty: 2,
            giant: 1,
            not_present: 2,
            vdso: 0,
        };
        assert_eq!(found, expected);
        assert_eq!(read(&memory, 0xdead_0000, LINUX_BITS), None);
    }

    #[test]
    fn what_the_kernel_maps_for_itself_is_not_the_programs() {
        let mut memory = Fake::default();
        memory.set(0x1000, 0, 0x2000 | 7);
        memory.set(0x2000, 0, 0x3000 | 7);
        memory.set(0x3000, 0, 0x4000 | 7);
        let (read_only, data) = (PRESENT | 4, PRESENT | 4 | LINUX_BITS.special | NO_EXECUTE);
        // The mappings in order of addresses: the zero page, code that is not the vDSO, the vDSO's data, the vDSO, and
        // directly above it a page of the program.
        memory.set(0x4000, 1, 0x5000 | data);
        memory.set(0x4000, 2, 0x6000 | read_only);
        memory.set(0x4000, 30, 0x7000 | data);
        memory.set(0x4000, 31, 0x8000 | data | WRITABLE);
        memory.set(0x4000, 33, 0x9000 | read_only);
        memory.set(0x4000, 34, 0xa000 | read_only);
        memory.set(0x4000, 35, 0xb000 | read_only | NO_EXECUTE);
        let mut object = [0; 4096];
        object[..4].copy_from_slice(b"\x7fELF");
        memory.0.insert(0x6000, object);
        object[1000..1000 + VDSO_NAME.len()].copy_from_slice(VDSO_NAME);
        memory.0.insert(0x9000, object);
        let found = read(&memory, 0x1000, LINUX_BITS).unwrap();
        assert_eq!(
            (found.vdso, found.small_read_only, found.small_writable),
            (3, 3, 1)
        );
    }

    #[test]
    fn addresses_are_translated() {
        let mut memory = Fake::default();
        memory.set(0x1000, 511, 0x2000 | 7);
        memory.set(0x2000, 0, 0x3000 | 7);
        memory.set(0x2000, 1, 0x4000_0000 | LARGE | 7);
        memory.set(0x3000, 0, 0x4000 | 7);
        memory.set(0x3000, 1, 0x20_0000 | LARGE | 7);
        memory.set(0x4000, 2, 0x5000 | 1 << 63 | 7);
        let top = 0xffff_ff80_0000_0000;
        for (address, expected) in [
            (top + 0x2123, Some(0x5123)),
            (top + 0x20_0abc, Some(0x20_0abc)),
            (top + 0x4000_1234, Some(0x4000_1234)),
            (top + 0x3000, None),
            (0x2123, None),
        ] {
            assert_eq!(translate(&memory, 0x1000, address), expected, "{address:x}");
        }
    }

    #[test]
    fn a_table_that_holds_itself_ends() {
        let mut memory = Fake::default();
        for index in 0..ENTRIES {
            memory.set(0x1000, index, 0x1000 | 7);
        }
        assert_eq!(read(&memory, 0x1000, LINUX_BITS), None);
    }

    #[test]
    fn addresses_are_places_in_the_files() {
        const GIB: u64 = 1 << 30;
        let file = |size| Part {
            file: tempfile::tempfile().unwrap(),
            size,
        };
        for (sizes, address, expected) in [
            (&[GIB][..], 0x1000, Some((0, 0x1000))),
            (&[GIB], GIB, None),
            (&[GIB], 4 * GIB, None),
            (&[3 * GIB], 3 * GIB - 4096, Some((0, 3 * GIB - 4096))),
            (&[5 * GIB], 3 * GIB, None),
            (&[5 * GIB], 4 * GIB, Some((0, 3 * GIB))),
            (&[5 * GIB], 6 * GIB - 4096, Some((0, 5 * GIB - 4096))),
            (&[5 * GIB], 6 * GIB, None),
            (&[GIB, GIB], GIB - 4096, Some((0, GIB - 4096))),
            (&[GIB, GIB], GIB, Some((1, 0))),
            (&[GIB, GIB], 2 * GIB, None),
            (&[2 * GIB, 3 * GIB], 4 * GIB, Some((1, GIB))),
        ] {
            let parts: Vec<Part> = sizes.iter().map(|size| file(*size)).collect();
            let memory = Memory(&parts);
            let found = memory.locate(address).map(|(file, offset)| {
                let is_it = |part: &Part| std::ptr::eq(&raw const part.file, file);
                (parts.iter().position(is_it).unwrap(), offset)
            });
            assert_eq!(found, expected, "{sizes:x?} {address:#x}");
        }
    }
}
