//! The charge for the capacity of pipes, and its limits.

use crate::{
    fs::{
        body::{
            ring::DEFAULT_PAGES,
            room::{Room, slots},
        },
        caller::Caller,
    },
    identity::Capabilities,
};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use memwright_linux_abi::errno::Errno;
use memwright_table::PAGE_SIZE;

/// Number of pages of a new pipe if its user exceeds the soft limit (`PIPE_MIN_DEF_BUFFERS` of `fs/pipe.c`).
const FEWEST_PAGES: u64 = 2;

/// The capabilities that exempt a process from its user's limits on pipes (`pipe_is_unprivileged_user`).
const UNLIMITED: Capabilities = Capabilities::RESOURCES.union(Capabilities::ADMINISTER);

impl Room {
    /// Charges the user of the calling process for a pipe that is opened, and allocates the slots of the pipe
    /// (`alloc_pipe_info` in `fs/pipe.c` of Linux 7.3).
    ///
    /// # Errors
    /// `ENFILE` if the pipes of the user have too many pages, `ENOMEM`.
    pub fn new(caller: &dyn Caller) -> Result<Self, Errno> {
        let limits = &caller.vfs().file_limits;
        let mut pages = DEFAULT_PAGES as u64;
        let largest = limits.largest_pipe.load(Ordering::Relaxed) / PAGE_SIZE as u64;
        if pages > largest && !caller.has_any(Capabilities::RESOURCES) {
            pages = largest;
        }
        let mut room = Self {
            user: caller.identity().user(),
            pages: 0,
            slots: Vec::new(),
        };
        if limits.is_soft_over(room.count(pages)) && !caller.has_any(UNLIMITED) {
            room.count(FEWEST_PAGES);
        }
        let all = room.user.pipe_pages.get();
        if limits.is_hard_over(all) && !caller.has_any(UNLIMITED) {
            return Err(Errno::ENFILE);
        }
        room.slots = slots(room.pages as usize)?;
        Ok(room)
    }

    /// Changes the charge to `pages` pages. `grows` states whether `pages` is more than the present charge.
    ///
    /// # Errors
    /// `EPERM` if the charge grows and the user's total would exceed a limit.
    pub(super) fn resize(
        &mut self,
        caller: &dyn Caller,
        pages: u64,
        grows: bool,
    ) -> Result<(), Errno> {
        let limits = &caller.vfs().file_limits;
        let before = self.pages;
        let all = self.count(pages);
        let over = limits.is_soft_over(all) || limits.is_hard_over(all);
        if grows && over && !caller.has_any(UNLIMITED) {
            self.count(before);
            return Err(Errno::EPERM);
        }
        Ok(())
    }
}
