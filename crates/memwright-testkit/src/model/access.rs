//! Loads and stores of programs: whether they are permitted, and what a load returns.

use super::page::{Armed, Contents, PAGE, Source, shows, store};
use super::{Model, Refusal};
use crate::terms::Intent;

impl Model {
    /// Checks whether a process is allowed to access a page.
    ///
    /// # Errors
    /// The reason why the access is refused.
    pub fn permit(&self, process: usize, page: u64, intent: Intent) -> Result<(), Refusal> {
        let space = &self.spaces[&process];
        let mapped = space.pages.get(&page).ok_or(Refusal::Hole(page))?;
        let granted = match intent {
            Intent::Read => mapped.rights.any(),
            Intent::Write => mapped.rights.write,
            Intent::Fetch => mapped.rights.execute,
        };
        if !granted {
            return Err(Refusal::Denied(page));
        }
        if mapped.guard {
            return Err(Refusal::Hole(page));
        }
        let waits = self.refuses_accesses(process, page);
        if waits || intent == Intent::Write && mapped.is_protected() {
            return Err(Refusal::Protected(page));
        }
        if self.may_be_present(process, page) {
            Ok(())
        } else {
            Err(Refusal::BeyondObject(page))
        }
    }

    /// Stores one byte.
    ///
    /// # Errors
    /// The reason why the store is refused.
    pub fn write(
        &mut self,
        process: usize,
        page: u64,
        offset: usize,
        value: u8,
    ) -> Result<(), Refusal> {
        let permitted = self.permit(process, page, Intent::Write);
        if let Err(Refusal::Protected(page)) = permitted {
            self.refuse_store(process, page);
        }
        permitted?;
        self.mapped(process, page)?.stored();
        let source = self.mapped(process, page)?.source;
        if let Source::Shared { object, index } = source {
            store(
                &mut self.objects[object].pages[index as usize],
                offset,
                value,
            );
            return Ok(());
        }
        store(self.own(process, page), offset, value);
        if let Some(otherwise) = &mut self.mapped(process, page)?.otherwise {
            store(otherwise, offset, value);
        }
        Ok(())
    }

    /// Records a store that userfaultfd write protection refused. The fault may still have mapped a missing page, or
    /// have copied the page of an object in a private mapping (Linux 7.2 `mm/memory.c`, `do_anonymous_page`,
    /// `set_pte_range`, `do_cow_fault`).
    pub(super) fn refuse_store(&mut self, process: usize, page: u64) {
        self.blur_soft_dirty(process, page);
        if let Ok(mapped) = self.mapped(process, page) {
            let is_private = matches!(mapped.source, Source::Private { .. });
            mapped.may_have_copied = is_private && mapped.own.is_none();
        }
    }

    /// Returns the pages of private mappings of objects that the last step may have copied: at a refused store, or
    /// before memory ran out.
    pub fn may_have_copied(&self, process: usize) -> impl Iterator<Item = u64> + '_ {
        let pages = self.spaces[&process].pages.iter();
        pages
            .filter(|(_, mapped)| mapped.may_have_copied)
            .map(|(&page, _)| page)
    }

    /// Records whether the last step copied a page. A private copy does not change when the object is written.
    pub fn copied(&mut self, process: usize, page: u64, has_copied: bool) {
        if let Ok(mapped) = self.mapped(process, page) {
            mapped.may_have_copied = false;
        }
        if has_copied {
            self.own(process, page);
        }
    }

    /// Returns whether a mapped page can have `bytes` at `offset`. If the model allows two contents for the page and
    /// only one of them has these bytes, drops the other contents, unless the page can still be discarded later.
    pub fn shows(&mut self, process: usize, page: u64, offset: usize, bytes: &[u8]) -> bool {
        let is = |contents: &Contents| shows(contents, offset, bytes);
        let kept = is(self.contents(process, page));
        let Ok(mapped) = self.mapped(process, page) else {
            return kept;
        };
        let gone = mapped.otherwise.as_ref().is_some_and(is);
        if gone && !kept {
            mapped.own = mapped.otherwise.take();
        } else if kept && !gone && mapped.otherwise != Some(None) {
            mapped.otherwise = None;
        }
        kept || gone
    }

    /// Returns the contents of a mapped page.
    #[must_use]
    pub fn bytes(&self, process: usize, page: u64) -> [u8; PAGE] {
        let contents = self.contents(process, page).as_deref();
        contents.copied().unwrap_or([0; PAGE])
    }

    /// Returns whether the page is mapped, has no guard marker, and either has a private copy or is not beyond the end
    /// of its object.
    #[must_use]
    pub fn may_be_present(&self, process: usize, page: u64) -> bool {
        let mapped = self.spaces[&process].pages.get(&page);
        mapped.is_some_and(|mapped| {
            let (own, shown) = (mapped.own.is_some(), mapped.source.object());
            let inside = |(object, index)| index < self.object_pages(object);
            !mapped.guard && (own || shown.is_none_or(inside))
        })
    }

    /// Returns whether a store to the page must wait for the userfaultfd handler. No page-table entry may then permit
    /// writing to the page.
    #[must_use]
    pub fn refuses_stores(&self, process: usize, page: u64) -> bool {
        self.spaces[&process].pages[&page].is_protected()
    }

    /// Returns the pages that are registered with a userfaultfd and may have been discarded (`MADV_FREE`). A discarded
    /// page is no longer write-protected.
    pub fn uncertain(&self, process: usize) -> impl Iterator<Item = u64> + '_ {
        let pages = self.spaces[&process].pages.iter();
        pages
            .filter(|(_, mapped)| mapped.watch.is_some() && mapped.otherwise.is_some())
            .map(|(&page, _)| page)
    }

    /// Records that a page freed by `MADV_FREE` was discarded.
    pub fn went(&mut self, process: usize, page: u64) {
        if let Ok(mapped) = self.mapped(process, page) {
            mapped.own = mapped.otherwise.take();
            mapped.armed = Armed::No;
            mapped.since_protected.lose();
        }
    }
}
