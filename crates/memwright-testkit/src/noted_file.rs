//! A file that writes back its pages, and must be notified of the first write to each page after its writeback.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use memwright::Memory;
use memwright::object::{Mappings, Object, ObjectError, ObjectIdentity, Shmem};
use memwright_table::{Frame, Machine, PAGE_SIZE};
use spin::Mutex;

/// A file that stores a written-back copy of each page, as a disk does.
///
/// A page becomes dirty at the first write after writeback. The memory manager calls `first_write` for that write. A
/// page that is not dirty equals its copy, so [`check`](Self::check) detects each write for which `first_write` was not
/// called.
pub struct NotedFile<M: Machine> {
    pages: Shmem<M>,
    written_back: Mutex<BTreeMap<u64, [u8; PAGE_SIZE]>>,
    dirty: Mutex<BTreeSet<u64>>,
}

impl<M: Machine> NotedFile<M> {
    /// Creates a clean file of zeroes.
    ///
    /// # Panics
    /// If the heap memory cannot be allocated.
    #[must_use]
    pub fn new(memory: Arc<Memory<M>>, pages: u64) -> Self {
        let identity = ObjectIdentity {
            device: 2,
            inode: 1,
        };
        Self {
            // The pages belong to a file and are never swapped out.
            pages: Shmem::new(memory, pages * PAGE_SIZE as u64, identity)
                .expect("heap")
                .staying(),
            written_back: Mutex::new(BTreeMap::new()),
            dirty: Mutex::new(BTreeSet::new()),
        }
    }

    /// Returns the pages, for reading and truncating. To write, call [`write_at`](Self::write_at).
    #[must_use]
    pub fn pages(&self) -> &Shmem<M> {
        &self.pages
    }

    /// Writes inside one page, as the `write` system call does.
    ///
    /// # Errors
    /// No frame can be allocated for the page.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, ObjectError> {
        self.dirty.lock().insert(offset / PAGE_SIZE as u64);
        self.pages.write_at(offset, bytes)
    }

    /// Changes the size. Pages beyond the new end are dropped.
    ///
    /// # Panics
    /// If a page is in swap. Pages of this file are never swapped out.
    pub fn truncate(&self, pages: u64) {
        let cut = self.pages.set_size(pages * PAGE_SIZE as u64);
        cut.expect("nothing is in swap");
        self.written_back.lock().retain(|&index, _| index < pages);
        self.dirty.lock().retain(|&index| index < pages);
    }

    /// Extends the file to `pages` pages.
    pub fn grow(&self, pages: u64) {
        self.pages.grow_to(pages * PAGE_SIZE as u64);
    }

    /// Zeroes `pages` pages from `first` on, and makes them clean.
    ///
    /// # Panics
    /// Like [`truncate`](Self::truncate).
    pub fn punch(&self, first: u64, pages: u64) {
        let bytes = PAGE_SIZE as u64;
        let punched = self.pages.punch(first * bytes, (first + pages) * bytes);
        punched.expect("nothing is in swap");
        self.written_back
            .lock()
            .retain(|index, _| !(first..first + pages).contains(index));
        self.dirty
            .lock()
            .retain(|index| !(first..first + pages).contains(index));
    }

    /// Writes every dirty page back. Returns the number of pages written.
    pub fn clean(&self) -> usize {
        let dirty = core::mem::take(&mut *self.dirty.lock());
        for &index in &dirty {
            // Write-protect the page before it is copied, so that a write during the copy calls `first_write` again.
            let _ = self.pages.mappings().clean(index, index + 1);
            let contents = self.contents(index);
            self.written_back.lock().insert(index, contents);
        }
        dirty.len()
    }

    /// Returns the indices of the pages that were written since their last writeback.
    #[must_use]
    pub fn dirty(&self) -> Vec<u64> {
        self.dirty.lock().iter().copied().collect()
    }

    /// Returns the index of the first clean page that differs from its copy, or `None` if no page does.
    #[must_use]
    pub fn check(&self) -> Option<u64> {
        let dirty = self.dirty.lock();
        let written_back = self.written_back.lock();
        let pages = self.pages.size() / PAGE_SIZE as u64;
        (0..pages)
            .filter(|index| !dirty.contains(index))
            .find(|&index| {
                let copy = written_back.get(&index).copied().unwrap_or([0; PAGE_SIZE]);
                self.contents(index) != copy
            })
    }

    fn contents(&self, index: u64) -> [u8; PAGE_SIZE] {
        let mut bytes = [0; PAGE_SIZE];
        let read = self.pages.read_at(index * PAGE_SIZE as u64, &mut bytes);
        read.expect("nothing is in swap");
        bytes
    }
}

impl<M: Machine> Object<M> for NotedFile<M> {
    fn frame(&self, memory: &Memory<M>, index: u64, write: bool) -> Result<Frame, ObjectError> {
        self.pages.frame(memory, index, write)
    }

    fn cached(&self, memory: &Memory<M>, index: u64) -> Option<Frame> {
        self.pages.cached(memory, index)
    }

    fn contains(&self, index: u64) -> bool {
        self.pages.contains(index)
    }

    fn notify_first_write(&self) -> bool {
        true
    }

    fn first_write(&self, index: u64) -> Result<(), ObjectError> {
        self.dirty.lock().insert(index);
        Ok(())
    }

    fn identity(&self) -> ObjectIdentity {
        self.pages.identity()
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("/noted")
    }

    fn mappings(&self) -> &Mappings<M> {
        self.pages.mappings()
    }
}
