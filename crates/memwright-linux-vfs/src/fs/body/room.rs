//! The slots of a pipe, and the charge of its capacity to a user.

use crate::identity::User;
use alloc::vec::Vec;
use memwright_linux_abi::errno::Errno;
use memwright_table::{Frame, Shared, TryPush};

/// A page of a pipe.
#[derive(Clone, Copy)]
pub(in crate::fs) struct Page {
    pub(in crate::fs) frame: Frame,
    /// Whether the page belongs to user memory (`vmsplice`). Such a page is full, and the pipe must not write to it.
    pub(in crate::fs) lent: bool,
}

/// Allocates `pages` empty slots.
///
/// # Errors
/// `ENOMEM`.
pub(in crate::fs) fn slots(pages: usize) -> Result<Vec<Option<Page>>, Errno> {
    let mut slots = Vec::new();
    slots.try_fill(pages, None).map_err(|_| Errno::ENOMEM)?;
    Ok(slots)
}

/// The charge for the capacity of a pipe, in pages, to the user that opened it. Before the pipe is open, the charge
/// also owns the slots.
pub struct Room {
    pub(in crate::fs) user: Shared<User>,
    pub(in crate::fs) pages: u64,
    pub(in crate::fs) slots: Vec<Option<Page>>,
}

impl Room {
    /// Changes the charge to `pages` pages. Returns the user's new total.
    pub(in crate::fs) fn count(&mut self, pages: u64) -> u64 {
        let all = self.user.pipe_pages.add(pages);
        self.user.pipe_pages.remove(self.pages);
        all - core::mem::replace(&mut self.pages, pages)
    }

    /// Removes the slots from the charge, and returns them.
    pub(in crate::fs) fn take_slots(&mut self) -> Vec<Option<Page>> {
        core::mem::take(&mut self.slots)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.user.pipe_pages.remove(self.pages);
    }
}
