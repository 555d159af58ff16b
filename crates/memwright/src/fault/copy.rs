//! Copy-on-write (Linux 7.2 `mm/memory.c`, `wp_page_copy` and `do_cow_fault`).

use memwright_table::{Bits, Cursor, Entry, Frame, FrameKind, Machine, OutOfFrames, Present};

use crate::fault::attempt::Fault;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;
use crate::types::stats::Row;
use crate::vma::writable::NEW;

impl<M: Machine> Fault<'_, M> {
    /// Replaces the page under the cursor by a private copy. Empties the entry, flushes, and then sets the new entry
    /// (rule: flush-what-shrank), so that no CPU reads the old frame after another CPU has written to the new one.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn copy_present(
        self,
        cursor: &mut Cursor<'_, M>,
        page: Present,
    ) -> Result<FaultKind, FaultError> {
        let core = self.core;
        let frames = core.memory.frames();
        let new = if page.bits.contains(Bits::BORROWED) {
            let new = frames.allocate_zeroed(0, FrameKind::Anonymous)?;
            core.memory.count_on(self.cpu, Row::FramesZeroed, 1);
            new
        } else {
            let new = frames.allocate(0, FrameKind::Anonymous)?;
            frames.copy(page.frame, new.frame());
            core.memory.count_on(self.cpu, Row::FramesCopied, 1);
            new
        };
        self.note_private();
        let kept = page.bits & Bits::UFFD_WP;
        let mut gather = core.gather();
        cursor.remove(&mut gather);
        gather.note_replaced();
        gather.flush();
        // The table exists, so setting the entry that was just emptied allocates nothing.
        let filled = self.fill_with(cursor, new.into_raw(), kept);
        core.note_resident(self.cpu, 1);
        debug_assert!(filled.is_ok());
        let counts = gather.close();
        core.note_gather(self.cpu, counts);
        Ok(FaultKind::Copy)
    }

    /// Maps an anonymous frame that is exclusive to the entry under the cursor, and takes over the caller's reference.
    ///
    /// On error the caller keeps the reference.
    pub(super) fn fill_own(
        self,
        cursor: &mut Cursor<'_, M>,
        frame: Frame,
        inherited: Bits,
    ) -> Result<(), OutOfFrames> {
        self.fill_with(cursor, frame, inherited)?;
        self.core.note_filled(self.cpu, 1);
        Ok(())
    }

    /// Sets the entry under the cursor to map `frame`, like `fill_own`, but does not count the page as resident.
    #[cfg_attr(feature = "inline", inline(always))]
    fn fill_with(
        self,
        cursor: &mut Cursor<'_, M>,
        frame: Frame,
        inherited: Bits,
    ) -> Result<(), OutOfFrames> {
        let bits = self.area.entry_bits(NEW | inherited);
        cursor.fill(Entry::page(frame, bits))?;
        Ok(())
    }
}
