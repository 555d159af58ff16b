//! The metadata of a new table.

use super::level::table_owner;
use crate::addr::{Frame, Page};
use crate::machine::Machine;
use crate::root::Table;

impl<M: Machine> Table<M> {
    /// Initializes the metadata of a page table for the pages from `start` on. The caller writes its entries next.
    pub(super) fn prepare_table(&self, table: Frame, start: Page, level: u8) {
        let meta = self.frames().meta(table);
        meta.become_table(table_owner(self.root(), level), start.number());
    }
}
