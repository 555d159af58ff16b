//! A cursor that only reads.

use super::Table;
use super::cursor::{Cursor, Extent};
use crate::addr::PageRange;
use crate::entry::Entry;
use crate::machine::Machine;
use crate::sync::Rank;

/// A [`Cursor`] that changes nothing: a table that is quiet stays so.
#[derive(Debug)]
#[must_use = "it holds a lock"]
pub struct Look<'t, M: Machine>(Cursor<'t, M>);

impl<'t, M: Machine> Look<'t, M> {
    #[track_caller]
    pub(super) fn new(table: &'t Table<M>, range: PageRange) -> Self {
        Self(Cursor::new(table, range, Rank::Table, true))
    }

    /// As [`Cursor::entry`].
    ///
    /// # Panics
    /// If it is at the end of its range.
    pub fn entry(&self) -> Extent {
        self.0.entry()
    }

    /// As [`Cursor::peek`].
    ///
    /// # Panics
    /// If it is at the end of its range.
    pub fn peek(&self) -> Entry {
        self.0.peek()
    }

    /// As [`Cursor::advance`].
    pub fn advance(&mut self) -> bool {
        self.0.advance()
    }

    /// As [`Cursor::next_filled`].
    pub fn next_filled(&mut self) -> Option<Extent> {
        self.0.next_filled()
    }
}
