//! userfaultfd in the model.

use alloc::boxed::Box;

use super::page::{Armed, Contents, PAGE, Source, Stored, shows};
use super::{Model, Refusal};
use crate::terms::Watch;

impl Model {
    /// Registers the mapped pages of a range with a userfaultfd (`UFFDIO_REGISTER` with write protection).
    ///
    /// # Errors
    /// Nothing is mapped in the range, or a page cannot be registered. Nothing has changed then.
    pub fn watch(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        watch: Watch,
    ) -> Result<(), Refusal> {
        for (page, mapped) in self.in_range(process, from, pages)? {
            let no_rights = watch.accesses && !mapped.rights.any();
            if no_rights || !watch.asynchronous && !self.is_memory(mapped.source) {
                return Err(Refusal::Invalid);
            }
            if mapped.watch.is_some_and(|other| other != watch) {
                return Err(Refusal::Watched(page));
            }
        }
        for (_, mapped) in self.space(process).pages.range_mut(from..from + pages) {
            if mapped.watch != Some(watch) {
                (mapped.watch, mapped.armed) = (Some(watch), Armed::No);
            }
        }
        Ok(())
    }

    /// Unregisters the pages of a range from `watch` (`UFFDIO_UNREGISTER`).
    ///
    /// # Errors
    /// Nothing is mapped in the range, or a page is registered with another userfaultfd or cannot be registered.
    /// Nothing has changed then.
    pub fn unwatch(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        watch: Watch,
    ) -> Result<(), Refusal> {
        for (_, mapped) in self.in_range(process, from, pages)? {
            let unwatched = mapped.watch.is_none() && self.is_memory(mapped.source);
            if !unwatched && mapped.watch != Some(watch) {
                return Err(Refusal::Invalid);
            }
        }
        for (_, mapped) in self.space(process).pages.range_mut(from..from + pages) {
            (mapped.watch, mapped.since_protected) = (None, Stored::Maybe);
            mapped.armed = Armed::No;
        }
        Ok(())
    }

    /// Write-protects the pages of a range, or ends their protection (`UFFDIO_WRITEPROTECT`).
    ///
    /// # Errors
    /// Nothing is mapped in the range, or a page is not registered for write protection. The pages before that page
    /// have changed.
    pub fn write_protect(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        protect: bool,
    ) -> Result<(), Refusal> {
        let mut result = Err(Refusal::NotWatched);
        for (_, mapped) in self.space(process).pages.range_mut(from..from + pages) {
            if mapped.watch.is_none_or(|watch| watch.accesses) {
                return Err(Refusal::NotWatched);
            }
            mapped.protect(protect);
            result = Ok(());
        }
        result
    }

    /// Returns whether any page of the range is registered for missing faults.
    #[must_use]
    pub fn is_filled(&self, process: usize, from: u64, pages: u64) -> bool {
        let mut range = self.spaces[&process].pages.range(from..from + pages);
        range.any(|(_, mapped)| mapped.watch.is_some_and(|watch| watch.fills))
    }

    /// Returns whether a page can be missing: it was not stored to or, in anonymous memory, holds only zeroes.
    fn may_be_missing(&self, process: usize, page: u64) -> bool {
        let mapped = &self.spaces[&process].pages[&page];
        let is_zero = |contents: &Contents| shows(contents, 0, &[0; PAGE]);
        match mapped.source {
            Source::Shared { object, index } => {
                let shown = self.objects[object].pages.get(index as usize);
                shown.is_none_or(Option::is_none)
            }
            Source::Private { .. } => mapped.own.is_none(),
            Source::Anonymous => {
                let gone = mapped.otherwise.as_ref();
                is_zero(self.contents(process, page)) || gone.is_some_and(is_zero)
            }
        }
    }

    /// Fills a page with one byte, write-protected or not (`UFFDIO_COPY`, `UFFDIO_ZEROPAGE`).
    ///
    /// # Errors
    /// The page is not registered, is beyond the end of its object, or was stored to. The model does not refuse to fill
    /// a page that was only read, although such a page may be present.
    pub fn fill(
        &mut self,
        process: usize,
        page: u64,
        value: u8,
        protect: bool,
    ) -> Result<(), Refusal> {
        let mapped = self.mapped(process, page);
        let mapped = mapped.map_err(|_| Refusal::NotWatched)?.clone();
        let watch = mapped.watch.ok_or(Refusal::NotWatched)?;
        if protect && watch.accesses || !self.is_memory(mapped.source) {
            return Err(Refusal::Invalid);
        }
        let contents = (value != 0).then(|| Box::new([value; PAGE]));
        let stored = contents.is_some();
        let shown = mapped.source.object();
        if shown.is_some_and(|(object, index)| index >= self.object_pages(object)) {
            return Err(Refusal::BeyondObject(page));
        }
        if mapped.guard || !self.may_be_missing(process, page) {
            return Err(Refusal::Exists(page));
        }
        if let Source::Shared { object, index } = mapped.source {
            self.objects[object].pages[index as usize] = contents;
        } else {
            let mapped = self.mapped(process, page)?;
            (mapped.own, mapped.otherwise) = (Some(contents), None);
        }
        let mapped = self.mapped(process, page)?;
        mapped.armed = Armed::No;
        if stored {
            mapped.stored();
        } else {
            mapped.since_protected.lose();
            mapped.since_cleared.blur();
        }
        if protect {
            mapped.since_protected = Stored::No;
        }
        Ok(())
    }

    /// Moves the contents of an anonymous page to a registered page. The source page reads as zeroes afterwards
    /// (`UFFDIO_MOVE`).
    ///
    /// # Errors
    /// The source page is not anonymous, or the target page is not registered or was stored to.
    pub fn relocate(&mut self, process: usize, from: u64, to: u64) -> Result<(), Refusal> {
        let target = self.mapped(process, to)?;
        if target.source != Source::Anonymous || target.watch.is_none() {
            return Err(Refusal::NotWatched);
        }
        if target.guard || !self.may_be_missing(process, to) {
            return Err(Refusal::Exists(to));
        }
        let source = self.mapped(process, from)?;
        if source.source != Source::Anonymous || source.guard {
            return Err(Refusal::NotApplicable(from));
        }
        let moved = (source.own.take(), source.otherwise.take());
        let target = self.mapped(process, to)?;
        (target.own, target.otherwise) = moved;
        for page in [from, to] {
            let mapped = self.mapped(process, page)?;
            mapped.since_protected.lose();
            mapped.since_cleared.lose();
            mapped.armed = Armed::No;
        }
        // The target page becomes protected if it is registered for read-write protection.
        let target = self.mapped(process, to)?;
        if target.watch.is_some_and(|watch| watch.accesses) {
            target.armed = Armed::IfThere;
        }
        Ok(())
    }

    /// Returns the pages that are registered for asynchronous write protection, and whether `PAGEMAP_SCAN` must report
    /// each of them as written.
    pub fn written(
        &self,
        process: usize,
        from: u64,
        pages: u64,
    ) -> impl Iterator<Item = (u64, Stored)> + '_ {
        let range = self.spaces[&process].pages.range(from..from + pages);
        let noted =
            range.filter(|(_, mapped)| mapped.watch.is_some_and(|watch| watch.asynchronous));
        noted.map(|(&page, mapped)| (page, mapped.since_protected))
    }

    /// Write-protects again a page that a scan found written.
    pub fn protect_again(&mut self, process: usize, page: u64) {
        if let Ok(mapped) = self.mapped(process, page) {
            mapped.protect(true);
        }
    }
}
