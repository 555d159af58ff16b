//! What a program's page tables hold, read from the guest's memory while it stands still.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

/// The lower half of the address space, by kind of entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageTables {
    /// Frames of tables, the root included.
    pub tables: u64,
    /// 4 KiB pages that may be written.
    pub small_writable: u64,
    /// 4 KiB pages that may not.
    pub small_read_only: u64,
    /// Those of both that are dirty.
    pub small_dirty: u64,
    /// 2 MiB pages that may be written.
    pub large_writable: u64,
    /// 2 MiB pages that may not.
    pub large_read_only: u64,
    /// Those of both that are dirty.
    pub large_dirty: u64,
    /// 1 GiB pages.
    pub giant: u64,
    /// Entries that are neither empty nor present: swapped pages, markers, pages that may not be accessed.
    pub not_present: u64,
}

/// Bits of an entry (Intel SDM volume 3, 4.5).
const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
/// Where an entry's address is.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const ENTRIES: usize = 512;
/// Entries of the root that are the lower half's.
const LOWER_HALF: usize = 256;
/// What a damaged table could lead to is no reason to walk for ever.
const MOST_TABLES: u64 = 1 << 20;

/// Physical memory of a guest.
pub trait Physical {
    /// The page at this address; `None` where there is no memory.
    fn page(&self, address: u64) -> Option<[u8; 4096]>;
}

/// A piece of a guest's memory.
#[derive(Debug)]
pub struct Part {
    /// Where it is.
    pub file: File,
    /// Its bytes.
    pub size: u64,
}

/// The memory of QEMU's `pc` machine, in order of addresses.
#[derive(Debug)]
pub struct Memory<'a>(pub &'a [Part]);

/// From this size on the machine has memory above 4 GiB (hw/i386/pc_piix.c), and so much below.
const SPLIT_FROM: u64 = 0xe000_0000;
const BELOW: u64 = 0xc000_0000;
const ABOVE: u64 = 1 << 32;

impl Memory<'_> {
    /// The file that an address is in, and where there.
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

/// The physical address that an address of either half leads to; `None` where nothing is mapped or readable.
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

impl PageTables {
    /// Walks the lower half of the tables that CR3 points to; `None` where they are not to be read.
    pub fn read(memory: &impl Physical, cr3: u64) -> Option<Self> {
        let mut found = Self::default();
        found.walk(memory, cr3 & ADDRESS, 4)?;
        Some(found)
    }

    fn walk(&mut self, memory: &impl Physical, table: u64, level: u32) -> Option<()> {
        let page = memory.page(table)?;
        self.tables += 1;
        if self.tables > MOST_TABLES {
            return None;
        }
        let count = if level == 4 { LOWER_HALF } else { ENTRIES };
        let entries = page.chunks_exact(8).take(count);
        for entry in entries.map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default())) {
            if entry & PRESENT == 0 {
                self.not_present += u64::from(entry != 0);
            } else if level == 1 || entry & LARGE != 0 && level < 4 {
                self.leaf(entry, level);
            } else {
                self.walk(memory, entry & ADDRESS, level - 1)?;
            }
        }
        Some(())
    }

    fn leaf(&mut self, entry: u64, level: u32) {
        let (writable, read_only, dirty) = match level {
            1 => (
                &mut self.small_writable,
                &mut self.small_read_only,
                &mut self.small_dirty,
            ),
            2 => (
                &mut self.large_writable,
                &mut self.large_read_only,
                &mut self.large_dirty,
            ),
            _ => {
                self.giant += 1;
                return;
            }
        };
        *dirty += u64::from(entry & DIRTY != 0);
        if entry & WRITABLE != 0 {
            *writable += 1;
        } else {
            *read_only += 1;
        }
    }

    /// The rows of reports.
    pub fn rows(&self) -> [(&'static str, u64); 9] {
        [
            ("page tables", self.tables),
            ("4 KiB, writable", self.small_writable),
            ("4 KiB, read-only", self.small_read_only),
            ("4 KiB, dirty", self.small_dirty),
            ("2 MiB, writable", self.large_writable),
            ("2 MiB, read-only", self.large_read_only),
            ("2 MiB, dirty", self.large_dirty),
            ("1 GiB", self.giant),
            ("neither present nor empty", self.not_present),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        // The upper half is the kernel's.
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
        let found = PageTables::read(&memory, 0x1000 | 0x18).unwrap();
        let expected = PageTables {
            tables: 4,
            small_writable: 2,
            small_read_only: 1,
            small_dirty: 1,
            large_writable: 1,
            large_read_only: 1,
            large_dirty: 1,
            giant: 1,
            not_present: 2,
        };
        assert_eq!(found, expected);
        assert_eq!(PageTables::read(&memory, 0xdead_0000), None);
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
        assert_eq!(PageTables::read(&memory, 0x1000), None);
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
