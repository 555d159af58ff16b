//! The methods of `PageTable64` and `PageTable64Cursor` of `page_table_multiarch`, on the user half of a [`Table`].
//!
//! `page_table_multiarch` has no trait for tables, so a kernel changes the type of its table. The calls and the errors
//! stay as they are. The frames that are mapped belong to the caller. The frames of page tables come from the
//! [`Frames`](memwright_table::Frames) of the table.
//!
//! ```
//! use memory_addr::{PhysAddr, VirtAddr};
//! use memwright_adapters::managed::ManagedTable;
//! use memwright_sim::{MachineOptions, SimulatedMachine};
//! use memwright_table::{FrameKind, Table};
//! use page_table_multiarch::{MappingFlags, PageSize};
//!
//! let machine = SimulatedMachine::new(MachineOptions::default());
//! let table = Table::new(machine.frames()).unwrap();
//! let block = table.frames().allocate_zeroed(0, FrameKind::Anonymous).unwrap();
//! let frame = PhysAddr::from_usize(block.frame().address().as_u64() as usize);
//! let page = VirtAddr::from_usize(0x40_0000);
//! let flags = MappingFlags::READ | MappingFlags::USER;
//!
//! let mut managed = ManagedTable::new(&table);
//! managed.cursor().map(page, frame, PageSize::Size4K, flags).unwrap();
//! assert_eq!(managed.query(page), Ok((frame, flags, PageSize::Size4K)));
//! ```

use core::ops::Deref;

use memory_addr::{MemoryAddr, PhysAddr, VirtAddr};
use memwright_table::{
    Bits, Gather, Machine, Page, PageSize as Size, PhysAddr as TableAddr, Present, Table,
};
use page_table_multiarch::{MappingFlags, PageSize, PagingError, PagingResult};

use crate::flags;
use crate::leaf::{self, Failure};

/// The user pages of a table. No other thread changes the table as long as a `ManagedTable` of it exists; only
/// processors set accessed and dirty bits.
pub struct ManagedTable<'t, M: Machine> {
    table: &'t Table<M>,
}

impl<'t, M: Machine> ManagedTable<'t, M> {
    /// Returns the user pages of `table`.
    pub fn new(table: &'t Table<M>) -> Self {
        Self { table }
    }

    /// Returns the physical address of the root.
    pub fn root_paddr(&self) -> PhysAddr {
        PhysAddr::from_usize(self.table.root().address().as_u64() as usize)
    }

    /// Returns the physical address to which `vaddr` is mapped, the flags of its page, and the size of the page.
    ///
    /// # Errors
    /// [`PagingError::NotMapped`] if no page is mapped at `vaddr`, or if the page was protected with no right.
    pub fn query(&self, vaddr: VirtAddr) -> PagingResult<(PhysAddr, MappingFlags, PageSize)> {
        let found =
            leaf::find(self.table, page(vaddr)).filter(|page| page.bits.contains(Bits::READ));
        let found = found.ok_or(PagingError::NotMapped)?;
        let (paddr, flags, size) = described(found);
        Ok((paddr.add(size.align_offset(vaddr.as_usize())), flags, size))
    }

    /// Returns a cursor that changes pages. When it is dropped, or by [`flush`](ManagedCursor::flush), every CPU that
    /// has the table loaded drops the old translations.
    pub fn cursor(&mut self) -> ManagedCursor<'_, 't, M> {
        ManagedCursor {
            gather: None,
            inner: self,
        }
    }
}

/// Changes pages of a [`ManagedTable`]. The caller may free an unmapped frame only after the flush.
///
/// # Panics
/// Methods with flags panic if a page of user memory cannot have them: `USER` is missing, or the page would be uncached.
/// Methods that find a page of an [`AddressSpace`](memwright::AddressSpace) panic, too.
pub struct ManagedCursor<'a, 't, M: Machine> {
    inner: &'a mut ManagedTable<'t, M>,
    gather: Option<Gather<'t, M>>,
}

impl<'t, M: Machine> ManagedCursor<'_, 't, M> {
    fn parts(&mut self) -> (&'t Table<M>, &mut Gather<'t, M>) {
        let table = self.inner.table;
        (
            table,
            self.gather.get_or_insert_with(|| leaf::gather(table)),
        )
    }

    /// Returns the page that is mapped at `vaddr`, and its first page.
    fn found(&self, vaddr: VirtAddr) -> PagingResult<(Present, Page)> {
        let page = page(vaddr);
        let found = leaf::find(self.inner.table, page).ok_or(PagingError::NotMapped)?;
        let first = Page::new(page.number() & !(found.size.pages() - 1));
        Ok((found, first))
    }

    /// Maps a page. As in `page_table_multiarch`, both addresses are rounded down to multiples of the size.
    ///
    /// # Errors
    /// [`PagingError::AlreadyMapped`] if the page or a part of it is mapped, [`PagingError::MappedToHugePage`] if it is
    /// part of a larger page, [`PagingError::NoMemory`] if there is no frame for a table. [`PagingError::NotAligned`]
    /// if the page is not in user memory, or has a size that x86-64 lacks.
    pub fn map(
        &mut self,
        vaddr: VirtAddr,
        target: PhysAddr,
        page_size: PageSize,
        flags: MappingFlags,
    ) -> PagingResult {
        let bits = bits(flags);
        let size = size(page_size).ok_or(PagingError::NotAligned)?;
        let new = Present {
            frame: frame(target.align_down(page_size)),
            size,
            bits,
        };
        let (table, gather) = self.parts();
        let first = page(vaddr.align_down(page_size));
        leaf::map(table, first, new, gather).map_err(error)
    }

    /// Maps the page at `vaddr` to another frame, with other flags. Returns its size.
    ///
    /// # Errors
    /// [`PagingError::NotMapped`] if no page is mapped, and [`PagingError::NotAligned`] if `paddr` is not a multiple of
    /// the size of the page.
    pub fn remap(
        &mut self,
        vaddr: VirtAddr,
        paddr: PhysAddr,
        flags: MappingFlags,
    ) -> PagingResult<PageSize> {
        let bits = bits(flags);
        let (old, first) = self.found(vaddr)?;
        let size = page_size(old.size);
        if !size.is_aligned(paddr.as_usize()) {
            return Err(PagingError::NotAligned);
        }
        let new = Present {
            frame: frame(paddr),
            size: old.size,
            bits,
        };
        let (table, gather) = self.parts();
        leaf::remap(table, first, new, gather).map_err(error)?;
        Ok(size)
    }

    /// Changes the flags of the page at `vaddr`. Returns its size. The accessed and dirty bits stay as the processor has
    /// set them. A page without rights stays mapped, and can be protected again.
    ///
    /// # Errors
    /// [`PagingError::NotMapped`] if no page is mapped.
    pub fn protect(&mut self, vaddr: VirtAddr, flags: MappingFlags) -> PagingResult<PageSize> {
        let bits = bits(flags);
        let (old, first) = self.found(vaddr)?;
        let (table, gather) = self.parts();
        leaf::protect(table, first, old.size, bits, gather).map_err(error)?;
        Ok(page_size(old.size))
    }

    /// Unmaps the page at `vaddr`. Returns its physical address, its flags, and its size.
    ///
    /// # Errors
    /// [`PagingError::NotMapped`] if no page is mapped.
    pub fn unmap(&mut self, vaddr: VirtAddr) -> PagingResult<(PhysAddr, MappingFlags, PageSize)> {
        let (old, first) = self.found(vaddr)?;
        let (table, gather) = self.parts();
        leaf::unmap(table, first, old.size, gather).map_err(error)?;
        Ok(described(old))
    }

    /// Maps the `size` bytes from `vaddr` on to the addresses that `get_paddr` returns. With `allow_huge`, pages of
    /// 2 MiB and 1 GiB are used where both addresses are aligned.
    ///
    /// # Errors
    /// [`PagingError::NotAligned`] if `vaddr` or `size` is not a multiple of 4 KiB. Otherwise the errors of
    /// [`map`](Self::map); the pages below the failing one stay mapped.
    pub fn map_region(
        &mut self,
        vaddr: VirtAddr,
        get_paddr: impl Fn(VirtAddr) -> PhysAddr,
        size: usize,
        flags: MappingFlags,
        allow_huge: bool,
    ) -> PagingResult {
        check_region(vaddr, size)?;
        let mut done = 0;
        while done < size {
            let here = vaddr.add(done);
            let paddr = get_paddr(here);
            let fits = |page: &PageSize| {
                page.is_aligned(here.as_usize() | paddr.as_usize()) && *page as usize <= size - done
            };
            let huge = [PageSize::Size1G, PageSize::Size2M].into_iter();
            let huge = huge.filter(|_| allow_huge).find(fits);
            let page = huge.unwrap_or(PageSize::Size4K);
            self.map(here, paddr, page, flags)?;
            done += page as usize;
        }
        Ok(())
    }

    /// Unmaps the `size` bytes from `vaddr` on.
    ///
    /// # Errors
    /// [`PagingError::NotAligned`] if `vaddr` or `size` is not a multiple of 4 KiB, or if a page is only partly in the
    /// range. [`PagingError::NotMapped`] if a page is not mapped. After an error, the pages below the failing one are
    /// unmapped.
    pub fn unmap_region(&mut self, vaddr: VirtAddr, size: usize) -> PagingResult {
        check_region(vaddr, size)?;
        let mut done = 0;
        while done < size {
            let here = vaddr.add(done);
            let page = self
                .whole_in(here, size - done)?
                .ok_or(PagingError::NotMapped)?;
            self.unmap(here)?;
            done += page as usize;
        }
        Ok(())
    }

    /// Changes the flags of the `size` bytes from `vaddr` on. Skips pages that are not mapped.
    ///
    /// # Errors
    /// [`PagingError::NotAligned`] if `vaddr` or `size` is not a multiple of 4 KiB, or if a page is only partly in the
    /// range. In the second case, the pages below it have already changed.
    pub fn protect_region(
        &mut self,
        vaddr: VirtAddr,
        size: usize,
        flags: MappingFlags,
    ) -> PagingResult {
        check_region(vaddr, size)?;
        let mut done = 0;
        while done < size {
            let here = vaddr.add(done);
            let page = self.whole_in(here, size - done)?;
            if page.is_some() {
                self.protect(here, flags)?;
            }
            done += page.unwrap_or(PageSize::Size4K) as usize;
        }
        Ok(())
    }

    /// Returns the size of the page at `here`, or `None` if none is mapped. Fails if the page does not begin at `here`
    /// or is larger than `rest` bytes.
    fn whole_in(&self, here: VirtAddr, rest: usize) -> PagingResult<Option<PageSize>> {
        let Ok((found, _)) = self.found(here) else {
            return Ok(None);
        };
        let size = page_size(found.size);
        if !size.is_aligned(here.as_usize()) || size as usize > rest {
            return Err(PagingError::NotAligned);
        }
        Ok(Some(size))
    }

    /// Makes every CPU that has the table loaded drop the translations that the cursor has changed.
    pub fn flush(&mut self) {
        if let Some(gather) = self.gather.take() {
            gather.finish();
        }
    }
}

impl<M: Machine> Drop for ManagedCursor<'_, '_, M> {
    fn drop(&mut self) {
        self.flush();
    }
}

impl<'t, M: Machine> Deref for ManagedCursor<'_, 't, M> {
    type Target = ManagedTable<'t, M>;

    fn deref(&self) -> &ManagedTable<'t, M> {
        self.inner
    }
}

/// Returns the bits of an entry, or panics if `PagingError` has no variant for these flags.
#[track_caller]
fn bits(flags: MappingFlags) -> Bits {
    match flags::bits(flags) {
        Ok(bits) => bits,
        Err(error) => panic!("{error}"),
    }
}

fn error(failure: Failure) -> PagingError {
    match failure {
        Failure::Mapped(_) => PagingError::AlreadyMapped,
        Failure::NotMapped => PagingError::NotMapped,
        Failure::InLarger | Failure::HasTable => PagingError::MappedToHugePage,
        Failure::Misaligned | Failure::NotUser => PagingError::NotAligned,
        Failure::OutOfFrames => PagingError::NoMemory,
    }
}

fn check_region(vaddr: VirtAddr, size: usize) -> PagingResult {
    if PageSize::Size4K.is_aligned(vaddr.as_usize() | size) {
        Ok(())
    } else {
        Err(PagingError::NotAligned)
    }
}

fn described(page: Present) -> (PhysAddr, MappingFlags, PageSize) {
    let paddr = PhysAddr::from_usize(page.frame.address().as_u64() as usize);
    (paddr, flags::mapping_flags(page), page_size(page.size))
}

fn page(vaddr: VirtAddr) -> Page {
    Page::new(vaddr.as_usize() as u64 >> 12)
}

fn frame(paddr: PhysAddr) -> memwright_table::Frame {
    TableAddr::new(paddr.as_usize() as u64).frame()
}

fn page_size(size: Size) -> PageSize {
    match size {
        Size::Size4K => PageSize::Size4K,
        Size::Size2M => PageSize::Size2M,
        Size::Size1G => PageSize::Size1G,
    }
}

/// Returns `None` for the size that only 32-bit tables have.
fn size(size: PageSize) -> Option<Size> {
    match size {
        PageSize::Size4K => Some(Size::Size4K),
        PageSize::Size1M => None,
        PageSize::Size2M => Some(Size::Size2M),
        PageSize::Size1G => Some(Size::Size1G),
    }
}
