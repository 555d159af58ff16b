//! NUMA hint faults, which reveal the node that accesses a page (Linux 7.2 `mm/memory.c`, `do_numa_page`).

use memwright_table::{Bits, Cursor, FrameKind, Machine, NodeChoice, PageSize, Present};

use crate::fault::attempt::Fault;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;
use crate::types::numa_pace::Told;
use crate::types::stats::Row;
use crate::vma::writable::{access_bits, upgrade};

impl<M: Machine> Fault<'_, M> {
    /// Resolves the fault on the NUMA hint entry under the cursor, which maps `page`.
    #[cold]
    #[inline(never)]
    pub(super) fn resolve_hint(
        self,
        mut cursor: Cursor<'_, M>,
        page: Present,
    ) -> Result<FaultKind, FaultError> {
        let page = self.restore(&mut cursor, page);
        self.follow(&mut cursor, page);
        // A load succeeds now, and so does a store if the entry is writable. Otherwise the store is resolved here,
        // without another trap.
        let now = cursor.peek().present().unwrap_or(page);
        if now.bits.contains(self.access.needs()) {
            return Ok(FaultKind::Hint);
        }
        drop(cursor);
        self.resolve()
    }

    /// Restores the rights of the area in a NUMA hint entry. Adds write permission if [`writable`](crate::writable)
    /// grants it, so that no write fault follows, whether or not the page is migrated. Returns the page as it is mapped
    /// now.
    fn restore(self, cursor: &mut Cursor<'_, M>, page: Present) -> Present {
        let core = self.core;
        if page.size != PageSize::Size4K {
            cursor.widen();
        }
        let mut set = access_bits(self.area.rights()) | Bits::ACCESSED;
        let bits = (page.bits - Bits::HINT) | set;
        let policy = core.memory.policy().write_upgrade();
        if upgrade(self.area.view(), bits, policy).is_writable() {
            set |= Bits::WRITE;
        }
        let mut gather = core.gather();
        let now = cursor.edit(set, Bits::HINT, &mut gather);
        let counts = gather.close();
        core.note_gather(self.cpu, counts);
        now
    }

    /// Counts the hint fault as local or remote. Migrates the page to the node of this CPU if the page is on another
    /// node, and the previous hint fault on the page was also on a CPU of this node (the second stage of
    /// `should_numa_migrate_memory`).
    fn follow(self, cursor: &mut Cursor<'_, M>, page: Present) {
        let core = self.core;
        let frames = core.memory.frames();
        let here = frames.topology().node_of(self.cpu);
        let frame = page.frame;
        if frames.kind(frame) != FrameKind::Anonymous {
            // KSM has merged the page since the hint was installed, so the page has several owners.
            return;
        }
        let again = frames.remember_user(frame, here);
        if frames.node_of(frame) == here {
            core.memory.count_on(self.cpu, Row::HintLocal, 1);
            core.pace().note(Told::Local);
            return;
        }
        core.memory.count_on(self.cpu, Row::HintRemote, 1);
        if !again {
            core.pace().note(Told::Remote);
            return;
        }
        let there = NodeChoice::only(here);
        // A failed migration leaves nothing to undo: the entry has the rights of the area already.
        let moved = core.migrate(self.area, cursor, page, there).is_ok();
        let told = if moved { Told::Remote } else { Told::Stayed };
        core.pace().note(told);
    }
}
