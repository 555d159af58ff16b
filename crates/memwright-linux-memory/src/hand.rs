//! A cursor that walks the memory of all processes in steps. Each step continues where the previous step stopped.

use memwright_linux_abi::Space;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_tasks::{
    process::{Among, Tasks},
    reclaim_cursor::Position,
};
use memwright_table::Page;

/// Continues a round over the processes of `among` from the position `place`. Calls `visit` for the address space of
/// each process, with the first page to visit. When `visit` has used up its budget, it returns the page at which it
/// stopped, and the walk stops there. Returns whether the round is complete. If it is, the next call begins a new
/// round.
pub fn visit_spaces(
    place: &mut Position,
    tasks: &Tasks,
    among: Among<'_>,
    mut visit: impl FnMut(&Space, Page) -> Option<Page>,
) -> bool {
    while let Some(process) = tasks.next_among(place.id, among) {
        if process.id > place.id {
            (place.id, place.page) = (process.id, 0);
        }
        if let Some(space) = process.space()
            && let Some(next) = visit(&space, Page::new(place.page))
        {
            place.page = next.number();
            return false;
        }
        (place.id, place.page) = (place.id + 1, 0);
    }
    *place = Position::default();
    true
}

/// A cursor that all its callers share: each call continues where the previous call stopped.
pub struct Hand {
    place: Lock<Position>,
}

impl Default for Hand {
    /// Creates a cursor at the start of a round.
    fn default() -> Self {
        Self {
            place: Lock::new(Rank::Leaf, Position::default()),
        }
    }
}

impl Hand {
    /// Continues the round over all processes like [`visit_spaces`].
    pub fn go_on(&self, tasks: &Tasks, visit: impl FnMut(&Space, Page) -> Option<Page>) -> bool {
        let mut place = *self.place.lock();
        let is_over = visit_spaces(&mut place, tasks, Among::All, visit);
        *self.place.lock() = place;
        is_over
    }
}
