//! The operations of the module `manager`, performed by the crates `memory_set` and `page_table_multiarch`, as in
//! ArceOS. The set contains the areas, and the table contains the pages. This module contains what a kernel adds to the
//! two: the backend, the handler of page faults, and an allocator of single frames.

use core::hint::black_box;
use core::sync::atomic::{AtomicUsize, Ordering};

use memory_addr::{MemoryAddr, PAGE_SIZE_4K, PhysAddr, VirtAddr};
use memory_set::{MappingBackend, MemoryArea, MemorySet};
use page_table_entry::x86_64::X64PTE;
use page_table_multiarch::{MappingFlags, PageSize, PageTable64, PagingHandler, PagingMetaData};

use crate::bytes::Bytes;

/// The number of frames.
const FRAMES: usize = 1024;

static MEMORY: Bytes<{ FRAMES * PAGE_SIZE_4K }> = Bytes::zeroed();

/// The number of frames that were allocated at least once. Frame 0 is not used, because address 0 means no frame.
static USED: AtomicUsize = AtomicUsize::new(1);

/// The address of the first free frame among those that were allocated before, or 0. Each free frame contains the
/// address of the next one.
static FREE: AtomicUsize = AtomicUsize::new(0);

/// An allocator of single frames.
struct Single;

impl Single {
    /// Returns a pointer to the first word of a frame. In a free frame, this word contains the address of the next free
    /// frame.
    fn word(paddr: PhysAddr) -> *mut usize {
        MEMORY
            .start()
            .as_ptr()
            .wrapping_add(paddr.as_usize())
            .cast()
    }
}

impl PagingHandler for Single {
    fn alloc_frames(num: usize, _align: usize) -> Option<PhysAddr> {
        if num != 1 {
            return None;
        }
        let free = FREE.load(Ordering::Relaxed);
        if free != 0 {
            let paddr = PhysAddr::from_usize(free);
            // SAFETY: the word is in the frame, which nothing else uses.
            FREE.store(unsafe { Self::word(paddr).read() }, Ordering::Relaxed);
            return Some(paddr);
        }
        let used = USED.load(Ordering::Relaxed);
        if used == FRAMES {
            return None;
        }
        USED.store(used + 1, Ordering::Relaxed);
        Some(PhysAddr::from_usize(used * PAGE_SIZE_4K))
    }

    fn dealloc_frames(paddr: PhysAddr, _num: usize) {
        // SAFETY: as above.
        unsafe { Self::word(paddr).write(FREE.load(Ordering::Relaxed)) };
        FREE.store(paddr.as_usize(), Ordering::Relaxed);
    }

    fn phys_to_virt(paddr: PhysAddr) -> VirtAddr {
        VirtAddr::from_usize(Self::word(paddr).expose_provenance())
    }
}

/// An x86-64 table. There is no TLB, because no program runs.
struct MetaData;

impl PagingMetaData for MetaData {
    const LEVELS: usize = 4;
    const PA_MAX_BITS: usize = 52;
    const VA_MAX_BITS: usize = 48;

    type VirtAddr = VirtAddr;

    fn flush_tlb(_vaddr: Option<VirtAddr>) {}
}

type Table = PageTable64<MetaData, X64PTE, Single>;

/// Memory whose pages are allocated by faults.
#[derive(Clone)]
struct Demand;

impl MappingBackend for Demand {
    type Addr = VirtAddr;
    type Flags = MappingFlags;
    type PageTable = Table;

    fn map(
        &self,
        _start: VirtAddr,
        _size: usize,
        _flags: MappingFlags,
        _table: &mut Table,
    ) -> bool {
        true
    }

    fn unmap(&self, start: VirtAddr, size: usize, table: &mut Table) -> bool {
        for offset in (0..size).step_by(PAGE_SIZE_4K) {
            if let Ok((frame, _, _)) = table.cursor().unmap(start.add(offset)) {
                Single::dealloc_frame(frame);
            }
        }
        true
    }

    fn protect(
        &self,
        start: VirtAddr,
        size: usize,
        flags: MappingFlags,
        table: &mut Table,
    ) -> bool {
        table.cursor().protect_region(start, size, flags).is_ok()
    }
}

/// An array with the size of an area. `cargo xtask size` reads the size of the symbol.
#[unsafe(no_mangle)]
static AREA_BYTES: [u8; size_of::<MemoryArea<Demand>>()] = [0; size_of::<MemoryArea<Demand>>()];

/// Handles a page fault. `cargo xtask size` counts the instructions of the second call, which needs no page table.
#[unsafe(no_mangle)]
#[inline(never)]
fn measured_fault(set: &MemorySet<Demand>, table: &mut Table, address: VirtAddr) -> Option<()> {
    let area = set.find(address)?;
    if !area.flags().contains(black_box(MappingFlags::WRITE)) {
        return None;
    }
    let frame = Single::alloc_frame()?;
    // SAFETY: nothing else uses the frame.
    unsafe {
        Single::phys_to_virt(frame)
            .as_mut_ptr()
            .write_bytes(0, PAGE_SIZE_4K);
    }
    let page = address.align_down(PageSize::Size4K);
    let mapped = table
        .cursor()
        .map(page, frame, PageSize::Size4K, area.flags());
    mapped.ok()
}

/// Maps four pages, stores to two, makes them read-only, and unmaps them. Returns `None` if an operation fails. The
/// arguments of the operations are unknown at compile time.
pub fn run() -> Option<()> {
    black_box(&AREA_BYTES);
    let mut table = Table::try_new().ok()?;
    let mut set = MemorySet::new();
    let start = black_box(VirtAddr::from_usize(0x40_0000));
    let length = black_box(4 * PAGE_SIZE_4K);
    let read = MappingFlags::READ | MappingFlags::USER;
    let flags = black_box(read | MappingFlags::WRITE);
    let area = MemoryArea::new(start, length, flags, Demand);
    set.map(area, &mut table, false).ok()?;
    measured_fault(&set, &mut table, start)?;
    measured_fault(&set, &mut table, start.add(PAGE_SIZE_4K))?;
    let read = black_box(read);
    set.protect(start, length, |_| Some(read), &mut table)
        .ok()?;
    set.unmap(start, length, &mut table).ok()
}
