//! userfaultfd's read-write protection (`UFFDIO_REGISTER_MODE_RWP`) in the model.

use alloc::format;
use alloc::string::String;

use super::page::Armed;
use super::{Model, Refusal};

impl Model {
    /// Sets whether accesses to read-write-protected pages are recorded. Otherwise they wait for the handler
    /// (`UFFDIO_SET_MODE`).
    pub fn count_accesses(&mut self, process: usize, counts: bool) {
        self.space(process).accesses_wait = !counts;
    }

    /// Returns whether accesses to read-write-protected pages are recorded.
    #[must_use]
    pub fn counts_accesses(&self, process: usize) -> bool {
        !self.spaces[&process].accesses_wait
    }

    /// Read-write-protects the pages of a range, or ends their protection (`UFFDIO_RWPROTECT`).
    ///
    /// # Errors
    /// Nothing is mapped in the range, or a mapped page is not registered for read-write protection. Nothing has
    /// changed then.
    pub fn read_write_protect(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        protect: bool,
    ) -> Result<(), Refusal> {
        let range = from..from + pages;
        let all = self.spaces[&process].pages.range(range.clone());
        if all.count() != self.armed(process, from, pages).count()
            || self.is_free(process, from, pages)
        {
            return Err(Refusal::NotWatched);
        }
        for (_, mapped) in self.space(process).pages.range_mut(range) {
            mapped.armed = match protect && !mapped.guard {
                true if mapped.armed == Armed::Yes => Armed::Yes,
                true => Armed::IfThere,
                false => Armed::No,
            };
        }
        Ok(())
    }

    /// Returns whether an access to a page waits for the userfaultfd handler.
    #[must_use]
    pub fn refuses_accesses(&self, process: usize, page: u64) -> bool {
        let space = &self.spaces[&process];
        space.accesses_wait && space.pages[&page].armed == Armed::Yes
    }

    /// Records an access by the program, or by the kernel on behalf of the program.
    pub fn accessed(&mut self, process: usize, page: u64) {
        if let Ok(mapped) = self.mapped(process, page) {
            mapped.armed = Armed::No;
        }
    }

    /// Returns each page of a range that is registered for read-write protection, with its state.
    pub fn armed(
        &self,
        process: usize,
        from: u64,
        pages: u64,
    ) -> impl Iterator<Item = (u64, Armed)> + '_ {
        let range = self.spaces[&process].pages.range(from..from + pages);
        let watched = range.filter(|(_, mapped)| mapped.watch.is_some_and(|watch| watch.accesses));
        watched.map(|(&page, mapped)| (page, mapped.armed))
    }

    /// Records whether a read-write-protected page was found in memory or in swap. If the page was not found, it is no
    /// longer protected.
    ///
    /// # Errors
    /// The page was not found, although the process has stored to it and has not allowed it to be discarded.
    pub fn found_armed(&mut self, process: usize, page: u64, there: bool) -> Result<(), String> {
        let Ok(mapped) = self.mapped(process, page) else {
            return Ok(());
        };
        // A page that holds only zeroes need not be in memory or in swap: `madvise` may have discarded it.
        let stored = matches!(mapped.own, Some(Some(_)));
        if !there && stored && mapped.otherwise.is_none() {
            return Err(format!("page {page:#x} was stored to, and is gone"));
        }
        mapped.armed = match there {
            true => Armed::Yes,
            false => Armed::No,
        };
        Ok(())
    }
}
