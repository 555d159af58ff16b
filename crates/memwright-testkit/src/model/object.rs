//! Files and shared memory in the model.

use alloc::vec;

use super::page::{ObjectNumber, Source, store};
use super::{Model, Object};

impl Model {
    /// Creates a zeroed object: memory if `memory` is true, otherwise a file on a disk.
    pub fn create_object(&mut self, pages: u64, memory: bool) -> ObjectNumber {
        self.objects.push(Object {
            pages: vec![None; pages as usize],
            memory,
        });
        self.objects.len() - 1
    }

    /// Writes one byte inside an object, as `write` does.
    pub fn write_object(&mut self, object: ObjectNumber, index: u64, offset: usize, value: u8) {
        store(
            &mut self.objects[object].pages[index as usize],
            offset,
            value,
        );
    }

    /// Reads one byte inside an object, as `read` does.
    #[must_use]
    pub fn read_object(&self, object: ObjectNumber, index: u64, offset: usize) -> u8 {
        let contents = &self.objects[object].pages[index as usize];
        contents.as_ref().map_or(0, |bytes| bytes[offset])
    }

    /// Returns the size of an object in pages.
    #[must_use]
    pub fn object_pages(&self, object: ObjectNumber) -> u64 {
        self.objects[object].pages.len() as u64
    }

    /// Changes the size of an object (`ftruncate`). Removes the pages beyond the new end and their private copies.
    pub fn truncate(&mut self, object: ObjectNumber, pages: u64) {
        self.objects[object].pages.resize(pages as usize, None);
        for mapped in self.all() {
            if mapped.shows(object, pages..u64::MAX) {
                mapped.dropped();
            }
        }
    }

    /// Zeroes pages of an object (`FALLOC_FL_PUNCH_HOLE`). Private copies of the pages keep their contents.
    pub fn punch(&mut self, object: ObjectNumber, index: u64, pages: u64) {
        let all = &mut self.objects[object].pages;
        for contents in all.iter_mut().skip(index as usize).take(pages as usize) {
            *contents = None;
        }
        for mapped in self.all() {
            if mapped.own.is_none() && mapped.shows(object, index..index + pages) {
                mapped.dropped();
            }
        }
    }

    /// Returns the pages at which the process privately maps one of the `pages` pages of the object from `index` on, if
    /// a userfaultfd handler filled them with zeroes and the process has not stored to them since then. Punching a hole
    /// in the object also removes such a page if it maps the zero page (Linux 7.2 `mm/memory.c`, `zap_present_ptes`).
    pub fn filled_with_zeroes(
        &self,
        process: usize,
        object: ObjectNumber,
        index: u64,
        pages: u64,
    ) -> impl Iterator<Item = u64> + '_ {
        let all = self.spaces[&process].pages.iter();
        all.filter(move |(_, mapped)| {
            let is_private = matches!(mapped.source, Source::Private { .. });
            is_private && mapped.own == Some(None) && mapped.shows(object, index..index + pages)
        })
        .map(|(&page, _)| page)
    }

    /// Records that the private copy of an object's page was discarded.
    pub fn lost(&mut self, process: usize, page: u64) {
        if let Ok(mapped) = self.mapped(process, page) {
            mapped.dropped();
        }
    }
}
