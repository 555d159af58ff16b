//! The scan of ksmd: selects the next page to examine, and the page to merge it with (Linux 7.2 `mm/ksm.c`,
//! `cmp_and_merge_page`).

use core::sync::atomic::Ordering;
use memwright_table::sync::relax;
use memwright_table::{
    Architecture, Bits, Entry, Frame, FrameKind, FrameRef, Machine, NodeChoice, Page, PageRange,
    Present, Shared,
};

use crate::mm::core::Core;
use crate::mm::memory::Memory;
use crate::mm::merging::{Lone, MergedPlace, Round, Stable};
use crate::range::alike::Target;
use crate::types::chains::Chain;
use crate::types::digest_index::key_of;
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;

/// A page that the scan has examined.
#[derive(Clone, Copy)]
struct Seen {
    page: Page,
    frame: Frame,
    digest: u64,
    /// The key of the page in the indexes.
    key: u64,
    /// The node of the KSM frame for this page, or `None` if any node is suitable.
    node: Option<u8>,
    /// Whether the page had the same digest in the previous pass.
    settled: bool,
    zero: bool,
    /// Whether the page maps a KSM frame that it inherited at a fork.
    inherited: bool,
}

/// Where the scan stopped in an address space.
enum Next {
    /// At a page that may be merged.
    Page(Seen),
    /// The budget is used up; the scan continues at this page.
    Enough(Page),
    /// At the end of the address space.
    End,
}

impl<M: Machine> Memory<M> {
    /// Scans for equal pages and merges them, until `budget` pages were examined or the pass is complete. Returns
    /// whether the pass is complete.
    pub fn merge_pages(&self, budget: u64) -> bool {
        let merging = self.merging();
        let mut round = merging.round.lock();
        let mut left = budget;
        while left > 0 {
            let Some((number, space)) = merging.space_from(round.space) else {
                self.end_round(&mut round);
                return true;
            };
            if number != round.space {
                (round.space, round.page) = (number, Page::new(0));
            }
            match space.next_mergeable(round.page, &mut left) {
                Next::Page(seen) => {
                    round.page = seen.page.add(1);
                    self.place(number, &space, seen, &mut round);
                    // Answers CPUs that wait for an invalidation on this one, before the rest of the batch.
                    relax::<M::Threads>();
                }
                Next::Enough(page) => round.page = page,
                Next::End => (round.space, round.page) = (number + 1, Page::new(0)),
            }
        }
        false
    }

    fn end_round(&self, round: &mut Round) {
        let merging = self.merging();
        merging.known.lock().lone.forget();
        merging.volatile.store(round.volatile, Ordering::Relaxed);
        if round.space != 0 {
            merging.rounds.fetch_add(1, Ordering::Relaxed);
        }
        *round = Round {
            space: 0,
            page: Page::new(0),
            volatile: 0,
        };
    }

    /// Merges the page `seen` with an equal page, or records it in the index.
    fn place(&self, number: u64, space: &Shared<Core<M>>, seen: Seen, round: &mut Round) {
        let merging = self.merging();
        let place = MergedPlace {
            space: number,
            page: seen.page,
        };
        if seen.inherited {
            space.note_inherited(seen.page);
            let key = merging.key(self, seen.frame);
            merging.note_place(self, key, seen.frame, place);
            return;
        }
        if let Some(merged) = merging.merged_frame(self, seen.key) {
            let frame = merged.frame();
            if space.merge_page(seen.page, Target::Merged(frame)).is_ok() {
                merging.note_place(self, seen.key, frame, place);
            }
            return;
        }
        if !seen.settled {
            round.volatile += 1;
            return;
        }
        if seen.zero && merging.settings.zero_pages.load(Ordering::Relaxed) {
            let _ = space.merge_page(seen.page, Target::Zero);
            return;
        }
        let lone = merging.known.lock().lone.remove(seen.key, |_| true);
        let kept = match lone {
            Some(lone) if lone.frame == seen.frame => lone,
            Some(lone) if self.merge_pair(space, seen, (place, lone)).is_some() => return,
            Some(_) | None => Lone {
                space: number,
                page: seen.page,
                frame: seen.frame,
            },
        };
        let mut known = merging.known.lock();
        if known.lone.reserve().is_ok() {
            known.lone.insert(seen.key, kept);
        }
    }

    /// Merges the pages `seen` and `lone`, whose digests are equal, in a new KSM frame. Returns `None` if the page
    /// `lone` has changed, or there is no memory.
    fn merge_pair(
        &self,
        space: &Shared<Core<M>>,
        seen: Seen,
        (place, lone): (MergedPlace, Lone),
    ) -> Option<()> {
        let merging = self.merging();
        let (number, other) = merging.space_from(lone.space)?;
        if number != lone.space {
            return None;
        }
        // This reference keeps the frame allocated until the function returns. Otherwise `shed` could free it, if the
        // page `lone` is written before the page `seen` maps the frame.
        let merged = space.copy_for_merging(seen)?;
        let frame = merged.frame();
        {
            // Insert the frame before any entry maps it: another thread could use up room that was only reserved.
            let mut known = merging.known.lock();
            known.merged.reserve().ok()?;
            let stable = Stable {
                frame: merged.clone().into_raw(),
                places: Chain::EMPTY,
            };
            known.merged.insert(seen.key, stable);
        }
        if other.merge_page(lone.page, Target::Merged(frame)).is_err() {
            merging.forget(self, seen.key, frame);
            return None;
        }
        let first = MergedPlace {
            space: lone.space,
            page: lone.page,
        };
        merging.note_place(self, seen.key, frame, first);
        // If the page `seen` has changed meanwhile, only one entry maps the frame until the next equal page is found.
        if space.merge_page(seen.page, Target::Merged(frame)).is_ok() {
            merging.note_place(self, seen.key, frame, place);
        }
        Some(())
    }
}

impl<M: Machine> Core<M> {
    /// Scans from `from` on for a page that may be merged. Subtracts the number of pages examined from `budget`.
    fn next_mergeable(&self, from: Page, budget: &mut u64) -> Next {
        let areas = self.areas.read(self.cpu());
        let rest = PageRange::new(from.min(M::Arch::USER.end), M::Arch::USER.end);
        for area in areas.map.overlapping(rest) {
            if !area.flags().contains(AreaFlags::MERGEABLE) || !area.has_faulted() {
                continue;
            }
            let mut cursor = self.table.look(area.range().intersect(rest));
            while let Some(extent) = cursor.next_filled() {
                if let Entry::Present(entry) = extent.entry {
                    let mut page = extent.range.start;
                    while page < extent.range.end {
                        if *budget == 0 {
                            return Next::Enough(page);
                        }
                        *budget -= 1;
                        if let Some(seen) = self.see(entry, page) {
                            return Next::Page(seen);
                        }
                        page = page.add(1);
                    }
                }
                if !cursor.advance() {
                    break;
                }
            }
        }
        Next::End
    }

    /// Examines a page. Returns `None` if the page is already merged, or must not be merged.
    fn see(&self, entry: Present, page: Page) -> Option<Seen> {
        let frames = self.memory.frames();
        let frame = entry.frame_of(page);
        if entry.bits.intersects(Bits::BORROWED | Bits::MERGED) {
            return None;
        }
        let inherited = frames.kind(frame) == FrameKind::Merged;
        if !inherited && !self.may_merge(entry, page) {
            return None;
        }
        self.memory.count_on(self.cpu(), Row::MergeLooked, 1);
        let digest = if inherited { 0 } else { frames.digest(frame) };
        let settings = self.memory.merging().settings();
        let across = settings.across_nodes.load(Ordering::Relaxed);
        let node = (!across).then(|| frames.node_of(frame));
        Some(Seen {
            page,
            frame,
            digest,
            key: key_of(digest, node),
            node,
            settled: !inherited && frames.remember_digest(frame, digest),
            zero: frames.repeated_word(frame) == Some(0),
            inherited,
        })
    }

    /// Allocates a KSM frame with the contents of the page that was examined. Returns `None` if the page has changed
    /// since, or there is no memory.
    fn copy_for_merging(&self, seen: Seen) -> Option<FrameRef<'_, M>> {
        let frames = self.memory.frames();
        let copy = match seen.node {
            None => frames.allocate(0, FrameKind::Merged),
            Some(node) => {
                let choice = NodeChoice::only(node);
                frames.allocate_on(0, FrameKind::Merged, choice)
            }
        };
        let copy = copy.ok()?;
        let areas = self.areas.read(self.cpu());
        let cursor = self.table.look(PageRange::single(seen.page));
        let entry = cursor.peek().present()?;
        if entry.frame_of(seen.page) != seen.frame {
            return None;
        }
        frames.copy(seen.frame, copy.frame());
        drop(cursor);
        drop(areas);
        self.memory.count_on(self.cpu(), Row::FramesCopied, 1);
        (frames.digest(copy.frame()) == seen.digest).then_some(copy)
    }
}
