//! Checks the reference counts of frames and swap slots.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;

use memwright_table::{
    Architecture, Bits, Entry, Frame, FrameKind, FrameRange, PageRange, Present,
};

use super::Lockstep;
use crate::machine::TestMachine;

/// The anonymous frames and swap slots to which the page-table entries of all processes point.
#[derive(Default)]
struct Shown {
    /// For each anonymous frame: the number of entries that map it, and whether one of them maps it exclusively.
    frames: BTreeMap<u32, (u32, bool)>,
    /// For each slot: the number of swap entries.
    slots: BTreeMap<u64, u32>,
    /// For each shared page table: the number of address spaces that share it.
    tables: BTreeMap<u32, u32>,
}

impl Shown {
    fn add(&mut self, range: PageRange, Present { frame, bits, .. }: Present) {
        for number in frame.number()..frame.number() + range.len() as u32 {
            let seen = self.frames.entry(number).or_default();
            *seen = (seen.0 + 1, seen.1 || bits.contains(Bits::EXCLUSIVE));
        }
    }
}

impl Shown {
    /// Counts an address space that shares `table`. Returns whether it is not the first.
    fn share(&mut self, table: Frame) -> bool {
        let sharers = self.tables.entry(table.number()).or_default();
        *sharers += 1;
        *sharers > 1
    }
}

impl<M: TestMachine> Lockstep<M> {
    /// Checks that every anonymous or merged frame has one reference for each entry that maps it, plus the references
    /// of the index of merged pages and of the swap cache. Checks that an exclusive frame is mapped once. Every slot in
    /// use must have a swap entry, be named by an object, or hold a copy of a frame.
    pub(super) fn check_frames(&self) -> Result<(), String> {
        let frames = self.host.frames();
        let (mut shown, tables) = self.show_entries()?;
        let mut slots: BTreeSet<u64> = shown.slots.keys().copied().collect();
        let all = FrameRange {
            start: Frame::new(0),
            count: frames.end(),
        };
        let first = frames.first_managed(all);
        let first = first.map_or(frames.end(), Frame::number);
        for number in first..frames.end() {
            let frame = Frame::new(number);
            let indexed = match frames.kind_at(number) {
                Some(FrameKind::Anonymous) => false,
                Some(FrameKind::Merged) => true,
                _ => continue,
            };
            let (count, exclusive) = shown.frames.remove(&number).unwrap_or_default();
            let has_none = indexed || frames.is_in_folio(frame);
            let slot = if has_none {
                None
            } else {
                frames.slot_of(frame)
            };
            slots.extend(slot);
            // The index of merged pages also references a merged frame; the swap cache references a frame whose slot
            // has swap entries.
            let by_slot = slot.is_some_and(|slot| shown.slots.contains_key(&slot));
            let expected = count + u32::from(indexed) + u32::from(by_slot);
            let references = frames.references(frame);
            if references != expected {
                return Err(format!(
                    "{frame:?}: {count} entries, {references} references, not {expected}"
                ));
            }
            if exclusive && (count > 1 || indexed || by_slot) {
                return Err(format!("{frame:?} is exclusive in one of {count} entries"));
            }
        }
        if let Some(number) = shown.frames.keys().next() {
            return Err(format!("frame {number:#x} is shown and nobody's"));
        }
        let swap = self.host.memory().swap();
        let (used, needed) = (
            swap.totals().1,
            slots.len() as u64 + swap.slots_of_objects(),
        );
        if used != needed {
            return Err(format!("{used} slots in use, {needed} of them needed"));
        }
        if !frames.are_mapped_objects_counted() {
            return Err("the counters of mapped frames of objects are wrong".to_owned());
        }
        self.check_tables(&shown, tables)
    }

    /// Returns the frames, slots and shared tables to which the entries of all processes point, and the sum of the
    /// address spaces' counts of page tables.
    fn show_entries(&self) -> Result<(Shown, u64), String> {
        let frames = self.host.frames();
        let mut shown = Shown::default();
        let mut tables = self.host.idle_table_frames();
        for process in self.processes.values() {
            let table = process.space().table();
            tables += table.table_frames();
            let mut cursor = table.look(M::Arch::USER);
            // The shared table of the previous entry, and whether its entries were already counted in another address
            // space.
            let mut last = None;
            while let Some(extent) = cursor.next_filled() {
                let shared = table.shared_table(extent.range.start);
                if last.map(|(table, _)| table) != shared {
                    last = shared.map(|table| (table, shown.share(table)));
                }
                match extent.entry {
                    // Each entry of a shared table holds one reference, whatever the number of address spaces, and is
                    // already counted.
                    _ if last.is_some_and(|(_, again)| again) => {}
                    Entry::Present(page) => match frames.kind(page.frame) {
                        FrameKind::Anonymous | FrameKind::Merged => shown.add(extent.range, page),
                        _ => {}
                    },
                    Entry::Swapped(page) => *shown.slots.entry(page.slot).or_default() += 1,
                    Entry::Migrating(_) => {
                        return Err(format!("{:?} is still on its way", extent.range));
                    }
                    Entry::Empty | Entry::Marker(_) => {}
                }
                if !cursor.advance() {
                    break;
                }
            }
        }
        Ok((shown, tables))
    }

    /// Checks `tables`, the sum of the address spaces' counts of page tables, and the number of address spaces that
    /// share each shared table.
    fn check_tables(&self, shown: &Shown, mut tables: u64) -> Result<(), String> {
        let frames = self.host.frames();
        for (table, sharers) in &shown.tables {
            let references = frames.references(Frame::new(*table));
            if references != *sharers {
                return Err(format!(
                    "page table {table:#x} is shared by {sharers}, and has {references} references"
                ));
            }
            // Each address space counts the table as its own.
            tables -= u64::from(sharers - 1);
        }
        let extra: u32 = shown.tables.values().map(|sharers| sharers - 1).sum();
        if frames.earmarked() != extra.into() {
            return Err(format!(
                "{} frames are earmarked, not {extra}",
                frames.earmarked()
            ));
        }
        let found = frames.audit().of(FrameKind::Table);
        if found != tables {
            return Err(format!("{found} table frames, {tables} of them in use"));
        }
        Ok(())
    }
}
