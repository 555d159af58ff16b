//! NUMA policies of areas (Linux 7.2 `mm/mempolicy.c`, `do_mbind`).

use memwright_table::sync::PausePoints;
use memwright_table::{Entry, Machine, NodeChoice, Page, PageRange, VirtAddr};

use crate::mm::areas::{Areas, cuts_hugetlb};
use crate::mm::check;
use crate::mm::core::Core;
use crate::mm::space::{AREAS, Area, PAGES};
use crate::mm::theme::Numa;
use crate::types::migration::BindError;
use crate::types::numa_policy::{PlacePolicy, PolicyId};
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;

impl<M: Machine> Numa<'_, M> {
    /// Sets the policy of the areas in `length` bytes from `address` on, rounded up to pages. `None` removes their
    /// policies.
    ///
    /// # Errors
    /// See [`BindError`]. With `strict`, [`BindError::Misplaced`] if a page is not on a node of the policy; nothing has
    /// changed then.
    ///
    /// # Locks
    /// Takes the lock of the areas for writing.
    pub fn bind(
        &self,
        address: VirtAddr,
        length: u64,
        policy: Option<PlacePolicy>,
        strict: bool,
    ) -> Result<(), BindError> {
        let core = &*self.space.core;
        let range = check::pages(address, length).map_err(|_| BindError::Misaligned)?;
        if range.is_empty() {
            return Ok(());
        }
        let mut areas = core.areas.write();
        core.check_covered(&areas, range, policy.is_none())?;
        if let Some(policy) = policy.filter(|_| strict) {
            core.check_placed(&areas, range, policy)?;
        }
        let id = core.number(policy)?;
        core.place_areas(&mut areas, range, |_| Ok(Some(id)))
    }

    /// Sets the home node of the policies of the areas in `length` bytes from `address` on. Areas without a policy are
    /// unchanged. `may` returns whether a policy supports a home node.
    ///
    /// # Errors
    /// See [`BindError`]: [`BindError::NoHome`] at the first area whose policy does not support a home node, and
    /// [`BindError::Hole`] if no area has a policy.
    pub fn set_home_node(
        &self,
        address: VirtAddr,
        length: u64,
        home: u8,
        may: impl Fn(PlacePolicy) -> bool,
    ) -> Result<(), BindError> {
        let core = &*self.space.core;
        let range = check::pages(address, length).map_err(|_| BindError::Misaligned)?;
        let mut areas = core.areas.write();
        let mut found = false;
        core.place_areas(&mut areas, range, |area| {
            let Some(policy) = core.placement_of(area, area.start()) else {
                return Ok(None);
            };
            if !may(policy) {
                return Err(BindError::NoHome(area.start().address()));
            }
            found = true;
            let home = Some(home);
            core.number(Some(PlacePolicy { home, ..policy })).map(Some)
        })?;
        if found || range.is_empty() {
            Ok(())
        } else {
            Err(BindError::Hole(address))
        }
    }

    /// Returns the policy of the area at `address`: `None` if there is no area, `Some(None)` if the area has no policy.
    pub fn placement_at(&self, address: VirtAddr) -> Option<Option<PlacePolicy>> {
        let core = &*self.space.core;
        let areas = core.areas.read(core.cpu());
        let area = areas.map.find(address.page())?;
        Some(core.placement_of(area, address.page()))
    }

    /// Calls `visit` for each mapped page of `range`, until `visit` returns false. The first argument is the page, or
    /// the first page of a huge page. The second is its node. The third describes the nodes from which the policy of
    /// the page would allocate it for a CPU of node `near`.
    ///
    /// # Locks
    /// No lock is held while `visit` runs.
    pub fn placed_pages(
        &self,
        range: PageRange,
        near: u8,
        visit: &mut dyn FnMut(Page, u8, Option<NodeChoice>) -> bool,
    ) {
        let core = &*self.space.core;
        let mut next = range.start;
        let mut points = PausePoints::<M::Threads>::every(PAGES);
        while next < range.end {
            points.round();
            let areas = core.areas.read(core.cpu());
            let rest = PageRange::new(next, range.end);
            let found = core.next_page(&areas, rest).map(|placed| {
                let choice = core.choice_at(placed.area, placed.page, near);
                (placed.page, placed.end, placed.node, choice)
            });
            drop(areas);
            let Some((page, end, node, choice)) = found else {
                return;
            };
            if !visit(page, node, choice) {
                return;
            }
            next = end;
        }
    }
}

/// A mapped page, or the first page of a huge entry.
struct Placed<'a, M: Machine> {
    area: &'a Area<M>,
    page: Page,
    /// The page after the last page that the entry maps.
    end: Page,
    node: u8,
}

impl<M: Machine> Core<M> {
    fn number(&self, policy: Option<PlacePolicy>) -> Result<PolicyId, BindError> {
        match policy {
            Some(policy) => Ok(self.memory.placements().number(policy)?),
            None => Ok(PolicyId::NONE),
        }
    }

    /// Returns the next page of `range` that is mapped and is not a zero page. The page-table lock is released on
    /// return, so that the caller can get the page's policy from the object.
    fn next_page<'a>(&self, areas: &'a Areas<M>, range: PageRange) -> Option<Placed<'a, M>> {
        let frames = self.memory.frames();
        for area in areas.map.overlapping(range) {
            let part = area.range().intersect(range);
            let mut cursor = self.table.cursor(part).pausing();
            while let Some(extent) = cursor.next_filled() {
                if let Entry::Present(page) = extent.entry {
                    let first = extent.range.start;
                    if !page.bits.contains(memwright_table::Bits::BORROWED) {
                        return Some(Placed {
                            area,
                            page: first,
                            end: extent.range.end,
                            node: frames.node_of(page.frame_of(first)),
                        });
                    }
                }
                if !cursor.advance() {
                    break;
                }
            }
        }
        None
    }

    /// Returns the policy of page `page` of the area: the object's policy if the object has policies, otherwise the
    /// area's policy.
    fn placement_of(&self, area: &Area<M>, page: Page) -> Option<PlacePolicy> {
        self.memory.placement(area.placement_of(page))
    }

    /// Returns the nodes from which page `page` of the area is to be allocated, or `None` if no policy applies.
    pub(crate) fn choice_at(&self, area: &Area<M>, page: Page, near: u8) -> Option<NodeChoice> {
        let policy = self.placement_of(area, page)?;
        let all = self.memory.frames().topology().all();
        let turn = area.offset_of(page);
        Some(policy.choice(near, turn, all, |_| 1))
    }

    /// Checks that areas cover the complete range. With `may_have_holes`, checks only that the range overlaps an area.
    fn check_covered(
        &self,
        areas: &Areas<M>,
        range: PageRange,
        may_have_holes: bool,
    ) -> Result<(), BindError> {
        let mut next = range.start;
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        for area in areas.map.overlapping(range) {
            points.round();
            if area.start() > next && !may_have_holes {
                break;
            }
            next = area.end();
        }
        let covered = next >= range.end || (may_have_holes && next > range.start);
        if covered {
            Ok(())
        } else {
            Err(BindError::Hole(next.address()))
        }
    }

    /// Checks that every page of the range is on a node of `policy`.
    fn check_placed(
        &self,
        areas: &Areas<M>,
        range: PageRange,
        policy: PlacePolicy,
    ) -> Result<(), BindError> {
        let mut rest = range;
        let mut points = PausePoints::<M::Threads>::every(PAGES);
        while !rest.is_empty() {
            points.round();
            let Some(placed) = self.next_page(areas, rest) else {
                break;
            };
            if !policy.allows(placed.node) {
                return Err(BindError::Misplaced(placed.page.address()));
            }
            rest.start = placed.end.min(range.end);
        }
        Ok(())
    }

    /// Sets the policy of every area of `range` to the policy that `choose` returns for the area. If `choose` returns
    /// `None`, the policy does not change. Splits and merges areas as needed.
    fn place_areas(
        &self,
        areas: &mut Areas<M>,
        range: PageRange,
        mut choose: impl FnMut(&Area<M>) -> Result<Option<PolicyId>, BindError>,
    ) -> Result<(), BindError> {
        let mut start = range.start;
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        while start < range.end {
            points.round();
            let position = areas.map.at_or_after(start);
            let Some(position) = position.filter(|at| areas.map.get(*at).start() < range.end)
            else {
                break;
            };
            let area = areas.map.get(position);
            start = start.max(area.start());
            let (whole, flags) = (area.range(), area.flags);
            let part = PageRange::new(start, whole.end.min(range.end));
            start = part.end;
            let Some(id) = choose(area)? else {
                continue;
            };
            if let Some(object) = area.object() {
                object.place(area.offset_of(part.start), part.len(), id)?;
            }
            if id == area.placement {
                continue;
            }
            let mut position = position;
            if part != whole {
                if cuts_hugetlb(flags, part) {
                    return Err(BindError::Misaligned);
                }
                self.split_at_edges(part, Row::HugeSplitsAdvise);
                position = areas.cut(position, whole, part)?;
            }
            let area = areas.map.get_mut(position);
            area.placement = id;
            area.flags.set(AreaFlags::PLACED, !id.is_none());
            areas.map.merge_around(position);
        }
        self.note_areas(self.cpu(), areas);
        Ok(())
    }
}

impl<M: Machine> Area<M> {
    /// Returns the policy of a page of the area (Linux 7.2 `mm/mempolicy.c`, `__get_vma_policy`): the object's policy
    /// if the object has policies, otherwise the area's policy.
    pub fn placement_of(&self, page: Page) -> PolicyId {
        let object = self.object();
        let own = object.and_then(|object| object.placement(self.offset_of(page)));
        own.unwrap_or(self.placement)
    }
}
