//! `/proc/kpageflags` and `/proc/kpagecount`: one word for each frame of the machine.

use crate::procfs::node::FrameWord;
use alloc::sync::Arc;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_vfs::fs::{
    abilities::Polling,
    caller::Caller,
    open_file::{File, OpenFile},
    transfer::Sink,
};
use memwright_table::{Frame, FrameKind};

/// Size of a word in bytes.
const WORD: usize = 8;
/// Number of words that are computed at a time.
const CHUNK: usize = 64;

/// Bits of `linux/kernel-page-flags.h`.
mod flag {
    pub const UP_TO_DATE: u64 = 1 << 3;
    pub const IN_A_LIST: u64 = 1 << 5;
    pub const SLAB: u64 = 1 << 7;
    pub const FREE: u64 = 1 << 10;
    pub const MAPPED: u64 = 1 << 11;
    pub const ANONYMOUS: u64 = 1 << 12;
    pub const SWAP_BACKED: u64 = 1 << 14;
    pub const COMPOUND_HEAD: u64 = 1 << 15;
    pub const COMPOUND_TAIL: u64 = 1 << 16;
    pub const HUGETLB: u64 = 1 << 17;
    pub const NO_MEMORY: u64 = 1 << 20;
    pub const MERGED: u64 = 1 << 21;
    pub const HUGE_PAGE: u64 = 1 << 22;
    pub const ZERO: u64 = 1 << 24;
    pub const TABLE: u64 = 1 << 26;
    pub const RESERVED: u64 = 1 << 32;
}

/// Returns the flags of a frame (`stable_page_flags` in `fs/proc/page.c` of Linux 7.2). `kind` is `None` for a frame
/// number for which there is no memory.
fn flags(kind: Option<FrameKind>, mapped: bool) -> u64 {
    let shown = if mapped { flag::MAPPED } else { 0 };
    match kind {
        None | Some(FrameKind::Hole) => flag::NO_MEMORY,
        Some(FrameKind::Free) => flag::FREE,
        Some(FrameKind::Reserved) => flag::RESERVED,
        Some(FrameKind::Kernel) => 0,
        Some(FrameKind::Table) => flag::TABLE,
        Some(FrameKind::Anonymous) => {
            shown | flag::UP_TO_DATE | flag::IN_A_LIST | flag::ANONYMOUS | flag::SWAP_BACKED
        }
        Some(FrameKind::Merged) => {
            shown | flag::UP_TO_DATE | flag::IN_A_LIST | flag::ANONYMOUS | flag::MERGED
        }
        Some(FrameKind::Object) => shown | flag::UP_TO_DATE | flag::IN_A_LIST,
        Some(FrameKind::Zero) => flag::ZERO,
        Some(FrameKind::Slab) => flag::SLAB,
        Some(FrameKind::Pool) => flag::HUGETLB,
        Some(FrameKind::PoolAnonymous) => {
            shown | flag::HUGETLB | flag::UP_TO_DATE | flag::ANONYMOUS
        }
        Some(FrameKind::PoolObject) => shown | flag::HUGETLB | flag::UP_TO_DATE,
    }
}

/// Returns the additional flags of a frame in a folio of order `order`; none for order 0. These flags do not depend on
/// whether a page-table entry maps the folio.
const fn folio_flags(number: u32, order: u8, pooled: bool) -> u64 {
    if order == 0 {
        return 0;
    }
    let first = number & ((1 << order) - 1) == 0;
    let place = if first {
        flag::COMPOUND_HEAD
    } else {
        flag::COMPOUND_TAIL
    };
    place | if pooled { 0 } else { flag::HUGE_PAGE }
}

/// Returns the word for the frame `number`, which is in a folio of order `order`.
fn word(memory: &Memory, number: u32, order: u8, what: FrameWord) -> u64 {
    let frames = memory.frames();
    let kind = frames.kind_at(number);
    let sharers = match kind {
        Some(
            FrameKind::Anonymous
            | FrameKind::Object
            | FrameKind::PoolAnonymous
            | FrameKind::PoolObject
            | FrameKind::Merged,
        ) => frames.sharers(Frame::new(number)),
        Some(_) | None => 0,
    };
    match what {
        FrameWord::Count => u64::from(sharers),
        FrameWord::Flags => {
            let pooled = kind.is_some_and(FrameKind::is_pool);
            flags(kind, sharers > 0) | folio_flags(number, order, pooled)
        }
    }
}

/// An open `/proc/kpageflags` or `/proc/kpagecount`.
pub struct FrameFile {
    /// What each word of the file contains.
    pub word: FrameWord,
    /// The memory whose frames the file describes.
    pub memory: Arc<Memory>,
}

impl File for FrameFile {
    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn read(
        &self,
        _caller: &dyn Caller,
        _open: &OpenFile,
        position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        if !(*position).is_multiple_of(WORD as u64) || !sink.left().is_multiple_of(WORD) {
            return Err(Errno::EINVAL);
        }
        let memory = &self.memory;
        if self.word == FrameWord::Count {
            memory.own_all_tables().map_err(|_| Errno::ENOMEM)?;
        }
        let mut done = 0;
        while sink.left() > 0 {
            let first = *position / WORD as u64;
            let rest = u64::from(memory.frames().end()).saturating_sub(first);
            let count = (sink.left() / WORD).min(CHUNK).min(rest as usize);
            if count == 0 {
                break;
            }
            let mut bytes = [0; CHUNK * WORD];
            let mut orders = [0; CHUNK];
            if self.word == FrameWord::Flags {
                memory
                    .frames()
                    .folio_orders(first as u32, &mut orders[..count]);
            }
            let places = bytes.chunks_exact_mut(WORD).take(count);
            for ((number, order), place) in (first as u32..).zip(orders).zip(places) {
                place.copy_from_slice(&word(memory, number, order, self.word).to_le_bytes());
            }
            let put = sink.put(&bytes[..count * WORD])?;
            done += put;
            *position += put as u64;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_flag() {
        for (kind, mapped, expected) in [
            (None, false, 1 << 20),
            (Some(FrameKind::Free), false, 1 << 10),
            (Some(FrameKind::Table), false, 1 << 26),
            (Some(FrameKind::Zero), false, 1 << 24),
            (Some(FrameKind::Anonymous), true, 0x5828),
            (Some(FrameKind::Object), false, 0x28),
            (Some(FrameKind::PoolAnonymous), true, 0x2_1808),
        ] {
            assert_eq!(flags(kind, mapped), expected, "{kind:?}");
        }
    }

    #[test]
    fn who_is_the_first_of_a_folio() {
        let (head, tail, huge) = (1 << 15, 1 << 16, 1 << 22);
        for (number, order, pooled, expected) in [
            (0, 0, false, 0),
            (513, 0, false, 0),
            (512, 9, false, head | huge),
            (513, 9, false, tail | huge),
            (1023, 9, false, tail | huge),
            (516, 2, false, head | huge),
            (519, 2, false, tail | huge),
            (514, 1, false, head | huge),
            (512, 9, true, head),
            (700, 9, true, tail),
        ] {
            assert_eq!(
                folio_flags(number, order, pooled),
                expected,
                "{number} {order}"
            );
        }
    }
}
