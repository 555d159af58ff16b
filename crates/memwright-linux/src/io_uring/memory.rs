//! The memory that the kernel and the program share for a ring.

use super::layout::{SUBMISSION_SIZE, Sizes};
use alloc::sync::Arc;
use core::fmt;
use memwright::object::{Mappings, Object, ObjectError, ObjectIdentity, Shmem};
use memwright_linux_abi::{M, Memory};
use memwright_table::{Frame, OutOfMemory, PAGE_SIZE};

/// The memory that contains the submission ring, the completion ring and the submissions.
pub struct RingMemory {
    pages: Shmem<M>,
    sizes: Sizes,
}

impl RingMemory {
    /// Creates the memory. It is filled with zeros, and its pages are never swapped out.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the heap is exhausted.
    pub fn new(memory: &Arc<Memory>, sizes: Sizes) -> Result<Self, OutOfMemory> {
        let size = (sizes.ring_pages() + sizes.submission_pages()) * PAGE_SIZE as u64;
        let pages = Shmem::new(memory.clone(), size, ObjectIdentity::default())?;
        Ok(Self {
            pages: pages.staying(),
            sizes,
        })
    }

    /// Returns the sizes of the ring.
    #[must_use]
    pub const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Reads the word at the byte offset `offset` in the memory of the rings.
    #[must_use]
    pub fn word(&self, offset: u32) -> u32 {
        let mut bytes = [0; 4];
        self.read(offset.into(), &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Writes the word at the byte offset `offset` in the memory of the rings. All pages must have been allocated by
    /// [`make`](Self::make): a write to a page without a frame has no effect.
    pub fn set_word(&self, offset: u32, value: u32) {
        self.store(offset, &value.to_le_bytes());
    }

    /// Writes `bytes` at the byte offset `offset` in the memory of the rings.
    pub fn store(&self, offset: u32, bytes: &[u8]) {
        let _ = self.pages.write_at(offset.into(), bytes);
    }

    /// Reads the submission at index `number`.
    #[must_use]
    pub fn submission(&self, number: u32) -> [u8; SUBMISSION_SIZE as usize] {
        let start = self.sizes.ring_pages() * PAGE_SIZE as u64;
        let mut bytes = [0; SUBMISSION_SIZE as usize];
        self.read(start + u64::from(number * SUBMISSION_SIZE), &mut bytes);
        bytes
    }

    /// Reads bytes at `offset`. The read cannot fail, because all pages are resident.
    fn read(&self, offset: u64, bytes: &mut [u8]) {
        let read = self.pages.read_at(offset, bytes);
        debug_assert!(read.is_ok());
    }

    /// Allocates all pages, so that later accesses cannot fail.
    ///
    /// # Errors
    /// [`ObjectError`] if no frame is free.
    pub fn make(&self) -> Result<(), ObjectError> {
        self.pages.allocate(0, self.pages.size())
    }
}

impl Object<M> for RingMemory {
    fn frame(&self, memory: &Memory, index: u64, write: bool) -> Result<Frame, ObjectError> {
        let page = self.sizes.page_at(index).ok_or(ObjectError::BeyondEnd)?;
        self.pages.frame(memory, page, write)
    }

    fn cached(&self, memory: &Memory, index: u64) -> Option<Frame> {
        self.pages.cached(memory, self.sizes.page_at(index)?)
    }

    fn contains(&self, index: u64) -> bool {
        self.sizes.page_at(index).is_some()
    }

    fn identity(&self) -> ObjectIdentity {
        self.pages.identity()
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("anon_inode:[io_uring]")
    }

    fn mappings(&self) -> &Mappings<M> {
        self.pages.mappings()
    }

    fn is_memory(&self) -> bool {
        true
    }
}
