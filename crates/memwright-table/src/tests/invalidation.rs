//! Tests that an operation invalidates exactly the pages that need it, each leaf entry once.

use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use super::machine::{TestMachine, frames_with};
use crate::gather::PAGES_AT_A_TIME;
use crate::{
    Bits, CpuId, CpuSet, Edit, Entry, FlushPolicy, FrameKind, Frames, GatherCounts, Invalidation,
    Page, PageRange, PageSize, Present, Table,
};

const START: u64 = 512 * 512;
const UNTOUCHED: Bits = Bits::READ.union(Bits::WRITE);
const TOUCHED: Bits = UNTOUCHED.union(Bits::ACCESSED);
const BOTH: [CpuSet; 2] = [CpuSet::from_bits(1), CpuSet::from_bits(2)];
const TO_READ_ONLY: Edit = Edit {
    set: Bits::empty(),
    clear: Bits::WRITE,
};
const TO_WRITABLE: Edit = Edit {
    set: Bits::WRITE,
    clear: Bits::empty(),
};

struct Setup {
    frames: Arc<Frames<TestMachine>>,
    table: Table<TestMachine>,
}

impl Setup {
    /// Creates a table that two CPUs have loaded.
    fn new() -> Self {
        let frames = frames_with(4096, 2);
        let table = Table::new(Arc::clone(&frames)).unwrap();
        table.note_loaded(CpuId::new(0));
        table.note_loaded(CpuId::new(1));
        Self { frames, table }
    }

    fn map(&self, page: u64, size: PageSize, bits: Bits) {
        let frame = self.frames.allocate(size.order(), FrameKind::Anonymous);
        let entry = Entry::Present(Present {
            frame: frame.unwrap().into_raw(),
            size,
            bits,
        });
        let range = PageRange::new(Page::new(page), Page::new(page + size.pages()));
        self.table.cursor(range).fill(entry).unwrap();
    }

    /// Write-protects the mapped pages of a range. Returns the invalidations, which are the same on both CPUs.
    fn shrink(&self, pages: u64) -> (Vec<Invalidation>, GatherCounts) {
        let ([local, remote], counts) = self.edit(FlushPolicy::default(), pages, TO_READ_ONLY);
        assert_eq!(local, remote);
        (local, counts)
    }

    /// Edits the mapped pages of a range. Returns the invalidations of this CPU and those of the other CPU.
    fn edit(
        &self,
        policy: FlushPolicy,
        pages: u64,
        edit: Edit,
    ) -> ([Vec<Invalidation>; 2], GatherCounts) {
        let range = PageRange::new(Page::new(START), Page::new(START + pages));
        let mut gather = self.table.gather_by(policy);
        let mut cursor = self.table.cursor(range);
        cursor.edit_regaining(range.end, |_| edit, &mut gather);
        drop(cursor);
        let counts = gather.finish();
        let sent = self.frames.machine().take_sent();
        let of = |cpus| sent.iter().filter(move |sent| sent.0 == cpus);
        (
            BOTH.map(|cpus| of(cpus).map(|sent| sent.1).collect()),
            counts,
        )
    }

    fn bits(&self, page: u64) -> Bits {
        let cursor = self.table.cursor(PageRange::single(Page::new(page)));
        cursor.peek().present().expect("a page").bits
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.table.note_unloaded(CpuId::new(0));
        self.table.note_unloaded(CpuId::new(1));
    }
}

fn pages(first: u64, count: u32, stride: PageSize) -> Invalidation {
    Invalidation::Pages {
        first: Page::new(first),
        count,
        stride,
    }
}

#[test]
fn of_512_pages_the_one_that_was_used_is_invalidated() {
    let setup = Setup::new();
    for page in 0..512 {
        let bits = if page == 300 { TOUCHED } else { UNTOUCHED };
        setup.map(START + page, PageSize::Size4K, bits);
    }
    let (sent, counts) = setup.shrink(512);
    assert_eq!(sent, [pages(START + 300, 1, PageSize::Size4K)]);
    assert_eq!(
        (counts.local, counts.interrupted, counts.elided_not_accessed),
        (1, 1, 0)
    );
}

#[test]
fn scattered_pages_go_one_by_one_until_they_are_too_many() {
    for used in [1, 2, PAGES_AT_A_TIME, PAGES_AT_A_TIME + 1] {
        let setup = Setup::new();
        for index in 0..used {
            setup.map(START + 2 * index, PageSize::Size4K, TOUCHED);
            setup.map(START + 2 * index + 1, PageSize::Size4K, UNTOUCHED);
        }
        let (sent, counts) = setup.shrink(512);
        if used <= PAGES_AT_A_TIME {
            let one = |index| pages(START + 2 * index, 1, PageSize::Size4K);
            assert_eq!(sent, (0..used).map(one).collect::<Vec<_>>());
        } else {
            assert_eq!(sent, [Invalidation::All]);
        }
        assert_eq!((counts.local, counts.remote, counts.interrupted), (1, 1, 1));
    }
}

#[test]
fn a_huge_page_is_invalidated_once_beside_small_ones() {
    let setup = Setup::new();
    setup.map(START, PageSize::Size4K, TOUCHED);
    setup.map(START + 1, PageSize::Size4K, TOUCHED);
    setup.map(START + 512, PageSize::Size2M, TOUCHED);
    setup.map(START + 1024, PageSize::Size2M, TOUCHED);
    setup.map(START + 1536, PageSize::Size4K, TOUCHED);
    let (sent, counts) = setup.shrink(2048);
    let expected = [
        pages(START, 2, PageSize::Size4K),
        pages(START + 512, 2, PageSize::Size2M),
        pages(START + 1536, 1, PageSize::Size4K),
    ];
    assert_eq!(sent, expected);
    assert_eq!((counts.local, counts.interrupted), (1, 1));
    let extent = setup
        .table
        .cursor(PageRange::new(
            Page::new(START + 512),
            Page::new(START + 1024),
        ))
        .entry();
    assert_eq!(extent.size, PageSize::Size2M, "not split");
}

#[test]
fn a_page_nobody_touched_since_the_last_time_interrupts_nobody() {
    let setup = Setup::new();
    setup.map(START, PageSize::Size4K, TOUCHED);
    setup.map(START + 1, PageSize::Size4K, TOUCHED);
    assert_eq!(setup.shrink(2).1.interrupted, 1);
    let folded = Bits::READ | Bits::FOLDED_ACCESSED;
    assert_eq!(setup.bits(START) & !Bits::EXCLUSIVE, folded);
    for _ in 0..2 {
        let (sent, counts) = setup.edit(FlushPolicy::default(), 2, TO_WRITABLE);
        assert_eq!((sent, counts.interrupted), ([vec![], vec![]], 0));
        let (sent, counts) = setup.shrink(2);
        assert_eq!((sent, counts.elided_not_accessed), (vec![], 2));
    }
    // Set the accessed bit of one of the two pages: the next removal of rights flushes only that page.
    let (page, used) = (Page::new(START + 1), Bits::ACCESSED);
    setup.table.cursor(PageRange::single(page)).grant(used);
    let (sent, _) = setup.edit(FlushPolicy::default(), 2, TO_WRITABLE);
    assert_eq!(sent[1], []);
    assert_eq!(setup.shrink(2).0, [pages(START + 1, 1, PageSize::Size4K)]);
}

#[test]
fn each_policy_flushes_what_it_says() {
    use FlushPolicy::{Elide, ElideGrow, Gather, Immediate};
    let one = |page| pages(START + page, 1, PageSize::Size4K);
    let (first, last) = (one(0), one(2));
    let each = vec![first, one(1), last];
    let all = vec![pages(START, 3, PageSize::Size4K)];
    let used = vec![first, last];
    let nothing = Vec::new;
    // For each policy, the invalidations sent to another CPU when the right to write of three pages is removed, and
    // when it is added. The middle page was not accessed.
    let rows = [
        (Immediate, each.clone(), each, 3),
        (Gather, all.clone(), all, 1),
        (Elide, used.clone(), used.clone(), 1),
        (ElideGrow, used, nothing(), 0),
    ];
    for (policy, shrunk, grown, interrupts) in rows {
        for (edit, old, expected) in [
            (TO_READ_ONLY, Bits::WRITE, shrunk),
            (TO_WRITABLE, Bits::empty(), grown),
        ] {
            let setup = Setup::new();
            for (page, used) in [Bits::ACCESSED, Bits::empty(), Bits::ACCESSED]
                .into_iter()
                .enumerate()
            {
                let bits = Bits::READ | Bits::EXCLUSIVE | old | used;
                setup.map(START + page as u64, PageSize::Size4K, bits);
            }
            let (sent, counts) = setup.edit(policy, 3, edit);
            assert_eq!(sent[1], expected, "{policy:?} {edit:?}");
            if edit == TO_WRITABLE {
                assert_eq!(counts.interrupted, interrupts, "{policy:?}");
            }
        }
    }
}

#[test]
fn the_only_reference_of_a_page_makes_it_exclusive_again() {
    let setup = Setup::new();
    let shared = Bits::READ | Bits::ACCESSED;
    for page in 0..3 {
        setup.map(START + page, PageSize::Size4K, shared);
    }
    let second = PageRange::single(Page::new(START + 1));
    let frame = setup.table.cursor(second).peek().counted_frame().unwrap();
    let other_owner = setup.frames.share(frame);
    let keep = Edit::NONE;
    setup.edit(FlushPolicy::default(), 3, keep);
    let exclusive = |page| setup.bits(START + page).contains(Bits::EXCLUSIVE);
    assert_eq!([0, 1, 2].map(exclusive), [true, false, true]);
    drop(other_owner);
    setup.edit(FlushPolicy::default(), 2, keep);
    assert!(exclusive(1));
}
