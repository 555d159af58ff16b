//! A page that a swap entry refers to, and the entry that maps it again.

use memwright_table::{
    Bits, Cursor, FrameKind, FrameRef, Machine, PageSize, Present, Slots, Swapped,
};

use crate::fault::attempt::Fault;
use crate::swap::cache::Cached;
use crate::swap::device::DeviceError;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;
use crate::types::policy::SwapInReuse;
use crate::types::stats::Row;
use crate::vma::writable::access_bits;

/// The bits that the new entry takes over from the swap entry, whatever the access.
const RESTORED: Bits = Bits::SOFT_DIRTY
    .union(Bits::UFFD_WP)
    .union(Bits::WATCHED)
    .union(Bits::IDLE);

/// A page that was swapped in and is not mapped yet.
pub(super) struct Back<'a, M: Machine> {
    pub(super) frame: FrameRef<'a, M>,
    /// Whether the new entry will hold the only reference to the frame.
    pub(super) exclusive: bool,
    pub(super) kind: FaultKind,
}

impl<'a, M: Machine> Fault<'a, M> {
    /// Maps a swapped-in page in the entry under the cursor.
    #[cfg_attr(feature = "inline", inline(always))]
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

    /// Maps a swapped-in page in the entry under the cursor, as not accessed.
    pub(super) fn show_unasked(
        self,
        cursor: &mut Cursor<'_, M>,
        swapped: Swapped,
        back: Back<'_, M>,
    ) -> FaultKind {
        let kind = back.kind;
        let bits = self.bits_of(swapped.bits, back.exclusive, false) - Bits::ACCESSED;
        cursor.swap_in(Present {
            frame: back.frame.into_raw(),
            size: PageSize::Size4K,
            bits,
        });
        self.core.note_filled(self.cpu, 1);
        self.core.note_swapped(-1);
        kind
    }

    /// Returns the bits of an entry that maps a page after its swap-in. `carried` has the bits of the swap entry: its
    /// tracking bits can deny write permission. `stores` states whether the fault is a store.
    pub(super) fn bits_of(self, carried: Bits, exclusive: bool, stores: bool) -> Bits {
        let mut state = Bits::ACCESSED | (carried & RESTORED);
        if exclusive {
            state |= Bits::EXCLUSIVE;
        }
        if stores {
            state |= Bits::DIRTY | Bits::SOFT_DIRTY;
        }
        let memory = &*self.core.memory;
        if !stores && memory.policy().swapin_reuse() != SwapInReuse::On {
            return self.unless_armed(access_bits(self.area.rights()) | state);
        }
        let bits = self.area.entry_bits(state);
        if !bits.contains(Bits::WRITE) {
            return self.unless_armed(bits);
        }
        if !stores {
            memory.count_on(self.cpu, Row::SwapReused, 1);
        }
        bits
    }

    /// If the page is read-write-protected, removes all rights and the accessed bit from `bits`, which must not contain
    /// `WRITE`. The access then faults again on the present page (Linux 7.3 `mm/memory.c`, `do_swap_page`).
    fn unless_armed(self, bits: Bits) -> Bits {
        if bits.contains(Bits::UFFD_WP) && self.area.watches_accesses() {
            bits - (Bits::PROTECTION | Bits::ACCESSED)
        } else {
            bits
        }
    }

    /// Completes the swap-in of a page that was read, like [`take_over`](Self::take_over), and maps the page at the
    /// cursor.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn map_read(
        self,
        cursor: &mut Cursor<'_, M>,
        swapped: Swapped,
        read: (FrameRef<'a, M>, Result<(), DeviceError>),
        uses: u32,
        stores: bool,
    ) -> Result<FaultKind, FaultError> {
        let back = self.take_over(swapped, read, uses, stores)?;
        let kind = back.kind;
        self.show(cursor, swapped, back, stores);
        Ok(kind)
    }

    /// Completes [`bring`](Self::bring) after the read of the device. `uses` is the number of entries that referred to
    /// the slot when the read began.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn take_over(
        self,
        swapped: Swapped,
        (frame, read): (FrameRef<'a, M>, Result<(), DeviceError>),
        uses: u32,
        stores: bool,
    ) -> Result<Back<'a, M>, FaultError> {
        let memory = &*self.core.memory;
        let (frames, swap) = (memory.frames(), memory.swap());
        // After a failed read the entry remains a swap entry: only this access fails.
        if read.is_err() {
            memory.count_on(self.cpu, Row::SwapFailed, 1);
            return Err(FaultError::Io);
        }
        memory.count_on(self.cpu, Row::SwapIn, 1);
        let mut sole = swapped.bits.contains(Bits::EXCLUSIVE) || uses == 1;
        if stores {
            // The frame becomes a private copy, so only this entry stops referring to the slot. Other entries that
            // refer to the slot still find the page in swap.
            swap.release(frames, &[swapped.slot]);
        } else if sole {
            swap.keep(frames, swapped.slot, frame.frame());
        } else {
            match swap.cache(frames, swapped.slot, frame.frame())? {
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

    /// Completes [`bring`](Self::bring) for a page in the swap cache: another owner has already swapped it in, to
    /// `frame`.
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
            swap.release(frames, &[swapped.slot]);
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
        swap.release(frames, &[swapped.slot]);
        Ok(Back {
            frame: copy,
            exclusive: true,
            kind,
        })
    }
}
