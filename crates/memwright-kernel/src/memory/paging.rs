//! The kernel's own half of the address space.
//!
//! ```text
//! 0xffff_8000_0000_0000  direct map   all usable memory but the image's text and constants; RW, NX
//! 0xffff_c000_0000_0000  stacks       one 64 KiB slot each: guard pages below, the stack at its end
//! 0xffff_e000_0000_0000  devices      local APIC and I/O APIC; uncached, NX
//! 0xffff_e000_0020_0000  window       memory shared with the command; RW, NX
//! 0xffff_ffff_8000_0000  image        text RX, constants R+NX, data RW+NX
//! ```
//!
//! All top-level entries of this half are filled at boot and never change. Every root copies these entries from the
//! template, so later changes to the lower levels apply to every root. No page is both writable and executable, even
//! through an alias.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch;
use crate::boot::memory_map::MemoryMap;
use crate::boot::pvh::PhysicalRange;

/// The virtual address at which the mapping of the kernel image has physical address 0.
pub const IMAGE_BASE: u64 = 0xffff_ffff_8000_0000;
/// The virtual address at which the direct map has physical address 0.
pub const DIRECT_BASE: u64 = 0xffff_8000_0000_0000;
/// The address after the last physical address that the direct map covers (64 TiB).
const DIRECT_LIMIT: u64 = 1 << 46;
/// Start of the area of kernel stacks.
pub const STACKS_BASE: u64 = 0xffff_c000_0000_0000;
/// The start of the area of device registers, in which each device has one page.
const DEVICES_BASE: u64 = 0xffff_e000_0000_0000;

/// The first address that does not belong to user space, which is the end of the lower canonical half.
pub const USER_LIMIT: u64 = 0x0000_8000_0000_0000;

const PAGE: u64 = 4096;
const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const WRITE_THROUGH: u64 = 1 << 3;
const NO_CACHE: u64 = 1 << 4;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The rights of a kernel mapping. Its entries always have the accessed and dirty bits set, so the processor never
/// writes to the kernel's tables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// The rights of text.
    ReadExecute,
    /// The rights of constants.
    Read,
    /// The rights of data.
    ReadWrite,
    /// The rights of device registers, which are uncached.
    Device,
}

impl Protection {
    const fn bits(self) -> u64 {
        let common = PRESENT | ACCESSED | DIRTY | GLOBAL;
        match self {
            Self::ReadExecute => common,
            Self::Read => common | NO_EXECUTE,
            Self::ReadWrite => common | WRITE | NO_EXECUTE,
            Self::Device => common | WRITE | NO_EXECUTE | NO_CACHE | WRITE_THROUGH,
        }
    }
}

/// Physical address of the template root, whose upper half every root copies.
static TEMPLATE: AtomicU64 = AtomicU64::new(0);

/// Returns the physical address of the template root.
pub fn template() -> u64 {
    TEMPLATE.load(Ordering::Relaxed)
}

/// The size in bytes of the boot processor's first stack, which later serves as its idle stack.
pub const BOOT_STACK_SIZE: usize = 64 * 1024;

unsafe extern "C" {
    static image_text_start: u8;
    static image_text_end: u8;
    static image_rodata_end: u8;
    static image_end: u8;
    static boot_stack: u8;
}

/// The link addresses of the image's parts.
pub struct Image {
    /// The first byte of text.
    pub text_start: u64,
    /// The end of text, and the first byte of constants.
    pub text_end: u64,
    /// The end of constants, and the first byte of data.
    pub rodata_end: u64,
    /// The end of data.
    pub end: u64,
    /// The guard page below the boot stack, which is inside data.
    pub guard: u64,
}

/// Returns the addresses of the image's parts.
pub fn image() -> Image {
    Image {
        text_start: &raw const image_text_start as u64,
        text_end: &raw const image_text_end as u64,
        rodata_end: &raw const image_rodata_end as u64,
        end: &raw const image_end as u64,
        guard: &raw const boot_stack as u64,
    }
}

/// Returns the physical range of the complete image.
pub fn image_memory() -> PhysicalRange {
    let image = image();
    PhysicalRange {
        start: image.text_start - IMAGE_BASE,
        end: image.end - IMAGE_BASE,
    }
}

/// Access to the tables by physical address: through the identity mapping under the boot tables, and later through the
/// direct map.
#[derive(Clone, Copy)]
struct Tables {
    offset: u64,
}

impl Tables {
    /// Returns the entry with index `index` of the table at physical address `table`.
    fn entry(self, table: u64, index: u64) -> &'static AtomicU64 {
        let address = self.offset + table + (index & 511) * 8;
        // SAFETY: every `table` passed here is one of the kernel's own page tables. It is mapped at `offset` as long as
        // this value is used, and is accessed only as atomic words.
        unsafe { &*(address as *const AtomicU64) }
    }

    /// Maps `length` bytes with the largest pages that fit.
    ///
    /// Returns `None` if a table is needed and `page` returns no page for it. Addresses and length are page-aligned.
    fn map(
        self,
        root: u64,
        mut virtual_address: u64,
        mut physical: u64,
        mut length: u64,
        protection: Protection,
        page: &mut impl FnMut() -> Option<u64>,
    ) -> Option<()> {
        let gigabyte_pages = arch::has_gigabyte_pages();
        while length > 0 {
            let fits =
                |size: u64| (virtual_address | physical).is_multiple_of(size) && length >= size;
            let level = if fits(1 << 30) && gigabyte_pages {
                2
            } else if fits(1 << 21) {
                1
            } else {
                0
            };
            let mut table = root;
            for above in (level + 1..4).rev() {
                let entry = self.entry(table, virtual_address >> (12 + 9 * above));
                if entry.load(Ordering::Relaxed) & PRESENT == 0 {
                    let fresh = page()?;
                    self.clear(fresh);
                    entry.store(fresh | PRESENT | WRITE | ACCESSED, Ordering::Release);
                }
                table = entry.load(Ordering::Relaxed) & ADDRESS;
            }
            let large = if level > 0 { LARGE } else { 0 };
            let entry = self.entry(table, virtual_address >> (12 + 9 * level));
            entry.store(physical | protection.bits() | large, Ordering::Release);
            let size = PAGE << (9 * level);
            virtual_address += size;
            physical += size;
            length -= size;
        }
        Some(())
    }

    /// Allocates empty tables for all top-level entries that `[start, end)` needs.
    fn reserve_top(
        self,
        root: u64,
        start: u64,
        end: u64,
        page: &mut impl FnMut() -> Option<u64>,
    ) -> Option<()> {
        let first = start >> 39 & 511;
        let last = (end - 1) >> 39 & 511;
        for index in first..=last {
            let entry = self.entry(root, index);
            if entry.load(Ordering::Relaxed) & PRESENT == 0 {
                let fresh = page()?;
                self.clear(fresh);
                entry.store(fresh | PRESENT | WRITE | ACCESSED, Ordering::Relaxed);
            }
        }
        Some(())
    }

    fn clear(self, table: u64) {
        for index in 0..512 {
            self.entry(table, index).store(0, Ordering::Relaxed);
        }
    }
}

/// Builds the kernel's tables from pages of `free` and loads them. This ends the identity mapping.
///
/// Returns `None` if there is not enough memory below 1 GiB.
///
/// # Safety
/// Called once, on the boot processor, under the boot tables. `usable` is all usable memory, and `free` is the part of
/// it that is not in use. `window` is the physical range of the command's window.
pub unsafe fn build(usable: &MemoryMap, free: &mut MemoryMap, window: PhysicalRange) -> Option<()> {
    let tables = Tables { offset: 0 };
    let mut page = || free.take_page(1 << 30);
    let root = page()?;
    tables.clear(root);
    let image = image();
    let parts = [
        (image.text_start, image.text_end, Protection::ReadExecute),
        (image.text_end, image.rodata_end, Protection::Read),
        (image.rodata_end, image.guard, Protection::ReadWrite),
        (image.guard + PAGE, image.end, Protection::ReadWrite),
    ];
    for (start, end, protection) in parts {
        tables.map(
            root,
            start,
            start - IMAGE_BASE,
            end - start,
            protection,
            &mut page,
        )?;
    }
    // Text and constants are not in the direct map, so that they have no writable alias.
    let mut direct = *usable;
    direct.remove(PhysicalRange {
        start: image.text_start - IMAGE_BASE,
        end: image.rodata_end - IMAGE_BASE,
    });
    for range in direct.iter() {
        let end = range.end.min(DIRECT_LIMIT);
        let length = end.saturating_sub(range.start);
        let address = DIRECT_BASE + range.start;
        tables.map(
            root,
            address,
            range.start,
            length,
            Protection::ReadWrite,
            &mut page,
        )?;
    }
    tables.reserve_top(root, STACKS_BASE, STACKS_BASE + (1 << 39), &mut page)?;
    for (slot, address) in (0..).zip(DEVICES) {
        let at = DEVICES_BASE + slot * PAGE;
        tables.map(root, at, address, PAGE, Protection::Device, &mut page)?;
    }
    tables.map(
        root,
        WINDOW_MEMORY,
        window.start,
        window.end - window.start,
        Protection::ReadWrite,
        &mut page,
    )?;
    TEMPLATE.store(root, Ordering::Relaxed);
    // SAFETY: the new tables map the running text, the stack and all data at their current addresses.
    unsafe { arch::load_root(root) };
    Some(())
}

/// The device pages that are mapped: the local APIC and the I/O APIC, at their architectural addresses.
const DEVICES: [u64; 2] = [0xfee0_0000, 0xfec0_0000];

/// Address of the local APIC's registers.
pub const LOCAL_APIC: u64 = DEVICES_BASE;
/// Address of the I/O APIC's registers.
pub const IO_APIC: u64 = DEVICES_BASE + PAGE;
/// Virtual address of the window, the memory that the guest shares with the command.
pub const WINDOW_MEMORY: u64 = DEVICES_BASE + (2 << 20);

/// Maps one page of kernel data at `address` in the area of stacks. `page` provides pages for page tables; these pages
/// are in the direct map.
///
/// Returns `None` if a table was needed and no page was available; nothing is then mapped.
///
/// # Locks
/// The caller holds the lock of the area of stacks.
pub fn map_stack_page(
    address: u64,
    physical: u64,
    page: &mut impl FnMut() -> Option<u64>,
) -> Option<()> {
    let tables = Tables {
        offset: DIRECT_BASE,
    };
    tables.map(
        template(),
        address,
        physical,
        PAGE,
        Protection::ReadWrite,
        page,
    )
}

/// Unmaps the page at `address` and returns its physical address. Before the caller reuses the page, it must invalidate
/// the address on every CPU.
pub fn unmap_stack_page(address: u64) -> Option<u64> {
    let tables = Tables {
        offset: DIRECT_BASE,
    };
    let mut table = template();
    for above in [3u64, 2, 1] {
        let entry = tables
            .entry(table, address >> (12 + 9 * above))
            .load(Ordering::Relaxed);
        if entry & PRESENT == 0 {
            return None;
        }
        table = entry & ADDRESS;
    }
    let old = tables.entry(table, address >> 12).swap(0, Ordering::AcqRel);
    (old & PRESENT != 0).then_some(old & ADDRESS)
}

/// The result of a walk over the kernel half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkReport {
    /// The number of mapped leaf entries.
    pub leaves: u64,
    /// The number of leaf entries that are both writable and executable, which must be 0.
    pub writable_executable: u64,
    /// The number of leaf entries that user mode can access, which must be 0.
    pub user: u64,
    /// The number of executable leaf entries.
    pub executable: u64,
}

/// Walks every kernel mapping. Returns the number of leaf entries, and of those with forbidden rights.
pub fn audit() -> WalkReport {
    let mut report = WalkReport::default();
    let tables = Tables {
        offset: DIRECT_BASE,
    };
    for index in 256..512 {
        let entry = tables.entry(template(), index).load(Ordering::Relaxed);
        if entry & PRESENT != 0 {
            audit_table(tables, entry & ADDRESS, 2, entry, &mut report);
        }
    }
    report
}

/// Walks a table and the tables below it. `rights` contains the rights from the levels above. Write and user access are
/// set if all of these levels permit them, and no-execute is set if any of these levels sets it.
fn audit_table(tables: Tables, table: u64, level: u32, rights: u64, report: &mut WalkReport) {
    for index in 0..512 {
        let entry = tables.entry(table, index).load(Ordering::Relaxed);
        if entry & PRESENT == 0 {
            continue;
        }
        let below = (entry & rights & (WRITE | USER)) | ((entry | rights) & NO_EXECUTE);
        if level > 0 && entry & LARGE == 0 {
            audit_table(tables, entry & ADDRESS, level - 1, below, report);
            continue;
        }
        report.leaves += 1;
        let executable = below & NO_EXECUTE == 0;
        report.executable += u64::from(executable);
        report.writable_executable += u64::from(executable && below & WRITE != 0);
        report.user += u64::from(below & USER != 0);
    }
}
