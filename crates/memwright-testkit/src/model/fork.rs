//! `fork` in the model.

use super::Model;
use super::page::{Armed, Stored};

impl Model {
    /// Creates a child with a copy of every page that it inherits.
    pub fn fork(&mut self, parent: usize, child: usize) {
        let mut copy = self.space(parent).clone();
        copy.accesses_wait = false;
        copy.pages.retain(|_, mapped| !mapped.on_fork.omit);
        for mapped in copy.pages.values_mut() {
            // The child has no userfaultfd. Its pages can lose their soft-dirty state, because fork does not copy the
            // entries of pages that the child can fault in again.
            (mapped.watch, mapped.since_protected) = (None, Stored::Maybe);
            mapped.armed = Armed::No;
            if mapped.since_cleared == Stored::Yes {
                mapped.since_cleared.lose();
            }
            if mapped.on_fork.wipe {
                mapped.dropped();
                mapped.guard = false;
            }
        }
        self.spaces.insert(child, copy);
    }
}
