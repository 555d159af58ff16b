//! Where a page is shown (Linux 7.2 `mm/rmap.c`, `rmap_walk`, and `mm/ksm.c`, `rmap_walk_ksm`).
//!
//! No frame knows its entries. But an area knows of each of its pages which one it is: of an object, or of the memory
//! that a fork made several address spaces share, for neither a fork nor a move of an area changes that. So one entry of
//! an area is looked at. Merged pages have nothing in common but the frame: all areas that may have some are gone
//! through. Whoever relies on it counts: there are as many entries as references, or somebody else has one.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memwright_table::{
    Frame, FrameKind, Machine, OutOfMemory, Page, PageRange, PageSize, Present, Shared,
};

use crate::object::Object;
use crate::space::{Area, Areas, Core};
use crate::vma::AreaFlags;

/// Which areas may show a page.
enum Sought<M: Machine> {
    /// Those of an object, at this index.
    Object(Arc<dyn Object<M>>, u64),
    /// Private ones of the same lineage, at this offset: of the object, if they show one.
    Private(Option<Arc<dyn Object<M>>>, u64),
    /// All that may have merged pages.
    Merged,
}

/// A page that several entries may show.
pub(crate) struct ShownPage<M: Machine> {
    pub(crate) frame: Frame,
    pub(super) size: PageSize,
    pub(super) kind: FrameKind,
    sought: Sought<M>,
}

/// The spaces that show a page.
pub(crate) struct Showing<M: Machine> {
    /// In the order of their numbers.
    pub(crate) spaces: Vec<Shared<Core<M>>>,
    /// How many entries do.
    pub(crate) shown: usize,
}

impl<M: Machine> ShownPage<M> {
    /// The page that the area shows at `page`, by an entry that says `present`.
    pub(super) fn new(area: &Area<M>, page: Page, present: Present, kind: FrameKind) -> Self {
        let first = match present.size {
            PageSize::Size4K => page,
            PageSize::Size2M | PageSize::Size1G => {
                Page::new(page.number() & !(present.size.pages() - 1))
            }
        };
        let index = area.offset_of(first);
        Self::at(area, index, (present.frame, present.size), kind)
    }

    /// The huge page that is the folio which begins with `head`, of which the area shows `frame` at `page`, perhaps by an
    /// entry of its own. `None` if the area can show no such page.
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

    /// The page with this index.
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

    /// The object that has the page, and where.
    pub(crate) fn object(&self) -> Option<(&Arc<dyn Object<M>>, u64)> {
        match &self.sought {
            Sought::Object(object, index) => Some((object, *index)),
            Sought::Private(..) | Sought::Merged => None,
        }
    }

    /// Whether it is a merged one.
    pub(super) fn is_merged(&self) -> bool {
        self.kind == FrameKind::Merged
    }

    /// The pages of the area one of which may be this one.
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

    /// Calls `visit` with each place in `space` where an entry shows the page as a whole.
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

    /// The spaces that show it now.
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

/// Whether the area shows the same object, if any.
fn same_object<M: Machine>(area: &Area<M>, object: Option<&Arc<dyn Object<M>>>) -> bool {
    match (area.object(), object) {
        (None, None) => true,
        (Some(own), Some(other)) => core::ptr::eq(own.mappings(), other.mappings()),
        (None, Some(_)) | (Some(_), None) => false,
    }
}
