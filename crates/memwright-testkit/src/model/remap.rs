//! `mremap` in the model.

use alloc::vec::Vec;

use super::page::{Mapped, Stored};
use super::{Model, Refusal};
use crate::terms::Remap;

impl Model {
    /// Checks the arguments of an `mremap` call for a [uniform](Self::is_uniform) range.
    ///
    /// # Errors
    /// The arguments contradict each other.
    pub fn may_remap(&self, remap: Remap) -> Result<(), Refusal> {
        if remap.keep && remap.pages != remap.new_pages {
            return Err(Refusal::Invalid);
        }
        if let Some(to) = remap.to {
            if to < remap.from + remap.pages && remap.from < to + remap.new_pages {
                return Err(Refusal::Invalid);
            }
        }
        Ok(())
    }

    /// Moves and resizes a uniform range. `to` is its new first page.
    ///
    /// # Panics
    /// If the range is not mapped.
    pub fn remap(&mut self, process: usize, remap: Remap, to: u64) {
        let first = self
            .mapped(process, remap.from)
            .expect("a mapped range")
            .clone();
        if to != remap.from {
            self.unmap(process, to, remap.new_pages)
                .expect("a place that may be replaced");
        }
        self.became_soft_dirty(process);
        let space = self.space(process);
        let mut moved = Vec::new();
        for page in 0..remap.pages {
            if let Some(mapped) = space.pages.remove(&(remap.from + page)) {
                moved.push(mapped);
            }
        }
        for page in 0..remap.new_pages {
            let fresh = Mapped {
                on_fork: first.on_fork,
                sealed: first.sealed,
                watch: first.watch,
                ..Mapped::new(first.rights, first.source.advanced(page))
            };
            let mut mapped = moved
                .get(page as usize)
                .cloned()
                .unwrap_or_else(|| fresh.clone());
            if to != remap.from {
                mapped.moved();
            }
            space.pages.insert(to + page, mapped);
            if remap.keep {
                space.pages.insert(remap.from + page, fresh);
            }
        }
    }

    /// Moves every mapping of a range. At the new place of each hole, the existing mapping stays (Linux 6.17 and later,
    /// for `MREMAP_FIXED` without a change of length).
    pub fn move_each(&mut self, process: usize, remap: Remap, to: u64) {
        self.became_soft_dirty(process);
        let space = self.space(process);
        let mut moved = Vec::new();
        for page in 0..remap.pages {
            if let Some(mut mapped) = space.pages.remove(&(remap.from + page)) {
                if remap.keep {
                    let mut fresh = mapped.clone();
                    fresh.dropped();
                    (fresh.guard, fresh.since_protected) = (false, Stored::Maybe);
                    space.pages.insert(remap.from + page, fresh);
                }
                mapped.moved();
                moved.push((to + page, mapped));
            }
        }
        space.pages.extend(moved);
    }
}
