//! The capacity of pipes, and its accounting to users.

use super::{Page, ring::DEFAULT_PAGES};
use crate::{
    context::Context,
    errno::Errno,
    process::{Capabilities, User},
};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use memwright_table::{PAGE_SIZE, Shared, TryPush};

/// Pages of a pipe when its user is over the soft limit (`PIPE_MIN_DEF_BUFFERS` of `fs/pipe.c`).
const FEWEST_PAGES: u64 = 2;

/// The capabilities that exempt from the limits of users (`pipe_is_unprivileged_user`).
const UNLIMITED: Capabilities = Capabilities::RESOURCES.union(Capabilities::ADMINISTER);

/// Allocates empty slots.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn slots(pages: usize) -> Result<Vec<Option<Page>>, Errno> {
    let mut slots = Vec::new();
    slots.try_fill(pages, None).map_err(|_| Errno::ENOMEM)?;
    Ok(slots)
}

/// The capacity of a pipe in pages, accounted to the user that opened it.
pub struct Room {
    user: Shared<User>,
    pages: u64,
    slots: Vec<Option<Page>>,
}

impl Room {
    /// Creates the room of a pipe that the caller opens (`alloc_pipe_info` in `fs/pipe.c` of Linux 7.3).
    ///
    /// # Errors
    /// `ENFILE` if the user has too many pages, `ENOMEM`.
    pub fn new(context: &Context<'_>) -> Result<Self, Errno> {
        let limits = &context.kernel.file_limits;
        let mut pages = DEFAULT_PAGES as u64;
        let largest = limits.largest_pipe.load(Ordering::Relaxed) / PAGE_SIZE as u64;
        if pages > largest && !context.has_any(Capabilities::RESOURCES) {
            pages = largest;
        }
        let mut room = Self {
            user: context.process().user(),
            pages: 0,
            slots: Vec::new(),
        };
        if limits.is_soft_over(room.count(pages)) && !context.has_any(UNLIMITED) {
            room.count(FEWEST_PAGES);
        }
        let all = room.user.pipe_pages.get();
        if limits.is_hard_over(all) && !context.has_any(UNLIMITED) {
            return Err(Errno::ENFILE);
        }
        room.slots = slots(room.pages as usize)?;
        Ok(room)
    }

    /// Accounts `pages` instead of the present number. Returns the user's total after that.
    fn count(&mut self, pages: u64) -> u64 {
        let all = self.user.pipe_pages.add(pages);
        self.user.pipe_pages.remove(self.pages);
        all - core::mem::replace(&mut self.pages, pages)
    }

    /// Changes the number of pages.
    ///
    /// # Errors
    /// `EPERM` if it grows and the user would have too many.
    pub(super) fn resize(
        &mut self,
        context: &Context<'_>,
        pages: u64,
        grows: bool,
    ) -> Result<(), Errno> {
        let limits = &context.kernel.file_limits;
        let before = self.pages;
        let all = self.count(pages);
        let over = limits.is_soft_over(all) || limits.is_hard_over(all);
        if grows && over && !context.has_any(UNLIMITED) {
            self.count(before);
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    pub(super) fn take_slots(&mut self) -> Vec<Option<Page>> {
        core::mem::take(&mut self.slots)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.user.pipe_pages.remove(self.pages);
    }
}
