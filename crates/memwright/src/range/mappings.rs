//! Operations on every mapping of an object (Linux 7.2 `mm/rmap.c` and `mm/memory.c`, `unmap_mapping_range`).

use memwright_table::Machine;

use crate::mm::mappings::{CleanOutcome, Mappings};
use crate::range::zap::Taken;
use crate::store::cluster::Cluster;

impl<M: Machine> Mappings<M> {
    /// Returns whether an area that maps the object shared may be written, now or after a protection change (Linux 7.3
    /// `include/linux/fs.h`, `i_mmap_writable`). Checks the areas of every address space that maps the object.
    pub fn may_be_written(&self) -> bool {
        let mut found = false;
        self.visit(&(0..u64::MAX), |space, places| {
            found = found || space.may_write_object(self, places);
        });
        found
    }

    /// Unmaps the pages `first..end` of the object from every address space.
    ///
    /// Before this call, the object has removed the pages and called [`stale`](Self::stale). If `copies` is set,
    /// private copies are unmapped too, as for truncation. Punching a hole keeps them (Linux 7.2 `mm/memory.c`,
    /// `unmap_mapping_range`).
    pub fn unmap(&self, first: u64, end: u64, copies: bool) {
        let taken = if copies { Taken::All } else { Taken::Objects };
        self.visit(&(first..end), |space, places| {
            space.zap_object(self, (places, first..end), taken);
        });
    }

    /// Like [`unmap`](Self::unmap), for pages of the object that move to other frames, so that the next access maps the
    /// new frame. Zero pages that `UFFDIO_ZEROPAGE` mapped in private memory stay.
    pub(crate) fn moved(&self, first: u64, end: u64) {
        self.visit(&(first..end), |space, places| {
            space.zap_object(self, (places, first..end), Taken::Moving);
        });
    }

    /// Like [`unmap`](Self::unmap), for pages that are about to be reclaimed. A page stays mapped if only its entry
    /// records that the page was stored to since soft-dirty was cleared (rule: never-under-report). Linux unmaps it and
    /// loses the record.
    pub fn withdraw(&self, first: u64, end: u64) {
        self.visit(&(first..end), |space, places| {
            space.zap_object(self, (places, first..end), Taken::Leaving);
        });
    }

    /// Removes from the cluster `pages` the pages that a locked or secret area maps. If `unused` is set, also removes
    /// the pages accessed since the last check (Linux 7.2 `mm/rmap.c`, `folio_referenced_one`). This is the first step
    /// of [`Object::send_out`](crate::object::Object::send_out).
    pub fn keep(&self, pages: &mut Cluster, unused: bool) {
        // Also age the entries of pages that were removed from `pages`, so that the next check finds only later
        // accesses.
        let all = *pages;
        self.visit(&all.span(), |space, places| {
            space.keep_of_object(self, places, (&all, pages), unused);
        });
    }

    /// Makes the pages `first..end` clean and read-only in every shared mapping, so that the object is notified of the
    /// next store. Returns how many entries were dirty and how many lost write permission.
    pub fn clean(&self, first: u64, end: u64) -> CleanOutcome {
        // A concurrent fault may have notified the object of a first store without having made the entry writable yet.
        // The new generation makes the fault start again and notify the object again.
        self.stale();
        let mut outcome = CleanOutcome::default();
        self.visit(&(first..end), |space, places| {
            let found = space.clean_object(self, (places, first..end));
            outcome.dirty += found.dirty;
            outcome.protected += found.protected;
        });
        outcome
    }
}
