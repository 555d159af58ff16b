//! A fault on a swap entry: swap-in (Linux 7.2 `mm/memory.c`, `do_swap_page`).

use memwright_table::{
    Bits, Cursor, FrameKind, FrameRef, Machine, PageSize, Present, Slots, Swapped,
};

use super::{Fault, FaultKind};
use crate::error::FaultError;
use crate::policy::SwapInReuse;
use crate::space::access_bits;
use crate::stats::Row;
use crate::swap::{Cached, DeviceError, Window};
use crate::writable::writable;

/// The bits that the new entry takes over from the swap entry, whatever the access.
const RESTORED: Bits = Bits::SOFT_DIRTY.union(Bits::UFFD_WP).union(Bits::WATCHED);

/// A page that was swapped in and is not mapped yet.
pub(super) struct Back<'a, M: Machine> {
    pub(super) frame: FrameRef<'a, M>,
    /// It has no other users.
    pub(super) exclusive: bool,
    pub(super) kind: FaultKind,
}

impl<'a, M: Machine> Fault<'a, M> {
    /// Swaps in the page of the entry under the cursor, with readahead if the policy says so. Swap-in from disk is
    /// synchronous: the faulting CPU polls for completion.
    #[cold]
    #[inline(never)]
    pub(super) fn swap_in(
        self,
        mut cursor: Cursor<'a, M>,
        swapped: Swapped,
    ) -> Result<FaultKind, FaultError> {
        let protected = swapped.bits.contains(Bits::UFFD_WP);
        // A store to a write-protected page swaps it in as a load does; the store is then handled as for any present
        // page.
        let stores = self.access.write && !protected;
        let is_around = self.core.memory.policy().swapin_around() && (stores || !self.access.write);
        if is_around && !self.area.window.get().is_single_at(self.page) {
            return self.swap_in_around(cursor, swapped);
        }
        let back = self.bring(swapped, stores)?;
        let kind = back.kind;
        let page = self.show(&mut cursor, swapped, back, stores);
        if self.access.write && protected {
            self.resolve_present(cursor, page)?;
        } else if is_around && kind.is_major() {
            self.area.window.set(Window::after_read(self.page, 1, 1));
        }
        Ok(kind)
    }

    /// Maps the page that was swapped in at the cursor.
    #[inline(always)]
    pub(super) fn show(
        self,
        cursor: &mut Cursor<'_, M>,
        swapped: Swapped,
        back: Back<'a, M>,
        stores: bool,
    ) -> Present {
        let page = Present {
            frame: back.frame.frame(),
            size: PageSize::Size4K,
            bits: self.bits_of(swapped.bits, back.exclusive, stores),
        };
        cursor.swap_in(page);
        let _ = back.frame.into_raw();
        self.note_private();
        self.core.note_filled(self.cpu, 1);
        self.core.note_swapped(-1);
        page
    }

    /// Returns the bits of the entry of a page that was swapped in. The tracking bits of the swap entry are included
    /// when the rule decides on write permission.
    pub(super) fn bits_of(self, carried: Bits, exclusive: bool, stores: bool) -> Bits {
        let mut bits = access_bits(self.area.rights()) | Bits::ACCESSED | (carried & RESTORED);
        if exclusive {
            bits |= Bits::EXCLUSIVE;
        }
        if stores {
            bits |= Bits::DIRTY | Bits::SOFT_DIRTY;
        }
        let reuses = stores || self.core.memory.policy().swapin_reuse() == SwapInReuse::On;
        if reuses && writable(self.area.view(), bits).is_writable() {
            bits |= Bits::WRITE;
            if !stores {
                self.core.memory.count_on(self.cpu, Row::SwapReused, 1);
            }
        }
        bits
    }

    /// Brings the page of a swap entry into a frame, and ends the entry's use of the slot.
    pub(super) fn bring(self, swapped: Swapped, stores: bool) -> Result<Back<'a, M>, FaultError> {
        let memory = &*self.core.memory;
        let (frames, swap) = (memory.frames(), memory.swap());
        let found = swap.find(frames, swapped.slot);
        if let Some(frame) = found.frame {
            return self.bring_cached(swapped, frame, stores);
        }
        let frame = frames.allocate(0, FrameKind::Anonymous)?;
        let read = swap.read(frames, swapped.slot, frame.frame());
        self.take_over(swapped, (frame, read), found.uses, stores)
    }

    /// Completes `bring` after the read. `uses` is the number of entries that named the slot when the read began.
    #[inline(always)]
    pub(super) fn take_over(
        self,
        swapped: Swapped,
        (frame, read): (FrameRef<'a, M>, Result<(), DeviceError>),
        uses: u32,
        stores: bool,
    ) -> Result<Back<'a, M>, FaultError> {
        let memory = &*self.core.memory;
        let (frames, swap) = (memory.frames(), memory.swap());
        // Nothing visible to the program has changed: only this access fails.
        if read.is_err() {
            memory.count_on(self.cpu, Row::SwapFailed, 1);
            return Err(FaultError::Io);
        }
        memory.count_on(self.cpu, Row::SwapIn, 1);
        let mut sole = swapped.bits.contains(Bits::EXCLUSIVE) || uses == 1;
        if stores {
            // Other entries that name the slot still find the page there.
            swap.release(frames, swapped.slot);
        } else if sole {
            swap.keep(frames, swapped.slot, frame.frame());
        } else {
            match swap.cache(frames, swapped.slot, frame.frame()) {
                Cached::Here => {}
                Cached::Alone => sole = true,
                Cached::Elsewhere(first) => return self.bring_cached(swapped, first, stores),
            }
        }
        Ok(Back {
            frame,
            exclusive: sole || stores,
            kind: FaultKind::SwapIn,
        })
    }

    /// Completes `bring` for a page that another of its owners has already swapped in, to `frame`.
    pub(super) fn bring_cached(
        self,
        swapped: Swapped,
        frame: FrameRef<'a, M>,
        stores: bool,
    ) -> Result<Back<'a, M>, FaultError> {
        let memory = &*self.core.memory;
        let (frames, swap) = (memory.frames(), memory.swap());
        let sole = swapped.bits.contains(Bits::EXCLUSIVE) || swap.is_of_one(frames, swapped.slot);
        let kind = FaultKind::SwapCached;
        if sole || !stores {
            swap.release(frames, swapped.slot);
            if stores {
                swap.forget(frames, frame.frame());
            }
            return Ok(Back {
                frame,
                exclusive: sole,
                kind,
            });
        }
        let copy = frames.allocate(0, FrameKind::Anonymous)?;
        frames.copy(frame.frame(), copy.frame());
        memory.count_on(self.cpu, Row::FramesCopied, 1);
        swap.release(frames, swapped.slot);
        Ok(Back {
            frame: copy,
            exclusive: true,
            kind,
        })
    }
}
