//! Mapping, protection, sealing and removal of ranges.

use super::page::{Mapped, Source};
use super::{Model, Refusal};
use crate::terms::{Advice, Rights};

impl Model {
    /// Maps a range. Replaces existing mappings in the range, as `MAP_FIXED` does.
    ///
    /// # Errors
    /// A page of the range is sealed. Nothing has changed then.
    pub fn map(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        rights: Rights,
        source: Source,
    ) -> Result<(), Refusal> {
        self.check_seals(process, from, pages)?;
        self.became_soft_dirty(process);
        for page in 0..pages {
            let mapped = Mapped::new(rights, source.advanced(page));
            self.space(process).pages.insert(from + page, mapped);
        }
        Ok(())
    }

    /// Checks that no page of a range is sealed.
    ///
    /// # Errors
    /// The first sealed page.
    pub fn check_seals(&self, process: usize, from: u64, pages: u64) -> Result<(), Refusal> {
        let mut range = self.spaces[&process].pages.range(from..from + pages);
        match range.find(|(_, mapped)| mapped.sealed) {
            Some((&page, _)) => Err(Refusal::Sealed(page)),
            None => Ok(()),
        }
    }

    /// Seals a range (`mseal`).
    ///
    /// # Errors
    /// The range has a hole. Nothing is sealed then.
    pub fn seal(&mut self, process: usize, from: u64, pages: u64) -> Result<(), Refusal> {
        for page in from..from + pages {
            self.mapped(process, page)?;
        }
        for page in from..from + pages {
            self.mapped(process, page)?.sealed = true;
        }
        Ok(())
    }

    /// Populates a new mapping (`MAP_POPULATE`): writable private mappings as `MADV_POPULATE_WRITE` does, and other
    /// mappings as `MADV_POPULATE_READ` does. Stops silently at the first page that cannot be populated.
    pub fn populate(&mut self, process: usize, from: u64, pages: u64) {
        let Ok(first) = self.mapped(process, from).cloned() else {
            return;
        };
        let shared = matches!(first.source, Source::Shared { .. });
        let write = first.rights.write && !shared;
        let advice = if write {
            Advice::PopulateWrite
        } else {
            Advice::PopulateRead
        };
        // The error is ignored. A later access to the page at which the population stopped is refused for the same
        // reason.
        let _ = self.advise(process, from, pages, advice);
    }

    /// Records that a new mapping was populated (`MAP_POPULATE`) and that memory may have run out, which ends the
    /// population silently. Marks the writable private pages that may have been copied. The caller [determines
    /// afterwards](Self::may_have_copied) which of them were.
    pub fn populate_some(&mut self, process: usize, from: u64, pages: u64) {
        for (_, mapped) in self.space(process).pages.range_mut(from..from + pages) {
            let is_private = matches!(mapped.source, Source::Private { .. });
            mapped.may_have_copied |= is_private && mapped.rights.write && mapped.own.is_none();
        }
    }

    /// Unmaps a range.
    ///
    /// # Errors
    /// A page of the range is sealed. Nothing has changed then.
    pub fn unmap(&mut self, process: usize, from: u64, pages: u64) -> Result<(), Refusal> {
        self.check_seals(process, from, pages)?;
        self.space(process)
            .pages
            .retain(|&page, _| page < from || from + pages <= page);
        Ok(())
    }

    /// Changes the rights page by page, up to the first hole or sealed page.
    ///
    /// # Errors
    /// The hole or sealed page at which the change stopped.
    pub fn protect(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        rights: Rights,
    ) -> Result<(), Refusal> {
        for page in from..from + pages {
            let mapped = self.mapped(process, page)?;
            if mapped.sealed {
                return Err(Refusal::Sealed(page));
            }
            mapped.rights = rights;
        }
        Ok(())
    }

    /// Returns whether all pages of a range have the same properties. Only then can they be one area.
    #[must_use]
    pub fn is_uniform(&self, process: usize, from: u64, pages: u64) -> bool {
        let space = &self.spaces[&process];
        let Some(first) = space.pages.get(&from) else {
            return false;
        };
        (1..pages).all(|page| {
            space.pages.get(&(from + page)).is_some_and(|here| {
                here.rights == first.rights
                    && here.on_fork == first.on_fork
                    && here.sealed == first.sealed
                    && here.watch == first.watch
                    && here.source == first.source.advanced(page)
            })
        })
    }

    /// Returns whether nothing is mapped in a range.
    #[must_use]
    pub fn is_free(&self, process: usize, from: u64, pages: u64) -> bool {
        let mut range = self.spaces[&process].pages.range(from..from + pages);
        range.next().is_none()
    }
}
