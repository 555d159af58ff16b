//! Reverse mapping: the entries that map a page (Linux 7.2 `mm/rmap.c`, `rmap_walk`, and `mm/ksm.c`, `rmap_walk_ksm`).
//!
//! Frames do not record their entries. An area identifies each of its pages by an offset, in an object or in anonymous
//! memory that several address spaces share after a fork. Neither a fork nor a move of the area changes that offset, so
//! at most one entry of each area can map the page, and only that entry is checked. KSM pages have only the frame in
//! common, so all mergeable areas are walked. The caller compares counts: if the frame has more references than the
//! entries found, something else has a reference.

use alloc::sync::Arc;
use alloc::vec::Vec;
use memwright_table::{
    Frame, FrameKind, Machine, OutOfMemory, Page, PageRange, PageSize, Present, Shared,
};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::object::Object;
use crate::mm::space::Area;
use crate::vma::area::AreaFlags;

/// Which areas may map a page.
enum Sought<M: Machine> {
    /// Shared and private areas of an object, at this index.
    Object(Arc<dyn Object<M>>, u64),
    /// Private areas at this offset: those of the object, if there is one, otherwise those without an object.
    Private(Option<Arc<dyn Object<M>>>, u64),
    /// All mergeable areas.
    Merged,
}

/// A page that several entries may map.
pub(crate) struct ShownPage<M: Machine> {
    pub(crate) frame: Frame,
    pub(crate) size: PageSize,
    pub(crate) kind: FrameKind,
    sought: Sought<M>,
}

/// The address spaces that map a page.
pub(crate) struct Showing<M: Machine> {
    /// Sorted by their numbers.
    pub(crate) spaces: Vec<Shared<Core<M>>>,
    /// The number of entries that map it.
    pub(crate) shown: usize,
}

impl<M: Machine> ShownPage<M> {
    /// Returns the page that the area maps at `page`, by the entry `present`.
    pub(crate) fn new(area: &Area<M>, page: Page, present: Present, kind: FrameKind) -> Self {
        let first = match present.size {
            PageSize::Size4K => page,
            PageSize::Size2M | PageSize::Size1G => {
                Page::new(page.number() & !(present.size.pages() - 1))
            }
        };
        let index = area.offset_of(first);
        Self::at(area, index, (present.frame, present.size), kind)
    }

    /// Returns the huge page that is the folio whose first frame is `head`. The area maps `frame`, which is in the
    /// folio, at `page`, possibly by a 4 KiB entry. Returns `None` if the area cannot map such a page.
    pub(crate) fn of_folio(
        area: &Area<M>,
        page: Page,
        frame: Frame,
        head: Frame,
        kind: FrameKind,
    ) -> Option<Self> {
        let before = u64::from(frame.number() - head.number());
        let index = area.offset_of(page).checked_sub(before)?;
        Some(Self::at(area, index, (head, PageSize::Size2M), kind))
    }

    /// Returns the page at offset `index` of the object or the anonymous memory that the area maps.
    fn at(area: &Area<M>, index: u64, (frame, size): (Frame, PageSize), kind: FrameKind) -> Self {
        let object = area.object().cloned();
        let sought = match object {
            _ if kind == FrameKind::Merged => Sought::Merged,
            Some(object) if !kind.is_private() => Sought::Object(object, index),
            object => Sought::Private(object, index),
        };
        Self {
            frame,
            size,
            kind,
            sought,
        }
    }

    /// Returns the object that owns the page, and its index there.
    pub(crate) fn object(&self) -> Option<(&Arc<dyn Object<M>>, u64)> {
        match &self.sought {
            Sought::Object(object, index) => Some((object, *index)),
            Sought::Private(..) | Sought::Merged => None,
        }
    }

    /// Whether the page is a KSM page.
    pub(crate) fn is_merged(&self) -> bool {
        self.kind == FrameKind::Merged
    }

    /// Returns the pages of the area that may map this page.
    fn within(&self, area: &Area<M>) -> PageRange {
        match &self.sought {
            Sought::Object(object, index) if same_object(area, Some(object)) => {
                area.pages_showing(*index, *index + 1)
            }
            Sought::Private(object, index)
                if !area.is_shared()
                    && area.has_faulted()
                    && same_object(area, object.as_ref()) =>
            {
                area.pages_showing(*index, *index + 1)
            }
            Sought::Merged if area.flags().contains(AreaFlags::MERGEABLE) => area.range(),
            Sought::Object(..) | Sought::Private(..) | Sought::Merged => PageRange::default(),
        }
    }

    /// Calls `visit` for each place in `space` where an entry maps the page with its full size.
    pub(crate) fn visit(
        &self,
        space: &Core<M>,
        areas: &Areas<M>,
        visit: &mut dyn FnMut(&Area<M>, Page),
    ) {
        for area in areas.map.iter() {
            let range = self.within(area);
            if range.is_empty() {
                continue;
            }
            let mut cursor = space.table.look(range);
            while let Some(extent) = cursor.next_filled() {
                if let Some(shown) = extent.entry.present() {
                    if shown.frame == self.frame && shown.size == self.size {
                        visit(area, extent.range.start);
                    }
                }
                if !cursor.advance() {
                    break;
                }
            }
        }
    }

    /// Returns the address spaces that map the page now, and the number of entries that map it.
    pub(crate) fn spaces(&self, asking: &Core<M>) -> Result<Showing<M>, OutOfMemory> {
        let memory = &asking.memory;
        let mut spaces = match self.object() {
            Some((object, _)) => object.mappings().spaces()?,
            None => memory.spaces().all()?,
        };
        let mut shown = 0;
        spaces.retain(|space| {
            let areas = space.areas.read(space.cpu());
            let before = shown;
            self.visit(space, &areas, &mut |_, _| shown += 1);
            shown > before
        });
        spaces.sort_unstable_by_key(|space| space.space_number());
        Ok(Showing { spaces, shown })
    }
}

/// Whether the area maps `object`, or has no object if that is `None`.
fn same_object<M: Machine>(area: &Area<M>, object: Option<&Arc<dyn Object<M>>>) -> bool {
    match (area.object(), object) {
        (None, None) => true,
        (Some(own), Some(other)) => core::ptr::eq(own.mappings(), other.mappings()),
        (None, Some(_)) | (Some(_), None) => false,
    }
}
