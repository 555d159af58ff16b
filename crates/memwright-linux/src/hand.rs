//! A hand that goes round the memory of all processes, a part at a time, and goes on where it stopped.

use crate::{
    Space,
    kernel::Kernel,
    process::Process,
    sync::{Lock, Rank},
};
use memwright_table::Page;

/// Where the hand is.
pub(crate) struct Hand {
    /// The process and the page to go on with.
    place: Lock<(u32, u64)>,
}

impl Hand {
    /// A hand that has not begun.
    pub(crate) fn new() -> Self {
        Self {
            place: Lock::new(Rank::Leaf, (0, 0)),
        }
    }

    /// Goes on to the end of the round. `visit` gets each space and the page to begin with, and returns where to stop,
    /// if it has had enough. Whether the round is over: then the next call begins another.
    pub(crate) fn go_on(
        &self,
        kernel: &Kernel,
        visit: impl FnMut(&Space, Page) -> Option<Page>,
    ) -> bool {
        self.go_on_among(kernel, &|_: &Process| true, visit)
    }

    /// The same for those processes alone that are `wanted`.
    pub(crate) fn go_on_among(
        &self,
        kernel: &Kernel,
        wanted: &impl Fn(&Process) -> bool,
        mut visit: impl FnMut(&Space, Page) -> Option<Page>,
    ) -> bool {
        let (mut id, mut page) = *self.place.lock();
        for process in kernel.tasks.processes() {
            if process.id < id || !wanted(&process) {
                continue;
            }
            if process.id > id {
                (id, page) = (process.id, 0);
            }
            let Some(space) = process.space() else {
                continue;
            };
            if let Some(next) = visit(&space, Page::new(page)) {
                *self.place.lock() = (id, next.number());
                return false;
            }
            (id, page) = (id + 1, 0);
        }
        *self.place.lock() = (0, 0);
        true
    }
}
