//! A hand that goes round the memory of all processes, a part at a time, and goes on where it stopped.

use crate::{
    Space,
    kernel::Kernel,
    process::Process,
    sync::{Lock, Rank},
};
use memwright_table::Page;

/// A place in the memory of all processes: the process and the page to go on with.
#[derive(Clone, Copy, Default)]
pub(crate) struct Position {
    id: u32,
    page: u64,
}

impl Position {
    /// Goes on to the end of the round. `visit` gets each space of a process that is `wanted` and the page to begin with,
    /// and returns where to stop, if it has had enough. Whether the round is over: then the next call begins another.
    pub(crate) fn go_on(
        &mut self,
        kernel: &Kernel,
        wanted: &impl Fn(&Process) -> bool,
        mut visit: impl FnMut(&Space, Page) -> Option<Page>,
    ) -> bool {
        for process in kernel.tasks.processes() {
            if process.id < self.id || !wanted(&process) {
                continue;
            }
            if process.id > self.id {
                (self.id, self.page) = (process.id, 0);
            }
            let Some(space) = process.space() else {
                continue;
            };
            if let Some(next) = visit(&space, Page::new(self.page)) {
                self.page = next.number();
                return false;
            }
            (self.id, self.page) = (self.id + 1, 0);
        }
        *self = Self::default();
        true
    }
}

/// A place that callers share, each of which goes on where the one before it stopped.
pub(crate) struct Hand {
    place: Lock<Position>,
}

impl Hand {
    /// A hand that has not begun.
    pub(crate) fn new() -> Self {
        Self {
            place: Lock::new(Rank::Leaf, Position::default()),
        }
    }

    /// Goes on to the end of the round with all processes, as [`Position::go_on`] does.
    pub(crate) fn go_on(
        &self,
        kernel: &Kernel,
        visit: impl FnMut(&Space, Page) -> Option<Page>,
    ) -> bool {
        self.go_on_among(kernel, &|_: &Process| true, visit)
    }

    /// Goes on with those processes alone that are `wanted`.
    pub(crate) fn go_on_among(
        &self,
        kernel: &Kernel,
        wanted: &impl Fn(&Process) -> bool,
        visit: impl FnMut(&Space, Page) -> Option<Page>,
    ) -> bool {
        let mut place = *self.place.lock();
        let is_over = place.go_on(kernel, wanted, visit);
        *self.place.lock() = place;
        is_over
    }
}
