//! Which pages an operation invalidates: those that need it, each leaf once.

use std::sync::Arc;
use std::vec::Vec;

use super::machine::{TestMachine, frames_with};
use crate::gather::PAGES_AT_A_TIME;
use crate::{
    Bits, CpuId, CpuSet, Edit, Entry, FrameKind, Frames, GatherCounts, Invalidation, Page,
    PageRange, PageSize, Present, Table,
};

const START: u64 = 512 * 512;
const UNTOUCHED: Bits = Bits::READ.union(Bits::WRITE);
const TOUCHED: Bits = UNTOUCHED.union(Bits::ACCESSED);
const BOTH: [CpuSet; 2] = [CpuSet::from_bits(1), CpuSet::from_bits(2)];
const TO_READ_ONLY: Edit = Edit {
    set: Bits::empty(),
    clear: Bits::WRITE,
};

struct Setup {
    frames: Arc<Frames<TestMachine>>,
    table: Table<TestMachine>,
}

impl Setup {
    /// Two CPUs that have the table loaded.
    fn new() -> Self {
        let frames = frames_with(4096, 2);
        let table = Table::new(Arc::clone(&frames), None).unwrap();
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

    /// Takes the right to write from everything mapped in a range; tells what each CPU forgot.
    fn shrink(&self, pages: u64) -> (Vec<Invalidation>, GatherCounts) {
        let range = PageRange::new(Page::new(START), Page::new(START + pages));
        let mut gather = self.table.gather();
        let mut cursor = self.table.cursor(range);
        cursor.edit_alike(range.end, |_| TO_READ_ONLY, &mut gather);
        drop(cursor);
        let counts = gather.finish();
        let sent = self.frames.machine().take_sent();
        let of = |cpus| sent.iter().filter(move |sent| sent.0 == cpus);
        let [local, remote] = BOTH.map(|cpus| of(cpus).map(|sent| sent.1).collect::<Vec<_>>());
        assert_eq!(local, remote);
        (local, counts)
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
        (1, 1, 511)
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
