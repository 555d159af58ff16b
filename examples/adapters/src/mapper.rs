//! `Mapper` and `Translate` of `x86_64`, on the user half of a [`Table`].
//!
//! The frames that are mapped belong to the caller, as with every `Mapper`. The frames of page tables come from the
//! [`Frames`](memwright_table::Frames) of the table, not from the `FrameAllocator` that is passed to `map_to`.
//!
//! When a method returns, every CPU that has the table loaded has dropped the old translation. The caller may
//! therefore [ignore](MapperFlush::ignore) the returned flush, and may free a frame as soon as it is unmapped.
//!
//! ```
//! use memwright_adapters::mapper::TableMapper;
//! use memwright_sim::{MachineOptions, SimulatedMachine};
//! use memwright_table::{FrameKind, Table};
//! use x86_64::structures::paging::mapper::Translate;
//! use x86_64::structures::paging::{Mapper, Page, PageTableFlags, PhysFrame, Size4KiB};
//! use x86_64::{PhysAddr, VirtAddr};
//!
//! let machine = SimulatedMachine::new(MachineOptions::default());
//! let table = Table::new(machine.frames()).unwrap();
//! let block = table.frames().allocate_zeroed(0, FrameKind::Anonymous).unwrap();
//! let frame = PhysFrame::containing_address(PhysAddr::new(block.frame().address().as_u64()));
//! let page: Page<Size4KiB> = Page::containing_address(VirtAddr::new(0x40_0000));
//! let flags = PageTableFlags::PRESENT | PageTableFlags::USER_ACCESSIBLE;
//!
//! let mut mapper = TableMapper::new(&table);
//! let mut allocator = mapper.allocator();
//! // SAFETY: the frame is mapped nowhere else.
//! let mapped = unsafe { mapper.map_to(page, frame, flags, &mut allocator) };
//! mapped.unwrap().ignore();
//! assert_eq!(mapper.translate_addr(VirtAddr::new(0x40_0123)), Some(frame.start_address() + 0x123));
//! ```

use memwright_table::{Bits, Frame, Machine, Page as TablePage, PageSize as Size, Present, Table};
use x86_64::structures::paging::mapper::{
    FlagUpdateError, MapToError, MappedFrame, MapperFlush, MapperFlushAll, Translate,
    TranslateError, TranslateResult, UnmapError,
};
use x86_64::structures::paging::{
    FrameAllocator, Mapper, Page, PageSize, PageTableFlags, PhysFrame, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

use crate::flags::{self, Unsupported};
use crate::leaf::{self, Failure};

/// The user pages of a table. No other thread changes the table as long as a mapper of it exists; only processors set
/// accessed and dirty bits.
pub struct TableMapper<'t, M: Machine> {
    table: &'t Table<M>,
}

/// The allocator for calls of `map_to` on a [`TableMapper`]. It has no frames, because a Memwright table allocates its
/// page tables itself.
#[derive(Debug)]
pub struct NoFrames;

// SAFETY: no frame is returned.
unsafe impl FrameAllocator<Size4KiB> for NoFrames {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        None
    }
}

impl<'t, M: Machine> TableMapper<'t, M> {
    /// Creates a mapper of `table`.
    pub fn new(table: &'t Table<M>) -> Self {
        Self { table }
    }

    /// Returns the allocator to pass to `map_to`.
    pub fn allocator(&self) -> NoFrames {
        NoFrames
    }

    /// Returns an error if a page of user memory cannot have `flags`. A method of [`Mapper`] panics instead.
    ///
    /// # Errors
    /// See [`Unsupported`].
    pub fn check(flags: PageTableFlags) -> Result<(), Unsupported> {
        flags::entry_bits(flags).map(|_| ())
    }
}

/// Returns the bits of an entry with `flags`, or panics if `Mapper` has no error for these flags.
#[track_caller]
fn bits(flags: PageTableFlags) -> Bits {
    match flags::entry_bits(flags) {
        Ok(bits) => bits,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the size of a mapper's pages.
fn size<S: PageSize>() -> Size {
    match S::SIZE {
        0x1000 => Size::Size4K,
        0x20_0000 => Size::Size2M,
        _ => Size::Size1G,
    }
}

fn number<S: PageSize>(page: Page<S>) -> TablePage {
    TablePage::new(page.start_address().as_u64() >> 12)
}

/// Returns the frame of size `S` that contains `frame`.
fn frame<S: PageSize>(frame: Frame) -> PhysFrame<S> {
    PhysFrame::containing_address(PhysAddr::new(frame.address().as_u64()))
}

/// The methods panic only as `docs/embedding.md` states: `unmap` and `update_flags` if an address space has mapped the
/// page, `map_to` and `update_flags` if a page of user memory cannot have the flags, and `map_to` if the page is not in
/// user memory.
impl<M: Machine, S: PageSize> Mapper<S> for TableMapper<'_, M> {
    /// Maps a page. `parent_table_flags` and `allocator` are not used: entries above the last level always permit all
    /// accesses, and the table allocates its page tables itself.
    ///
    /// # Safety
    /// See [`Mapper::map_to`].
    ///
    /// # Panics
    /// If the page is not in user memory, or cannot have these flags.
    unsafe fn map_to_with_table_flags<A>(
        &mut self,
        page: Page<S>,
        frame_to_map: PhysFrame<S>,
        flags: PageTableFlags,
        _parent_table_flags: PageTableFlags,
        _allocator: &mut A,
    ) -> Result<MapperFlush<S>, MapToError<S>>
    where
        Self: Sized,
        A: FrameAllocator<Size4KiB> + ?Sized,
    {
        let address = memwright_table::PhysAddr::new(frame_to_map.start_address().as_u64());
        let new = Present {
            frame: address.frame(),
            size: size::<S>(),
            bits: bits(flags),
        };
        let mut gather = leaf::gather(self.table);
        let mapped = leaf::map(self.table, number(page), new, &mut gather);
        gather.finish();
        match mapped {
            Ok(()) => Ok(MapperFlush::new(page)),
            Err(Failure::Mapped(old)) => Err(MapToError::PageAlreadyMapped(frame(old.frame))),
            Err(Failure::InLarger) => Err(MapToError::ParentEntryHugePage),
            Err(Failure::OutOfFrames) => Err(MapToError::FrameAllocationFailed),
            Err(
                failure @ (Failure::NotUser
                | Failure::Misaligned
                | Failure::NotMapped
                | Failure::HasTable),
            ) => panic!("{page:?} cannot be mapped: {failure:?}"),
        }
    }

    fn unmap(&mut self, page: Page<S>) -> Result<(PhysFrame<S>, MapperFlush<S>), UnmapError> {
        let mut gather = leaf::gather(self.table);
        let unmapped = leaf::unmap(self.table, number(page), size::<S>(), &mut gather);
        gather.finish();
        match unmapped {
            Ok(old) => Ok((frame(old.frame), MapperFlush::new(page))),
            Err(failure) if failure.is_of_another_size() => Err(UnmapError::ParentEntryHugePage),
            Err(_) => Err(UnmapError::PageNotMapped),
        }
    }

    /// Changes the rights of a page. The accessed and dirty bits stay as the processor has set them.
    ///
    /// # Safety
    /// See [`Mapper::update_flags`].
    ///
    /// # Panics
    /// If a page of user memory cannot have these flags.
    unsafe fn update_flags(
        &mut self,
        page: Page<S>,
        flags: PageTableFlags,
    ) -> Result<MapperFlush<S>, FlagUpdateError> {
        let rights = bits(flags);
        let mut gather = leaf::gather(self.table);
        let changed = leaf::protect(self.table, number(page), size::<S>(), rights, &mut gather);
        gather.finish();
        match changed {
            Ok(_) => Ok(MapperFlush::new(page)),
            Err(failure) if failure.is_of_another_size() => {
                Err(FlagUpdateError::ParentEntryHugePage)
            }
            Err(_) => Err(FlagUpdateError::PageNotMapped),
        }
    }

    /// Fails, because entries above the last level always permit all accesses.
    ///
    /// # Safety
    /// Nothing changes.
    unsafe fn set_flags_p4_entry(
        &mut self,
        _page: Page<S>,
        _flags: PageTableFlags,
    ) -> Result<MapperFlushAll, FlagUpdateError> {
        Err(FlagUpdateError::ParentEntryHugePage)
    }

    /// Fails, because entries above the last level always permit all accesses.
    ///
    /// # Safety
    /// Nothing changes.
    unsafe fn set_flags_p3_entry(
        &mut self,
        _page: Page<S>,
        _flags: PageTableFlags,
    ) -> Result<MapperFlushAll, FlagUpdateError> {
        Err(FlagUpdateError::ParentEntryHugePage)
    }

    /// Fails, because entries above the last level always permit all accesses.
    ///
    /// # Safety
    /// Nothing changes.
    unsafe fn set_flags_p2_entry(
        &mut self,
        _page: Page<S>,
        _flags: PageTableFlags,
    ) -> Result<MapperFlushAll, FlagUpdateError> {
        Err(FlagUpdateError::ParentEntryHugePage)
    }

    fn translate_page(&self, page: Page<S>) -> Result<PhysFrame<S>, TranslateError> {
        let found = leaf::find(self.table, number(page)).filter(is_present);
        let found = found.ok_or(TranslateError::PageNotMapped)?;
        if found.size != size::<S>() {
            return Err(TranslateError::ParentEntryHugePage);
        }
        Ok(frame(found.frame))
    }
}

impl<M: Machine> Translate for TableMapper<'_, M> {
    fn translate(&self, address: VirtAddr) -> TranslateResult {
        let page = TablePage::new(address.as_u64() >> 12);
        let Some(found) = leaf::find(self.table, page).filter(is_present) else {
            return TranslateResult::NotMapped;
        };
        let mapped = match found.size {
            Size::Size4K => MappedFrame::Size4KiB(frame(found.frame)),
            Size::Size2M => MappedFrame::Size2MiB(frame(found.frame)),
            Size::Size1G => MappedFrame::Size1GiB(frame(found.frame)),
        };
        TranslateResult::Mapped {
            frame: mapped,
            offset: address.as_u64() & (found.size.bytes() - 1),
            flags: flags::entry_flags(found),
        }
    }
}

/// Whether a processor would find the page: not if it has no rights.
fn is_present(page: &Present) -> bool {
    page.bits.contains(Bits::READ)
}
