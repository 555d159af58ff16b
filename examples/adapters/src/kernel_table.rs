//! The table of a kernel: `PageTable64` of `page_table_multiarch`, whose frames are Memwright's.
//!
//! Memwright's tables map user memory only. A kernel that has a table of `page_table_multiarch` for its own memory keeps
//! it. The frames of the table have the kind `Kernel`, so that its root can be the template of a
//! [`Table`](memwright_table::Table), which copies the kernel half.

use core::marker::PhantomData;

use memory_addr::{PAGE_SIZE_4K, PhysAddr, VirtAddr};
use memwright_table::{FrameKind, Frames, Machine, Page, PhysAddr as TableAddr};
use page_table_multiarch::{PagingHandler, PagingMetaData};

/// What a kernel provides for its table. The functions of `PagingHandler` have no receiver, so the frames are global.
pub trait Kernel: Send + Sync + 'static {
    /// The machine.
    type Machine: Machine;

    /// Returns the frames of the machine.
    fn frames() -> &'static Frames<Self::Machine>;

    /// Makes every CPU drop its translation of a page of kernel memory, or of all pages if `page` is `None`. Returns when
    /// every CPU has done so. `Machine::invalidate_local` and `invalidate_remote` suffice only if they also drop
    /// translations of kernel memory, which the contract of [`Machine`] does not promise.
    fn invalidate(page: Option<Page>);
}

/// The frames of a [`Kernel`], for a `PageTable64`.
pub struct Handler<K>(PhantomData<fn() -> K>);

/// The properties of an x86-64 table of four levels, and the invalidations of a [`Kernel`].
pub struct MetaData<K>(PhantomData<fn() -> K>);

/// The table of a kernel.
#[cfg(target_arch = "x86_64")]
pub type KernelTable<K> =
    page_table_multiarch::PageTable64<MetaData<K>, page_table_entry::x86_64::X64PTE, Handler<K>>;

impl<K: Kernel> PagingHandler for Handler<K> {
    /// Allocates a block of 2^n frames that has room for `num` frames. The block is aligned to its size.
    fn alloc_frames(num: usize, align: usize) -> Option<PhysAddr> {
        let pages = num.max(align / PAGE_SIZE_4K).checked_next_power_of_two()?;
        let order = u8::try_from(pages.trailing_zeros()).ok()?;
        if order > memwright_table::frame::MAX_ORDER {
            return None;
        }
        let block = K::frames().allocate(order, FrameKind::Kernel).ok()?;
        let address = block.into_raw().address().as_u64();
        Some(PhysAddr::from_usize(address as usize))
    }

    fn dealloc_frames(paddr: PhysAddr, _num: usize) {
        let frame = TableAddr::new(paddr.as_usize() as u64).frame();
        drop(K::frames().adopt(frame));
    }

    fn phys_to_virt(paddr: PhysAddr) -> VirtAddr {
        let base = K::frames().machine().memory_base().as_ptr();
        let pointer = base.wrapping_add(paddr.as_usize());
        VirtAddr::from_usize(pointer.expose_provenance())
    }
}

impl<K: Kernel> PagingMetaData for MetaData<K> {
    const LEVELS: usize = 4;
    const PA_MAX_BITS: usize = 52;
    const VA_MAX_BITS: usize = 48;

    type VirtAddr = VirtAddr;

    fn flush_tlb(vaddr: Option<VirtAddr>) {
        K::invalidate(vaddr.map(|address| Page::new(address.as_usize() as u64 >> 12)));
    }
}
