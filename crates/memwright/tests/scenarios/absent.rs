//! Tests of builds without a feature: what operations that need the feature do.

#![cfg(not(all(
    feature = "huge",
    feature = "hugetlb",
    feature = "objects",
    feature = "reclaim",
    feature = "share",
    feature = "tracking"
)))]

use crate::world::{PAGE, RW, World, page};

#[cfg(not(feature = "huge"))]
#[test]
fn a_first_touch_maps_one_page_and_the_advice_is_refused() {
    use memwright::{Advice, AdviseError, FaultKind, HugeMode};
    let world = World::new();
    world.memory.policy().set_huge(HugeMode::Always);
    let mut process = world.process();
    process.map(4, 512, RW);
    assert_eq!(process.store(4, 1), Ok(vec![FaultKind::DemandZero]));
    assert_eq!(process.resident(), 1);
    for advice in [Advice::Huge, Advice::NotHuge, Advice::Collapse] {
        let refused = Err(AdviseError::NotApplicable(page(4)));
        assert_eq!(process.space.advise(page(4), 512 * PAGE, advice), refused);
    }
    process.check();
}

#[cfg(not(feature = "hugetlb"))]
#[test]
fn a_hugetlb_file_has_no_pages() {
    use memwright::object::{HugeFile, ObjectError, ObjectIdentity};
    use memwright::{MapError, Placement};
    let world = World::new();
    let file = HugeFile::new(
        world.memory.clone(),
        512 * PAGE,
        ObjectIdentity::default(),
        "",
    );
    assert_eq!(file.size(), 0);
    assert_eq!(file.reserve(0..1), Err(ObjectError::OutOfMemory));
    assert_eq!(file.allocate(0, PAGE), Err(ObjectError::OutOfMemory));
    let place = |huge| {
        let process = world.process();
        process
            .space
            .check_place(512 * PAGE, Placement::Anywhere, huge)
    };
    assert_eq!(place(false), Ok(()));
    assert_eq!(place(true), Err(MapError::Unsupported));
}

#[cfg(not(feature = "objects"))]
#[test]
fn no_object_or_device_memory_can_be_mapped() {
    use memwright::{MapError, MapRequest};
    use memwright_table::{CacheMode, PhysAddr};
    let world = World::new();
    let process = world.process();
    for shared in [false, true] {
        let object = MapRequest::object(world.shmem(1), 0, PAGE, RW, shared);
        assert_eq!(process.space.map(&object), Err(MapError::Unsupported));
    }
    let device = MapRequest::physical(PhysAddr::new(0), PAGE, RW, CacheMode::WriteBack);
    assert_eq!(process.space.map(&device), Err(MapError::Unsupported));
    assert_eq!(process.areas(), "");
}

#[cfg(not(feature = "reclaim"))]
#[test]
fn lazy_freeing_frees_at_once_and_reclaim_finds_nothing() {
    use memwright::{Advice, Advised, Effort};
    use memwright_table::Page;
    let world = World::new();
    let mut process = world.process();
    process.map(0, 2, RW);
    process.store(0, 1).unwrap();
    process.store(1, 1).unwrap();
    let free = process.space.advise(page(0), PAGE, Advice::Free);
    assert_eq!((free, process.resident()), (Ok(Advised::Done), 1));
    assert_eq!(process.load(0), 0);
    let out = process.space.advise(page(1), PAGE, Advice::PageOut);
    assert_eq!(out, Ok(Advised::AdvisedOnly));
    let mut effort = Effort {
        look: 100,
        wanted: 1,
        charged: false,
    };
    assert_eq!(process.space.reclaim(Page::new(0), &mut effort), None);
    assert_eq!((effort.wanted, process.load(1)), (1, 1));
}

#[cfg(not(feature = "share"))]
#[test]
fn a_fork_copies_tables() {
    let world = World::new();
    world.memory.policy().set("fork", "share").unwrap();
    let mut process = world.process();
    process.map(0, 512, RW);
    process.store(0, 1).unwrap();
    let mut child = process.fork();
    assert_eq!(world.frames.earmarked(), 0);
    child.store(0, 2).unwrap();
    assert_eq!((process.load(0), child.load(0)), (1, 2));
}

#[cfg(not(feature = "tracking"))]
#[test]
fn a_scan_fails_and_every_page_is_soft_dirty() {
    use memwright::error::WatchError;
    use memwright::track::{Categories, Scan, Share};
    use memwright_table::{Bits, PageRange};
    let world = World::new();
    let process = world.process();
    process.map(0, 1, RW);
    let range = PageRange::single(page(0).page());
    let mut take = |range: PageRange, _: Categories, _: Share| range.len();
    let scan = process
        .space
        .tracking()
        .scan(range, &Scan::written(false), &mut take);
    assert_eq!(scan, Err(WatchError::Unsupported));
    process.space.tracking().clear_soft_dirty();
    let is_soft_dirty = |bits| process.space.find(page(0), |area| area.is_soft_dirty(bits));
    assert_eq!(is_soft_dirty(Bits::empty()), Some(true));
}
