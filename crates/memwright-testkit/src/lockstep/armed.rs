//! The steps of read-write protection, and the comparison of the pages that count as accessed.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use memwright::track::{Categories, Scan};
use memwright_table::{Architecture, CpuId, Entry, Page};

use super::tracking::scanned;
use super::{Difference, Lockstep, address};
use crate::machine::TestMachine;
use crate::model::Armed;
use crate::process::{Process, Space};
use crate::script::{Range, Watcher};

/// The scan (`PAGEMAP_SCAN`) for pages that count as accessed in areas that are registered for read-write protection.
const FOR_ACCESSED: Scan = Scan {
    inverted: Categories::empty(),
    all: Categories::ACCESSED,
    any: Categories::empty(),
    protect: false,
    only_tracked: false,
};

impl<M: TestMachine> Lockstep<M> {
    pub(super) fn read_write_protect(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        protect: bool,
    ) -> Result<(), Difference> {
        let what = if protect {
            "read-write-protect"
        } else {
            "end read-write protection"
        };
        self.by_watcher(
            (what, process, cpu, range, Watcher::Accesses),
            |space, at, length, _| space.uffd().read_write_protect(at, length, protect),
            |model, from, pages, _| model.read_write_protect(process, from, pages, protect),
        )
    }

    pub(super) fn count_accesses(
        &mut self,
        process: usize,
        cpu: CpuId,
        counts: bool,
    ) -> Result<(), Difference> {
        let watch = self.watcher(process, Watcher::Accesses)?;
        self.processes[&process].on(cpu, |space| space.uffd().count_accesses(&watch, counts));
        // If the context recorded accesses before this step, the hardware may have loaded pages speculatively.
        self.find_speculated(process);
        self.model.count_accesses(process, counts);
        self.succeeded(if counts {
            "count accesses"
        } else {
            "make accesses wait"
        });
        Ok(())
    }

    pub(super) fn scan_accessed(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let found = self.processes[&process].on(cpu, |space| accessed(space, from, pages))?;
        if !found.is_empty() {
            self.succeeded("scan accessed");
        }
        self.learn_speculated(process, &found);
        self.compare_accessed(process, from, pages, &found)?;
        Ok(())
    }

    /// Determines which pages that the model has read-write-protected exist in memory or in swap, and updates the
    /// model.
    pub(super) fn find_armed(&mut self, process: usize) -> Result<(), String> {
        for page in self.armed(process) {
            let is_there = match self.processes[&process].space().entry(address(page)) {
                Entry::Present(_) | Entry::Swapped(_) | Entry::Migrating(_) => true,
                Entry::Empty | Entry::Marker(_) => false,
            };
            self.model
                .found_armed(process, page, is_there)
                .map_err(|difference| format!("process {process}: {difference}"))?;
        }
        Ok(())
    }

    /// Determines which pages count as accessed although the program did not access them: the hardware has loaded them
    /// speculatively, or another part of their huge page was accessed. Does nothing if accesses wait for the handler,
    /// because an access that waits does not take place.
    pub(super) fn find_speculated(&mut self, process: usize) {
        let found = self.all_accessed(process);
        self.learn_speculated(process, &found);
    }

    /// Like `find_speculated`. `found` are the pages that count as accessed.
    fn learn_speculated(&mut self, process: usize, found: &[u64]) {
        if !self.model.counts_accesses(process) {
            return;
        }
        let (largest, speculates) = (self.largest, self.speculates);
        let huge = largest >= memwright_table::PageSize::Size2M.pages();
        if !speculates && !huge {
            return;
        }
        let all: Vec<_> = self.model.armed(process, 0, M::Arch::USER.len()).collect();
        self.learn_accessed(process, found, |page| {
            let beside = |(other, armed): &(u64, Armed)| {
                other / largest == page / largest && *armed == Armed::No
            };
            speculates || all.iter().any(beside)
        });
    }

    /// Determines which private pages count as accessed because they were merged.
    pub(super) fn find_merged(&mut self) {
        let numbers: Vec<usize> = self.processes.keys().copied().collect();
        for process in numbers {
            if self.model.counts_accesses(process) {
                let shared: Vec<u64> = self
                    .armed(process)
                    .into_iter()
                    .filter(|page| self.model.shared_page(process, *page).is_some())
                    .collect();
                let found = self.all_accessed(process);
                self.learn_accessed(process, &found, |page| !shared.contains(&page));
            }
        }
    }

    /// Records in the model an access to each protected page that is in `found` and for which `may` returns true.
    fn learn_accessed(&mut self, process: usize, found: &[u64], may: impl Fn(u64) -> bool) {
        for page in self.armed(process) {
            if found.binary_search(&page).is_ok() && may(page) {
                self.model.accessed(process, page);
            }
        }
    }

    /// Returns all pages of a process that count as accessed, or none if the model has not protected any.
    fn all_accessed(&self, process: usize) -> Vec<u64> {
        if self.armed(process).is_empty() {
            return Vec::new();
        }
        let space = self.processes[&process].space();
        accessed(space, 0, M::Arch::USER.len()).unwrap_or_default()
    }

    /// Returns the pages that the model has protected.
    fn armed(&self, process: usize) -> Vec<u64> {
        let all = self.model.armed(process, 0, M::Arch::USER.len());
        all.filter(|(_, armed)| *armed != Armed::No)
            .map(|(page, _)| page)
            .collect()
    }

    /// Compares with the model which pages count as accessed, without accessing them.
    pub(super) fn check_armed(&self, number: usize, process: &Process<M>) -> Result<(), String> {
        if self
            .model
            .armed(number, 0, M::Arch::USER.len())
            .next()
            .is_none()
        {
            return Ok(());
        }
        let found = accessed(process.space(), 0, M::Arch::USER.len());
        found
            .and_then(|found| self.compare_accessed(number, 0, M::Arch::USER.len(), &found))
            .map_err(|difference| format!("process {number}: {difference}"))
    }

    fn compare_accessed(
        &self,
        process: usize,
        from: u64,
        pages: u64,
        found: &[u64],
    ) -> Result<(), String> {
        let space = self.processes[&process].space();
        for (page, armed) in self.model.armed(process, from, pages) {
            let counts = found.binary_search(&page).is_ok();
            let name = || self.scale.name(page);
            let there = space.entry(address(page)) != Entry::Empty;
            match armed {
                Armed::Yes if counts => return Err(format!("{} counts as accessed", name())),
                Armed::No if there && !counts => {
                    return Err(format!("{} was accessed, and does not count so", name()));
                }
                Armed::No if counts && !there => {
                    return Err(format!("{} counts as accessed, and is missing", name()));
                }
                Armed::No | Armed::Yes | Armed::IfThere => {}
            }
        }
        Ok(())
    }
}

/// Returns the pages of a range that count as accessed.
fn accessed<M: TestMachine>(space: &Space<M>, from: u64, pages: u64) -> Result<Vec<u64>, String> {
    let (found, outcome) = scanned(space, from, pages, &FOR_ACCESSED);
    if outcome != Ok(Page::new(from + pages)) {
        return Err(format!("scan for accessed pages: {outcome:?}"));
    }
    Ok(found)
}
