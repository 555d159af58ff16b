//! A fault on a swap entry: swap-in (Linux 7.2 `mm/memory.c`, `do_swap_page`).

use memwright_table::{Bits, Cursor, FrameKind, Machine, Swapped};

use crate::fault::attempt::Fault;
use crate::fault::swapped_page::Back;
use crate::swap::device::Submission;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;
use crate::types::swap_window::Window;

impl<'a, M: Machine> Fault<'a, M> {
    /// Swaps in the page of the entry under the cursor, with readahead if the policy enables it.
    ///
    /// # Errors
    /// Those of a fault. `WouldBlock` also if the page is being read from the device. If this fault has begun the read,
    /// the caller releases the locks and [completes it](crate::mm::core::Core::finish_reads).
    #[cold]
    #[inline(never)]
    pub(super) fn swap_in(
        self,
        mut cursor: Cursor<'a, M>,
        swapped: Swapped,
    ) -> Result<FaultKind, FaultError> {
        let protected = swapped.bits.contains(Bits::UFFD_WP);
        // For a store to a write-protected page, the page is swapped in as for a load. The store is then handled as for
        // any present page.
        let stores = self.access.write && !protected;
        let is_around = self.core.memory.policy().swapin_around() && (stores || !self.access.write);
        if is_around && !self.area.window.is_single_at(self.page) {
            return self.swap_in_around(cursor, swapped);
        }
        let back = match self.bring(swapped, stores) {
            Ok(back) => back,
            Err(error) => {
                if is_around && error == FaultError::WouldBlock {
                    self.area.window.set(Window::after_read(self.page, 1, 1));
                }
                return Err(error);
            }
        };
        let kind = back.kind;
        let page = self.show(&mut cursor, swapped, back, stores);
        if self.access.write && protected {
            self.resolve_present(cursor, page)?;
        } else if is_around && kind.is_major() {
            self.area.window.set(Window::after_read(self.page, 1, 1));
        }
        Ok(kind)
    }

    /// Gets the page of a swap entry from the swap cache or from the device, and drops the entry's reference to the
    /// slot.
    pub(super) fn bring(self, swapped: Swapped, stores: bool) -> Result<Back<'a, M>, FaultError> {
        let memory = &*self.core.memory;
        let (frames, swap) = (memory.frames(), memory.swap());
        let found = swap.find(frames, swapped.slot, 0)?;
        if let Some(frame) = found.frame {
            return self.bring_cached(swapped, frame, stores);
        }
        let frame = frames.allocate(0, FrameKind::Anonymous)?;
        match swap.begin_read(frames, swapped.slot, frame.frame()) {
            Submission::Done(read) => self.take_over(swapped, (frame, read), found.uses, stores),
            Submission::Busy => Err(FaultError::WouldBlock),
            answer @ Submission::Pending(_) => Err(self.put_off(self.page, swapped, frame, answer)),
        }
    }
}
