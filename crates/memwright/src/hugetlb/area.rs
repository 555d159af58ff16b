//! Operations on areas of hugetlb pages (Linux 7.2 `mm/hugetlb.c`).

use core::ops::Range;
use memwright_table::{
    CpuId, Cursor, Entry, Frame, FrameKind, FrameRef, Machine, NoHugePage, OutOfFrames, PageRange,
    PageSize, Present, SubpoolId, VirtAddr,
};

use crate::mm::core::Core;
use crate::mm::mappings::{Mappings, Places};
use crate::mm::object::Object;
use crate::mm::space::Area;
use crate::range::zap::Taken;
use crate::types::error::AdviseError;
use crate::types::huge::{self, HUGE_PAGES};
use crate::vma::area::AreaFlags;

impl<M: Machine> Mappings<M> {
    /// Unmaps the huge page in `frame` from all private areas without a reservation. `index` is the index of its first
    /// 4 KiB page in the object. Returns the number of entries removed.
    pub(crate) fn take_back(&self, index: u64, frame: Frame) -> u64 {
        let mut taken = 0;
        let span = index..index + HUGE_PAGES;
        self.visit(&span, |space, places| {
            taken += space.lose_hugetlb(self, (places, span.clone()), frame);
        });
        taken
    }
}

impl<M: Machine> Area<M> {
    /// Returns the indices of the huge pages that `part` of the area maps.
    fn huge_indices(&self, part: PageRange) -> core::ops::Range<u64> {
        let first = self.offset_of(part.start) / HUGE_PAGES;
        first..first + part.len() / HUGE_PAGES
    }

    /// Unreserves the pages of the area's reservation that are not in use. Called when the area is unmapped.
    #[cold]
    pub(crate) fn forget_reservation(&self) {
        let view = self.object().and_then(|object| object.huge());
        if let Some(own) = view.and_then(|view| view.own) {
            own.forget(self.huge_indices(self.range));
        }
    }
}

impl<M: Machine> Core<M> {
    /// Takes an unreserved page from the hugetlb pool for private memory. It counts against the subpool `within`. Its
    /// contents are undefined.
    pub(crate) fn take_unreserved(&self, within: SubpoolId) -> Result<FrameRef<'_, M>, NoHugePage> {
        let frames = self.memory.frames();
        frames.take_huge(false, FrameKind::PoolAnonymous, within)
    }

    /// Unmaps the hugetlb pages of `range`, a part of `area`. If the mapping has a reservation, reserves the unmapped
    /// pages again. A last page that is only partly in the range stays mapped (Linux 7.2 `mm/madvise.c`,
    /// `madvise_dontneed_free_valid_vma`).
    #[cold]
    pub(crate) fn drop_hugetlb(&self, area: &Area<M>, range: PageRange) -> Result<(), AdviseError> {
        if range.start.number() % HUGE_PAGES != 0 {
            return Err(AdviseError::NotApplicable(range.start.address()));
        }
        let whole = huge::around(range.end).start;
        let range = PageRange::new(range.start, whole.max(range.start));
        if range.is_empty() {
            return Ok(());
        }
        let view = area.object().and_then(|object| object.huge());
        // Hold the lock of the file, so that a concurrent fault finds the page either mapped or back in the pool. A
        // fault in between would fail if the pool has no other page.
        let _file = view.as_ref().map(|view| view.file.lock());
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(range);
        if area.flags().intersects(AreaFlags::MARKED) {
            cursor.split_edges(&mut gather)?;
            self.remove_pages(area, &mut cursor, &mut gather, Taken::All);
        } else {
            cursor.remove_all(&mut gather);
        }
        drop(cursor);
        let counts = gather.close();
        self.note_gather(self.cpu(), counts);
        if let Some(own) = view.as_ref().and_then(|view| view.own) {
            own.restore(area.huge_indices(range));
        }
        Ok(())
    }

    /// Copies `page` to the child during the fork, because the parent's page is pinned and must stay exclusive (rule:
    /// exclusive-before-pin).
    #[cold]
    pub(crate) fn copy_pinned_hugetlb(
        &self,
        cpu: CpuId,
        area: &Area<M>,
        watched: bool,
        to: &mut Cursor<'_, M>,
        page: Present,
    ) -> Result<(), OutOfFrames> {
        let view = area.object().and_then(|object| object.huge());
        let within = view.map_or(SubpoolId::NONE, |view| view.file.within());
        let copy = self.take_unreserved(within).map_err(|_| OutOfFrames)?;
        self.memory.copy_huge(page.frame, copy.frame());
        let bits = area.copied_bits(page.bits, watched);
        to.fill(Entry::Present(Present {
            frame: copy.frame(),
            size: PageSize::Size2M,
            bits,
        }))?;
        let _ = copy.into_raw();
        self.note_borrowed(cpu, HUGE_PAGES);
        Ok(())
    }

    /// If the area at `address` has a reservation, unmaps the huge page at `address` from all private areas that have
    /// none. Returns the number of entries removed.
    pub(crate) fn take_back_shared(&self, address: VirtAddr) -> u64 {
        let page = huge::around(address.page());
        let (object, index, frame) = {
            let areas = self.areas.read(self.cpu());
            let Some(area) = areas.map.find(page.start) else {
                return 0;
            };
            let Some(object) = area.object().filter(|object| owns(&***object)) else {
                return 0;
            };
            let entry = self.table.cursor(page).peek();
            let Some(present) = entry.present() else {
                return 0;
            };
            (object.clone(), area.offset_of(page.start), present.frame)
        };
        // `take_back` locks the areas of every address space that maps the page, including this one, so no area lock is
        // held here.
        object.mappings().take_back(index, frame)
    }

    /// Unmaps the huge page in `frame`, whose 4 KiB pages have the indices `span`, from the private areas of this
    /// address space that have no reservation, and marks these areas `HUGETLB_LOST`. Returns the number of entries
    /// removed.
    pub(crate) fn lose_hugetlb(
        &self,
        mappings: &Mappings<M>,
        (places, span): (&mut Places, Range<u64>),
        frame: Frame,
    ) -> u64 {
        let cpu = self.cpu();
        let mut areas = self.areas.write();
        let mut gather = self.gather();
        let mut taken = 0;
        while let Some(mapped) = mappings.next_place(places, &span) {
            let Some(position) = areas.map.at_or_after(mapped.pages.start) else {
                continue;
            };
            let area = areas.map.get_mut(position);
            let loses = mappings.is_in(area, &mapped)
                && area.range().contains(mapped.pages.start)
                && !area.is_shared()
                && area.object().is_some_and(|object| !owns(&**object));
            if !loses {
                continue;
            }
            let mut cursor = self.table.cursor(mapped.pages);
            match cursor.peek() {
                Entry::Present(page) if page.frame == frame => {
                    cursor.remove(&mut gather);
                    drop(cursor);
                    area.flags |= AreaFlags::HUGETLB_LOST;
                    taken += 1;
                }
                Entry::Present(_)
                | Entry::Empty
                | Entry::Marker(_)
                | Entry::Swapped(_)
                | Entry::Migrating(_) => {}
            }
        }
        let counts = gather.close();
        drop(areas);
        self.note_gather(cpu, counts);
        taken
    }
}

/// Returns whether `object`, the object of an area, has a reservation of huge pages for the private mapping of that
/// area.
fn owns<M: Machine>(object: &dyn Object<M>) -> bool {
    object.huge().is_some_and(|view| view.own.is_some())
}
