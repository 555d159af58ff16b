//! Tests of the cursor against a model, which is a map from pages to entries. The pages are in windows that cross the
//! boundaries of tables at every level.

use crate::MoveRule;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::vec::Vec;

use proptest::prelude::*;

use super::machine::{TestMachine, frames};
use crate::{
    Bits, Edit, Entry, Extent, FrameKind, Frames, Marker, Marks, Page, PageRange, PageSize,
    Present, Table,
};

/// A rule by which moved entries keep userfaultfd's write protection.
const KEEPING: MoveRule = MoveRule {
    keep_uffd_wp: true,
    ..MoveRule::PLAIN
};

/// The number of pages of a window.
const WINDOW: u64 = 1600;
/// The windows cross a 1 GiB and a 512 GiB boundary.
const WINDOWS: [u64; 2] = [(1 << 18) - 800, (1 << 27) - 800];

#[derive(Clone, Debug)]
enum Action {
    Fill {
        page: u64,
    },
    FillHuge {
        page: u64,
    },
    Edit {
        start: u64,
        length: u64,
        set: Bits,
        clear: Bits,
    },
    Replace {
        page: u64,
    },
    Remove {
        start: u64,
        length: u64,
        free_tables: bool,
    },
    Mark {
        start: u64,
        length: u64,
        marks: Marks,
    },
    Unmark {
        start: u64,
        length: u64,
        marks: Marks,
    },
    Move {
        start: u64,
        length: u64,
        to: u64,
    },
}

fn bits() -> impl Strategy<Value = Bits> {
    any::<u8>().prop_map(|seed| {
        [
            Bits::READ,
            Bits::WRITE,
            Bits::EXECUTE,
            Bits::ACCESSED,
            Bits::DIRTY,
            Bits::UFFD_WP,
        ]
        .into_iter()
        .enumerate()
        .filter(|(index, _)| seed & (1 << index) != 0)
        .fold(Bits::empty(), |bits, (_, bit)| bits | bit)
    })
}

fn span() -> impl Strategy<Value = (u64, u64)> {
    (0..WINDOW, prop_oneof![1u64..8, 1u64..WINDOW])
        .prop_map(|(start, length)| (start, length.min(WINDOW - start)))
}

fn marks() -> impl Strategy<Value = Marks> {
    (1u8..8).prop_map(Marks::from_bits_truncate)
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..WINDOW).prop_map(|page| Action::Fill { page }),
        1 => (0..WINDOW).prop_map(|page| Action::FillHuge { page }),
        3 => (span(), bits(), bits()).prop_map(|((start, length), set, clear)| Action::Edit {
            start, length, set, clear
        }),
        2 => (0..WINDOW).prop_map(|page| Action::Replace { page }),
        2 => (span(), any::<bool>()).prop_map(|((start, length), free_tables)| Action::Remove {
            start, length, free_tables
        }),
        2 => (span(), marks()).prop_map(|((start, length), marks)| Action::Mark {
            start, length, marks
        }),
        1 => (span(), marks()).prop_map(|((start, length), marks)| Action::Unmark {
            start, length, marks
        }),
        1 => (span(), 0..WINDOW).prop_map(|((start, length), to)| Action::Move {
            start, length, to
        }),
    ]
}

struct World {
    frames: Arc<Frames<TestMachine>>,
    table: Table<TestMachine>,
    model: BTreeMap<u64, Entry>,
    base: u64,
}

const NEW: Bits = Bits::READ.union(Bits::WRITE);

impl World {
    fn range(&self, start: u64, length: u64) -> PageRange {
        PageRange::new(
            Page::new(self.base + start),
            Page::new(self.base + start + length),
        )
    }

    fn at(&self, page: u64) -> Entry {
        self.model.get(&page).copied().unwrap_or(Entry::Empty)
    }

    fn put(&mut self, page: u64, entry: Entry) {
        if entry == Entry::Empty {
            self.model.remove(&page);
        } else {
            self.model.insert(page, entry);
        }
    }

    fn fill(&mut self, page: u64) {
        if self.at(page).present().is_some() {
            return;
        }
        let Ok(block) = self.frames.allocate(0, FrameKind::Anonymous) else {
            return;
        };
        let entry = Entry::page(block.into_raw(), NEW);
        self.table.cursor(self.range(page, 1)).fill(entry).unwrap();
        self.put(page, entry);
    }

    fn fill_huge(&mut self, page: u64) {
        let start = (self.base + page) / 512 * 512;
        if start < self.base || start + 512 > self.base + WINDOW {
            return;
        }
        let start = start - self.base;
        // A huge page is not filled in where a lower table is linked: the two conflict even if the table is empty.
        let range = self.range(start, 512);
        if self.table.cursor(range).entry().size != PageSize::Size2M
            || (start..start + 512).any(|page| self.at(page).present().is_some())
        {
            return;
        }
        let Ok(block) = self.frames.allocate(9, FrameKind::Anonymous) else {
            return;
        };
        let frame = block.into_raw();
        let huge = Present {
            frame,
            size: PageSize::Size2M,
            bits: NEW,
        };
        self.table.cursor(range).fill(Entry::Present(huge)).unwrap();
        for part in 0..512 {
            let frame = crate::Frame::new(frame.number() + part as u32);
            self.put(start + part, Entry::page(frame, NEW));
        }
    }

    fn edit(&mut self, start: u64, length: u64, set: Bits, clear: Bits) {
        let range = self.range(start, length);
        let mut gather = self.table.gather();
        let mut cursor = self.table.cursor(range);
        cursor.split_edges(&mut gather).unwrap();
        if length % 2 == 0 {
            cursor.edit_run(range.end, |_, _| Edit { set, clear }, &mut gather);
        } else {
            cursor.edit_alike(range.end, |_| Edit { set, clear }, &mut gather);
        }
        drop(cursor);
        gather.finish();
        for page in start..start + length {
            if let Entry::Present(old) = self.at(page) {
                let bits = old.bits.difference(clear) | set;
                self.put(page, Entry::page(old.frame, bits));
            }
        }
    }

    fn replace(&mut self, page: u64) {
        let range = self.range(page, 1);
        let mut gather = self.table.gather();
        let mut cursor = self.table.cursor(range);
        if cursor.entry().size != PageSize::Size4K {
            drop(cursor);
            gather.finish();
            return;
        }
        let Ok(block) = self.frames.allocate(0, FrameKind::Anonymous) else {
            drop(cursor);
            gather.finish();
            return;
        };
        let entry = Entry::page(block.into_raw(), NEW | Bits::DIRTY);
        let old = cursor.replace(entry, &mut gather);
        drop(cursor);
        gather.finish();
        assert_eq!(old, self.at(page));
        self.put(page, entry);
    }

    fn remove(&mut self, start: u64, length: u64, free_tables: bool) {
        let mut gather = self.table.gather();
        let mut cursor = self.table.cursor(self.range(start, length));
        cursor.split_edges(&mut gather).unwrap();
        cursor.remove_all(&mut gather);
        if free_tables {
            cursor.free_tables(&mut gather);
        } else {
            drop(cursor);
        }
        gather.finish();
        for page in start..start + length {
            self.put(page, Entry::Empty);
        }
    }

    fn mark(&mut self, start: u64, length: u64, more: Marks, set: bool) {
        let mut cursor = self.table.cursor(self.range(start, length));
        if set {
            let found = cursor.mark(more).unwrap();
            drop(cursor);
            let is_mapped = |page: &u64| self.at(*page).present().is_some();
            let mut mapped = (start..start + length).filter(is_mapped);
            if let Some(first) = mapped.next() {
                let last = mapped.last().unwrap_or(first);
                assert_eq!(found, self.range(first, last + 1 - first));
            } else {
                assert!(found.is_empty());
            }
        } else {
            let mut gather = self.table.gather();
            cursor.split_edges(&mut gather).unwrap();
            cursor.unmark(more);
            drop(cursor);
            gather.finish();
        }
        for page in start..start + length {
            let marks = match self.at(page) {
                Entry::Empty => Marks::empty(),
                Entry::Marker(Marker { marks }) => marks,
                Entry::Present(_) | Entry::Swapped(_) | Entry::Migrating(_) => continue,
            };
            let refused = marks.intersects(Marks::GUARD | Marks::POISON);
            let marks = if set && refused && more == Marks::UFFD_WP {
                marks
            } else if set {
                marks | more
            } else if !refused {
                marks.difference(more)
            } else if more.contains(marks & (Marks::GUARD | Marks::POISON)) {
                Marks::empty()
            } else {
                marks
            };
            self.put(page, Entry::marker(marks));
        }
    }

    fn move_pages(&mut self, start: u64, length: u64, to: u64) {
        let length = length.min(WINDOW - to);
        if start + length > to && to + length > start {
            return;
        }
        self.remove(to, length, false);
        let mut gather = self.table.gather();
        let target = Page::new(self.base + to);
        self.table
            .move_entries(self.range(start, length), target, KEEPING, &mut gather)
            .unwrap();
        gather.finish();
        for offset in 0..length {
            let entry = match self.at(start + offset) {
                Entry::Present(old) => Entry::page(old.frame, old.bits | Bits::SOFT_DIRTY),
                other => other,
            };
            self.put(start + offset, Entry::Empty);
            self.put(to + offset, entry);
        }
    }

    /// Compares every page with the model, for each way to iterate over the window, and compares the counts.
    fn check(&self) {
        let window = self.range(0, WINDOW);
        let mut seen = BTreeMap::new();
        let mut cursor = self.table.cursor(window);
        while let Some(extent) = cursor.next_filled() {
            self.see(&mut seen, extent);
            cursor.advance();
        }
        drop(cursor);
        assert_eq!(seen, self.model);

        let mut seen = BTreeMap::new();
        self.table.look(window).each_filled(|extent, _| {
            self.see(&mut seen, extent);
            true
        });
        assert_eq!(seen, self.model);
        self.check_runs(window, true);
        self.check_runs(window, false);

        let audit = self.frames.audit();
        assert_eq!(audit.of(FrameKind::Table), self.table.table_frames());
    }

    /// Adds an entry to `seen`, separately for each of its pages.
    fn see(&self, seen: &mut BTreeMap<u64, Entry>, extent: Extent) {
        for page in extent.range.iter() {
            let entry = match extent.entry {
                Entry::Present(Present { frame, size, bits }) => {
                    let inside = page.number() % size.pages();
                    Entry::page(crate::Frame::new(frame.number() + inside as u32), bits)
                }
                other => other,
            };
            seen.insert(page.number() - self.base, entry);
        }
    }

    /// Checks that runs follow one another without a gap, and that the entries of a run differ only in their frames.
    fn check_runs(&self, window: PageRange, singly: bool) {
        let kind = |entry| match entry {
            Entry::Present(Present { bits, .. }) => (true, bits, Entry::Empty),
            other => (false, Bits::empty(), other),
        };
        let mut next = window.start;
        let mut look = self.table.look(window);
        look.each_alike(singly, |run| {
            assert_eq!(run.range.start, next);
            next = run.range.end;
            for page in run.range.iter() {
                let known = self.at(page.number() - self.base);
                assert_eq!(kind(known), kind(run.entry()), "at {page:?}");
            }
            let one = !singly
                || run
                    .entry()
                    .present()
                    .is_none_or(|page| run.range.len() <= page.size.pages());
            assert!(one, "{run:?} are several pages");
            true
        });
        assert_eq!(next, window.end);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cursor_does_what_a_map_does(
        actions in proptest::collection::vec(action(), 1..40),
        window in 0..WINDOWS.len(),
    ) {
        let frames = frames(8192);
        let table = Table::new(Arc::clone(&frames)).unwrap();
        let mut world =
            World { frames, table, model: BTreeMap::new(), base: WINDOWS[window] };
        for action in &actions {
            match *action {
                Action::Fill { page } => world.fill(page),
                Action::FillHuge { page } => world.fill_huge(page),
                Action::Edit { start, length, set, clear } => world.edit(start, length, set, clear),
                Action::Replace { page } => world.replace(page),
                Action::Remove { start, length, free_tables } => {
                    world.remove(start, length, free_tables);
                }
                Action::Mark { start, length, marks } => world.mark(start, length, marks, true),
                Action::Unmark { start, length, marks } => world.mark(start, length, marks, false),
                Action::Move { start, length, to } => world.move_pages(start, length, to),
            }
            world.check();
        }
        world.remove(0, WINDOW, true);
        prop_assert_eq!(world.table.table_frames(), 1);
        let left: Vec<_> = [FrameKind::Anonymous, FrameKind::Object]
            .iter().map(|kind| world.frames.used_by(*kind)).collect();
        prop_assert_eq!(left, [0, 0]);
    }
}
