//! Tests of hugetlb pages: reservations, faults, copy-on-write and forks, and that no operation splits a huge page.

use std::sync::Arc;

use memwright::object::{HUGE_BYTES, HugeFile, Object, ObjectIdentity, PrivateHuge};
use memwright::{
    Advice, AdviseError, FaultError, FaultKind, MapError, MapRequest, Placement, ProtectError,
    RemapError, RemapRequest, Row, UnmapError,
};
use memwright_table::{Bits, FrameKind, PageSize, PoolCounts, Present};

use crate::world::{Machine, NONE, PAGE, Process, R, RW, World, page};

/// The index of the first page that is aligned to 2 MiB, counted from the address at which scenarios map.
const FIRST: u64 = 4;
/// The number of 4 KiB pages in 2 MiB.
const HUGE: u64 = 512;

/// A machine with a hugetlb pool.
struct Pooled {
    world: World,
}

impl Pooled {
    fn new(pages: u64) -> Self {
        let world = World::with_frames(16384);
        world.frames.resize_pool(pages);
        assert_eq!(world.frames.pool().total, pages);
        Self { world }
    }

    fn pool(&self) -> PoolCounts {
        self.world.frames.pool()
    }

    /// Returns the numbers of total, free and reserved pages of the pool.
    fn counts(&self) -> [u64; 3] {
        let pool = self.pool();
        [pool.total, pool.free, pool.reserved]
    }

    fn file(&self, pages: u64) -> Arc<HugeFile<Machine>> {
        let memory = self.world.memory.clone();
        let identity = ObjectIdentity::default();
        Arc::new(HugeFile::new(memory, pages * HUGE_BYTES, identity, ""))
    }

    fn private(&self, pages: u64) -> Process<'_> {
        let process = self.world.process();
        map_private(&process, 0, &self.file(pages), 0..pages);
        process
    }

    fn shared(&self, file: &Arc<HugeFile<Machine>>, pages: u64) -> Process<'_> {
        let process = self.world.process();
        file.reserve(0..pages).unwrap();
        process.map_object(FIRST, pages * HUGE, RW, file, true);
        process
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let pool = self.pool();
        assert_eq!((pool.free, pool.reserved), (pool.total, 0), "{pool:?}");
        self.world.frames.set_pool_surplus(0);
        self.world.frames.resize_pool(0);
        assert_eq!(self.pool(), PoolCounts::default());
    }
}

fn map_private(
    process: &Process<'_>,
    at: u64,
    file: &Arc<HugeFile<Machine>>,
    range: std::ops::Range<u64>,
) {
    let pages = range.end - range.start;
    let offset = range.start * HUGE_BYTES;
    let memory = process.world.memory.clone();
    let shown: Arc<dyn Object<Machine>> =
        Arc::new(PrivateHuge::new(memory, file.clone(), range).unwrap());
    let at = page(FIRST + at * HUGE);
    let request =
        MapRequest::object(shown, offset, pages * HUGE_BYTES, RW, false).at(Placement::Fixed(at));
    assert_eq!(process.space.map(&request), Ok(at));
}

fn at(huge: u64) -> u64 {
    FIRST + huge * HUGE
}

fn present(process: &Process<'_>, index: u64) -> Present {
    process.space.entry(page(index)).present().unwrap()
}

fn is_exclusive(process: &Process<'_>, index: u64) -> bool {
    present(process, index).bits.contains(Bits::EXCLUSIVE)
}

#[test]
fn a_mapping_is_promised_its_pages_and_gives_back_what_it_did_not_use() {
    let pooled = Pooled::new(4);
    let mut process = pooled.private(3);
    assert_eq!(pooled.counts(), [4, 4, 3]);
    // A second file cannot reserve two pages, because the pool has too few unreserved pages.
    let file = pooled.file(2);
    let memory = pooled.world.memory.clone();
    assert!(PrivateHuge::new(memory, file.clone(), 0..2).is_err());
    assert!(file.reserve(0..2).is_err());
    drop(file);
    let account = pooled.world.counted(|| {
        assert_eq!(process.store(at(1) + 9, 7), Ok(vec![FaultKind::Hugetlb]));
        assert_eq!(process.store(at(1) + 511, 8), Ok(vec![]));
    });
    assert_eq!(account.count(Row::FramesZeroed), HUGE);
    assert_eq!(pooled.counts(), [4, 3, 2]);
    assert_eq!(present(&process, at(1) + 5).size, PageSize::Size2M);
    // A hugetlb page is counted in `hugetlb`, not as resident memory.
    assert_eq!(
        (process.resident(), process.space.usage().totals().hugetlb),
        (0, HUGE)
    );
    process.unmap(at(0), HUGE);
    assert_eq!(pooled.counts(), [4, 3, 1]);
    process.unmap(at(1), HUGE);
    assert_eq!(pooled.counts(), [4, 4, 1]);
    assert_eq!(process.areas(), "512rw");
}

#[test]
fn the_pool_grows_and_shrinks_as_far_as_it_can() {
    let pooled = Pooled::new(3);
    let frames = &pooled.world.frames;
    let mut process = pooled.private(2);
    process.store(at(0), 1).unwrap();
    frames.resize_pool(0);
    // Pages that are in use or reserved stay in the pool. They become surplus pages.
    let pool = pooled.pool();
    assert_eq!((pool.total, pool.free, pool.surplus), (2, 1, 2));
    frames.resize_pool(1);
    assert_eq!(pooled.pool().surplus, 1);
    drop(process);
    assert_eq!(pooled.counts(), [1, 1, 0]);
    frames.set_pool_surplus(2);
    let process = pooled.private(3);
    let pool = pooled.pool();
    assert_eq!((pool.total, pool.reserved, pool.surplus), (3, 3, 2));
    drop(process);
    assert_eq!(pooled.counts(), [1, 1, 0]);
    // The requested size is larger than the memory of the machine, so the pool grows as far as possible.
    frames.resize_pool(1000);
    let pool = pooled.pool();
    assert!(pool.total > 1 && pool.total < 1000 && pool.surplus == 0);
}

#[test]
fn a_child_shares_until_one_writes_and_has_no_promise() {
    let pooled = Pooled::new(3);
    let mut parent = pooled.private(1);
    parent.store(at(0), 1).unwrap();
    assert!(is_exclusive(&parent, at(0)));
    let mut child = parent.fork();
    assert!(!is_exclusive(&parent, at(0)) && !is_exclusive(&child, at(0)));
    assert_eq!(child.load(at(0)), 1);
    assert_eq!(child.store(at(0) + 3, 2), Ok(vec![FaultKind::Copy]));
    assert_eq!(child.load(at(0)), 1);
    assert_eq!(pooled.counts(), [3, 1, 0]);
    // The page is exclusive to the parent again.
    assert_eq!(parent.store(at(0), 3), Ok(vec![FaultKind::WriteOnly]));
    assert_eq!(child.load(at(0)), 1);
    assert!(is_exclusive(&child, at(0)) && is_exclusive(&parent, at(0)));
    drop(child);
    assert_eq!(pooled.counts(), [3, 2, 0]);
}

#[test]
fn who_has_the_promise_takes_the_page_back_and_the_child_is_refused() {
    let pooled = Pooled::new(1);
    let mut parent = pooled.private(1);
    parent.store(at(0), 1).unwrap();
    let mut child = parent.fork();
    assert_eq!(child.store(at(0), 2), Err(FaultError::NoHugePage));
    assert_eq!(child.load(at(0)), 1);
    let account = pooled.world.counted(|| {
        assert_eq!(parent.store(at(0), 3), Ok(vec![FaultKind::WriteOnly]));
    });
    assert_eq!(account.count(Row::HugetlbTakenBack), 1);
    assert_eq!(child.load_with(at(0)), Err(FaultError::NoHugePage));
    assert_eq!(parent.load(at(0)), 3);
}

#[test]
fn shared_pages_are_the_files() {
    let pooled = Pooled::new(4);
    let file = pooled.file(3);
    let mut one = pooled.shared(&file, 3);
    let mut two = pooled.shared(&file, 2);
    assert_eq!(pooled.counts(), [4, 4, 3]);
    assert_eq!(one.store(at(1), 5), Ok(vec![FaultKind::Hugetlb]));
    assert_eq!(two.load_with(at(1)), Ok((5, vec![FaultKind::Hugetlb])));
    let child = one.fork();
    two.store(at(1) + 1, 6).unwrap();
    assert_eq!(one.load(at(1) + 1), 6);
    assert_eq!(pooled.counts(), [4, 3, 2]);
    drop((one, two, child));
    // The reservation stays after the mappings are gone, because it belongs to the file.
    assert_eq!(pooled.counts(), [4, 3, 2]);
    file.punch(HUGE_BYTES, 3 * HUGE_BYTES);
    assert_eq!((pooled.counts(), file.resident()), ([4, 4, 2], 0));
    file.set_size(HUGE_BYTES);
    assert_eq!(pooled.counts(), [4, 4, 1]);
}

#[test]
fn private_mappings_of_a_file_copy_its_pages() {
    let pooled = Pooled::new(4);
    let file = pooled.file(2);
    let mut shared = pooled.shared(&file, 1);
    shared.store(at(0), 1).unwrap();
    let mut private = pooled.world.process();
    map_private(&private, 0, &file, 0..2);
    assert_eq!(private.load_with(at(0)), Ok((1, vec![FaultKind::Hugetlb])));
    assert!(!is_exclusive(&private, at(0)));
    assert_eq!(private.store(at(0), 2), Ok(vec![FaultKind::Copy]));
    assert_eq!((shared.load(at(0)), private.load(at(0))), (1, 2));
    assert_eq!(private.store(at(1), 3), Ok(vec![FaultKind::Hugetlb]));
    assert_eq!(file.resident(), 1);
    // Truncating the file removes the private copies too. An access beyond the end is a bus error.
    file.set_size(0);
    assert_eq!(private.load_with(at(0)), Err(FaultError::BeyondObject));
    assert_eq!(shared.load_with(at(0)), Err(FaultError::BeyondObject));
}

#[test]
fn protection_goes_there_and_back_without_a_fault() {
    let pooled = Pooled::new(3);
    let mut process = pooled.private(2);
    process.store(at(0), 1).unwrap();
    process.store(at(1), 1).unwrap();
    process.protect(at(0), 2 * HUGE, R);
    assert_eq!(process.store(at(1), 2), Err(FaultError::Denied));
    let account = pooled.world.counted(|| {
        process.protect(at(0), 2 * HUGE, RW);
        assert_eq!(process.store(at(1), 2), Ok(vec![]));
    });
    assert_eq!(account.count(Row::WriteFaultsAvoided), 2 * HUGE);
    process.protect(at(1), HUGE, NONE);
    assert_eq!(process.load_with(at(1)), Err(FaultError::Denied));
    process.protect(at(1), HUGE, RW);
    // Adjacent hugetlb areas never merge.
    assert_eq!(process.areas(), "512rw 512rw");
    // After the child has exited, restoring the rights makes the page writable without a fault.
    let mut child = process.fork();
    assert_eq!(child.load(at(0)), 1);
    process.protect(at(0), HUGE, R);
    drop(child);
    process.protect(at(0), HUGE, RW);
    assert_eq!(process.store(at(0), 3), Ok(vec![]));
}

#[test]
fn no_page_is_cut() {
    let pooled = Pooled::new(2);
    let mut process = pooled.private(2);
    process.store(at(0), 1).unwrap();
    let space = &process.space;
    let inside = page(at(0) + 1);
    assert_eq!(space.unmap(inside, PAGE), Err(UnmapError::Misaligned));
    assert_eq!(
        space.unmap(page(at(0)), HUGE_BYTES + PAGE),
        Err(UnmapError::Misaligned)
    );
    assert_eq!(
        space.protect(inside, PAGE, R),
        Err(ProtectError::Misaligned)
    );
    let over = MapRequest::anonymous(PAGE, RW).at(Placement::Fixed(inside));
    assert_eq!(space.map(&over), Err(MapError::Misaligned));
    for advice in [Advice::DontNeed, Advice::GuardInstall, Advice::Free] {
        let advised = space.advise(inside, PAGE, advice);
        assert_eq!(
            advised,
            Err(AdviseError::NotApplicable(inside)),
            "{advice:?}"
        );
    }
    assert_eq!(
        space.advise(inside, PAGE, Advice::DontDump),
        Err(AdviseError::Misaligned)
    );
    // A huge page that is only partly in the range is not discarded.
    space
        .advise(page(at(0)), HUGE_BYTES - PAGE, Advice::DontNeed)
        .unwrap();
    assert_eq!(process.load(at(0)), 1);
    process
        .space
        .advise(page(at(0)), HUGE_BYTES, Advice::DontNeed)
        .unwrap();
    assert_eq!(process.load_with(at(0)), Ok((0, vec![FaultKind::Hugetlb])));
}

#[test]
fn what_was_dropped_is_promised_again() {
    let pooled = Pooled::new(1);
    let mut process = pooled.private(1);
    for byte in 1..4 {
        assert_eq!(process.store(at(0), byte), Ok(vec![FaultKind::Hugetlb]));
        process
            .space
            .advise(page(at(0)), HUGE_BYTES, Advice::DontNeed)
            .unwrap();
        assert_eq!(pooled.counts(), [1, 1, 1]);
    }
}

#[test]
fn a_mapping_moves_with_its_promise() {
    let pooled = Pooled::new(2);
    let mut process = pooled.private(2);
    process.store(at(0), 1).unwrap();
    let request = RemapRequest {
        old: page(at(0)),
        old_length: 2 * HUGE_BYTES,
        new_length: 2 * HUGE_BYTES,
        may_move: true,
        fixed: Some(page(at(8))),
        dont_unmap: false,
    };
    for (request, error) in [
        (
            RemapRequest {
                fixed: Some(page(at(8) + 1)),
                ..request
            },
            RemapError::NotApplicable(page(at(0))),
        ),
        (
            RemapRequest {
                new_length: 3 * HUGE_BYTES,
                ..request
            },
            RemapError::NotApplicable(page(at(0))),
        ),
        (
            RemapRequest {
                dont_unmap: true,
                ..request
            },
            RemapError::NotApplicable(page(at(0))),
        ),
    ] {
        assert_eq!(process.space.remap(request), Err(error));
    }
    // The target range has a lowest-level page table, because a 4 KiB page was mapped there before.
    process.map(at(8) + 3, 2, RW);
    process.store(at(8) + 3, 9).unwrap();
    process.unmap(at(8) + 3, 1);
    assert_eq!(process.space.remap(request), Ok(page(at(8))));
    assert_eq!(pooled.counts(), [2, 1, 1]);
    assert_eq!(process.load(at(8)), 1);
    assert_eq!(process.store(at(9), 2), Ok(vec![FaultKind::Hugetlb]));
    assert_eq!(pooled.counts(), [2, 0, 0]);
}

#[test]
fn a_pinned_page_stays_the_parents() {
    let pooled = Pooled::new(2);
    let mut parent = pooled.private(1);
    parent.store(at(0), 1).unwrap();
    let pinned = parent.space.pin(page(at(0) + 7)).unwrap().into_raw();
    let mut child = parent.fork();
    assert!(is_exclusive(&parent, at(0)) && is_exclusive(&child, at(0)));
    pooled.world.frames.write(pinned, 0, &[9]);
    assert_eq!((parent.load(at(0) + 7), child.load(at(0) + 7)), (9, 0));
    // If no other page can be allocated, the fork fails and the parent keeps its page.
    assert!(parent.space.fork().is_err());
    pooled.world.frames.unpin(pinned);
    drop(pooled.world.frames.adopt(pinned));
    assert_eq!(
        pooled.world.frames.used_by(FrameKind::PoolAnonymous),
        2 * HUGE
    );
}

#[test]
fn every_failing_allocation_leaves_the_pool_whole() {
    for count in 0..20 {
        let pooled = Pooled::new(3);
        let file = pooled.file(1);
        let mut process = pooled.private(2);
        file.reserve(0..1).unwrap();
        process.map_object(at(4), HUGE, RW, &file, true);
        pooled.world.frames.fail_after(Some(count));
        for huge in [0, 4] {
            match process.store(at(huge), 1) {
                Ok(_) | Err(FaultError::OutOfMemory) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        drop(process.space.fork());
        let _ = process.store(at(0), 2);
        pooled.world.frames.fail_after(None);
        for huge in [0, 1, 4] {
            assert!(process.store(at(huge), 2).is_ok(), "{count}");
        }
    }
}
