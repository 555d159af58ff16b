//! The node on which a fault allocates a page (Linux 7.2 `mm/mempolicy.c`, `alloc_pages_vma`).

use memwright_table::Machine;

use crate::fault::attempt::Fault;

impl<M: Machine> Fault<'_, M> {
    /// Selects the nodes of the next allocation on this CPU by the NUMA policy of the page that faulted. Does nothing
    /// if the fault is a load or if the area maps an object.
    #[cold]
    pub(crate) fn place(self) {
        if !self.access.write || self.area.object().is_some() {
            return;
        }
        let frames = self.core.memory.frames();
        let near = frames.topology().node_of(self.cpu);
        if let Some(choice) = self.core.choice_at(self.area, self.page, near) {
            frames.choose_next(choice);
        }
    }
}
