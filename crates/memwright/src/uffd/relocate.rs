//! Moving pages into a registered area without copying them (Linux 7.2 `mm/userfaultfd.c`, `move_pages`).

use memwright_table::sync::PausePoints;
use memwright_table::{Bits, Entry, Gather, Machine, MoveRule, Page, PageRange, PageSize, Present};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::space::{Area, PAGES};
use crate::mm::theme::Uffd;
use crate::types::error::MoveError;
use crate::types::huge;
use crate::types::rights::Rights;
use crate::types::uffd::{Relocation, Watch};
use crate::uffd::ready_area;
use crate::vma::area::AreaFlags;

impl<M: Machine> Uffd<'_, M> {
    /// Moves exclusive private anonymous pages to unmapped memory that is registered with `watch`. The entries of the
    /// source become empty. Returns the number of pages that were moved or skipped. If an error stopped the move, also
    /// returns the error.
    pub fn relocate(&self, relocation: &Relocation, watch: &Watch) -> (u64, Result<(), MoveError>) {
        let core = &*self.space.core;
        let areas = core.areas.write();
        let target = match check_areas(core, &areas, relocation, watch) {
            Ok(target) => target,
            Err(error) => return (0, Err(error)),
        };
        let mut gather = core.gather();
        let mut done = 0;
        let mut result = Ok(());
        let mut points = PausePoints::<M::Threads>::every(PAGES);
        while done < relocation.pages {
            points.round();
            let left = PageRange::new(
                relocation.from.add(done),
                relocation.from.add(relocation.pages),
            );
            let to = relocation.to.add(done);
            match core.relocate_next(left, (target, to), relocation.holes, &mut gather) {
                Ok(moved) => done += moved,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let counts = gather.close();
        drop(areas);
        core.note_gather(core.cpu(), counts);
        (done, result)
    }
}

/// Checks that the areas of both ranges permit the move (`uffd_move_lock`, `validate_move_areas`).
/// Returns the area of the target.
fn check_areas<'a, M: Machine>(
    core: &'a Core<M>,
    areas: &'a Areas<M>,
    relocation: &Relocation,
    watch: &Watch,
) -> Result<&'a Area<M>, MoveError> {
    let target = ready_area(core, areas, relocation.to).ok_or(MoveError::NotWatched)?;
    let source = areas.map.find(relocation.from).ok_or(MoveError::NotThere)?;
    let covers = |area: &Area<M>, start: Page| {
        let range = PageRange::new(start, start.add(relocation.pages));
        area.range().covers(range)
    };
    let whole = covers(target, relocation.to) && covers(source, relocation.from);
    let own = target.backing().has_watcher(Some(watch));
    let plain = |area: &Area<M>| area.object().is_none() && !area.is_shared();
    let locked = AreaFlags::LOCKED;
    let alike = source.rights() == target.rights()
        && source.flags() & locked == target.flags() & locked
        && source.rights().contains(Rights::WRITE);
    if !whole {
        Err(MoveError::SeveralAreas)
    } else if !own {
        Err(MoveError::NotRegistered)
    } else if plain(source) && plain(target) && alike {
        Ok(target)
    } else {
        Err(MoveError::NotApplicable)
    }
}

impl<M: Machine> Core<M> {
    /// Moves the first page of `left`, or skips it if it is missing. A huge page is moved as a whole if all of it is in
    /// `left`, its target is aligned, and the target has no page table. Returns the number of pages moved or skipped.
    fn relocate_next(
        &self,
        left: PageRange,
        (target, to): (&Area<M>, Page),
        holes: bool,
        gather: &mut Gather<'_, M>,
    ) -> Result<u64, MoveError> {
        let from = left.start;
        let (there, entry) = self.table.entry_of(to);
        let has_table = match entry {
            Entry::Empty => there.is_in_last_table(),
            Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) | Entry::Present(_) => {
                return Err(MoveError::Exists);
            }
        };
        drop(there);
        let (mut source, entry) = self.table.entry_of(from);
        let mut moving = PageRange::single(from);
        match entry {
            Entry::Empty if holes => return Ok(1),
            Entry::Empty => return Err(MoveError::NotThere),
            Entry::Marker(_) => return Err(MoveError::Marked),
            Entry::Swapped(page) if page.bits.contains(Bits::EXCLUSIVE) => {}
            Entry::Swapped(_) | Entry::Migrating(_) => return Err(MoveError::Busy),
            Entry::Present(page) => {
                self.check_movable(page)?;
                let whole = huge::around(from);
                let aligned = whole.start == from && huge::around(to).start == to;
                if page.size == PageSize::Size2M && aligned && left.covers(whole) && !has_table {
                    moving = whole;
                }
            }
        }
        if moving.len() == 1 {
            source.split_edges(gather)?;
        }
        drop(source);
        self.table
            .move_entries(moving, to, MoveRule::PLAIN, gather)?;
        if target.watches_accesses() {
            // Arm the moved pages, as Linux does in an area that is registered for read-write protection (Linux 7.3
            // `move_present_ptes`).
            let pages = PageRange::new(to, to.add(moving.len()));
            self.arm_part(target, pages, gather);
        }
        Ok(moving.len())
    }

    /// Returns an error if the page is pinned or another entry maps it. An entry of the shared zero page can always be
    /// moved.
    fn check_movable(&self, page: Present) -> Result<(), MoveError> {
        let borrowed = page.bits.contains(Bits::BORROWED);
        let own = page.bits.contains(Bits::EXCLUSIVE) && !page.bits.contains(Bits::MERGED);
        if borrowed || (own && self.memory.frames().pins(page.frame) == 0) {
            Ok(())
        } else {
            Err(MoveError::Busy)
        }
    }
}
