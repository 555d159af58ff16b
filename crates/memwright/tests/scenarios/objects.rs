//! Tests of objects: of files and shared memory, and of an object that is notified of the first store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memwright::object::{Mappings, Object, ObjectError, ObjectIdentity, Pages, Shmem, Stored};
use memwright::{FaultError, FaultKind, MapRequest, Memory, Placement, Row, SyncFlags};
use memwright_table::{Frame, FrameKind};
use std::sync::Mutex;

use crate::world::{Machine, PAGE, R, RW, World, page, rows};

#[test]
fn a_read_of_a_file_maps_what_is_cached_around_it() {
    let world = World::new();
    let object = world.shmem(64);
    object.write_at(0, &vec![5; 40 * PAGE as usize]).unwrap();
    let mut process = world.process();
    process.map_object(4, 64, R, &object, false);
    let account = world.counted(|| {
        assert_eq!(process.load_with(4 + 20), Ok((5, vec![FaultKind::File])));
    });
    // Fault-around maps an aligned window of 16 pages: 15 pages besides the accessed page.
    assert_eq!(rows(&account, &[Row::FaultFile, Row::FaultAround]), [1, 15]);
    assert_eq!(process.resident(), 16);
    // The object has 40 pages in memory. Fault-around maps only pages of the window that are in memory.
    let account = world.counted(|| {
        process.load(4 + 39);
    });
    assert_eq!(rows(&account, &[Row::FaultFile, Row::FaultAround]), [1, 7]);
    process.load(4 + 60);
    assert_eq!(object.resident(), 41);
}

#[test]
fn mapping_around_can_be_switched_off() {
    let world = World::new();
    world.memory.policy().set("fault-around", "1").unwrap();
    let object = world.shmem(8);
    object.write_at(0, &[5; 8 * PAGE as usize]).unwrap();
    let mut process = world.process();
    process.map_object(0, 8, R, &object, false);
    process.load(0);
    assert_eq!(process.resident(), 1);
}

#[test]
fn a_private_store_copies_and_the_file_keeps_its_own() {
    let world = World::new();
    let object = world.shmem(2);
    object.write_at(0, &[7; 8192]).unwrap();
    let mut process = world.process();
    process.map_object(0, 2, RW, &object, false);
    let account = world.counted(|| {
        assert_eq!(process.store(0, 1), Ok(vec![FaultKind::Copy]));
        assert_eq!(process.load(1), 7);
        assert_eq!(process.store(1, 2), Ok(vec![FaultKind::Copy]));
    });
    assert_eq!(
        rows(
            &account,
            &[Row::FramesCopied, Row::FaultCopy, Row::FaultFile]
        ),
        [2, 2, 1]
    );
    let mut bytes = [0; 2];
    object.read_at(PAGE - 1, &mut bytes).unwrap();
    assert_eq!(bytes, [7, 7]);
    // The private copies are exclusive to the process. When the rights are restored, they become writable without a
    // fault.
    process.protect(0, 2, R);
    process.protect(0, 2, RW);
    assert_eq!(process.store(0, 3), Ok(vec![]));
}

#[test]
fn shared_memory_is_writable_after_a_read() {
    let world = World::new();
    let object = world.shmem(2);
    let mut process = world.process();
    process.map_object(0, 2, RW, &object, true);
    assert_eq!(process.load_with(0), Ok((0, vec![FaultKind::File])));
    assert_eq!(process.store(0, 4), Ok(vec![]));
    assert_eq!(process.store(1, 5), Ok(vec![FaultKind::File]));
    let mut bytes = [0; 1];
    object.read_at(PAGE, &mut bytes).unwrap();
    assert_eq!(bytes, [5]);
}

#[test]
fn beyond_the_end_there_is_a_bus_error() {
    let world = World::new();
    let object = world.shmem(1);
    let mut process = world.process();
    process.map_object(0, 3, RW, &object, true);
    assert_eq!(process.load_with(1), Err(FaultError::BeyondObject));
    object.grow_to(2 * PAGE);
    assert_eq!(process.load(1), 0);
}

#[test]
fn a_read_beyond_the_end_maps_what_is_cached_around_it() {
    let world = World::new();
    let object = world.shmem(3);
    object.write_at(0, &[5; 2 * PAGE as usize]).unwrap();
    let mut process = world.process();
    process.map_object(4, 8, R, &object, false);
    let account = world.counted(|| {
        assert_eq!(process.load_with(4 + 5), Err(FaultError::BeyondObject));
    });
    assert_eq!(rows(&account, &[Row::FaultAround]), [2]);
    assert_eq!((process.resident(), object.resident()), (2, 2));
}

#[test]
fn truncation_reaches_every_mapping_and_growth_shows_zeroes() {
    let world = World::new();
    let object = world.shmem(4);
    object.write_at(0, &[8; 16384]).unwrap();
    let mut shared = world.process();
    let mut private = world.process();
    shared.map_object(0, 4, RW, &object, true);
    private.map_object(0, 4, RW, &object, false);
    for index in 0..4 {
        shared.load(index);
        private.store(index, 9).unwrap();
    }
    object.set_size(PAGE + 100).unwrap();
    assert_eq!(shared.load_with(2), Err(FaultError::BeyondObject));
    assert_eq!(
        private.load_with(2),
        Err(FaultError::BeyondObject),
        "copies go too"
    );
    assert_eq!((shared.load(1), private.load(1)), (8, 9));
    object.set_size(4 * PAGE).unwrap();
    assert_eq!(shared.load(3), 0);
    let mut tail = [1; 2];
    object.read_at(PAGE + 99, &mut tail).unwrap();
    assert_eq!(tail, [8, 0]);
}

#[test]
fn files_are_read_and_written_at_any_offset() {
    let world = World::new();
    let object = world.shmem(0);
    let text: Vec<u8> = (0..10_000).map(|index| index as u8).collect();
    assert_eq!(object.write_at(5000, &text), Ok(10_000));
    assert_eq!(object.size(), 15_000);
    let mut back = vec![1; 20_000];
    assert_eq!(object.read_at(0, &mut back), Ok(15_000));
    assert!(back[..5000].iter().all(|byte| *byte == 0));
    assert_eq!(back[5000..15_000], text[..]);
    assert_eq!(object.read_at(15_000, &mut back), Ok(0));
    assert_eq!(object.resident(), 3, "the hole costs nothing");
    assert_eq!(object.seek(0, false), Some(4096));
    assert_eq!(object.seek(5000, false), Some(5000));
    assert_eq!(object.seek(4096, true), Some(15_000));
    assert_eq!(object.seek(0, true), Some(0));
    assert_eq!(object.seek(15_000, false), None);
    object.punch(4097, 8191).unwrap();
    assert_eq!(object.resident(), 3);
    object.punch(4096, 12288).unwrap();
    assert_eq!(object.resident(), 1);
    object.allocate(0, 4 * PAGE).unwrap();
    assert_eq!((object.resident(), object.size()), (4, 15_000));
}

#[test]
fn objects_are_sparse() {
    let world = World::new();
    let object = world.shmem(512 * 1024);
    let before = world.frames.used();
    for index in [0, 511, 512, 262_143, 262_144, 524_287] {
        object.write_at(index * PAGE, &[1]).unwrap();
    }
    assert!(world.frames.used() < before + 6 + 10);
    object.set_size(PAGE).unwrap();
    assert_eq!(object.resident(), 1);
    object.set_size(0).unwrap();
    assert_eq!(world.frames.used(), before);
}

/// An object that must be notified of the first store to a clean page, like a file of a file system on a disk, and that
/// writes its pages back.
pub struct Notified {
    /// The pages, behind a lock.
    pages: Mutex<Pages<Machine>>,
    mappings: Mappings<Machine>,
    heard: AtomicU64,
    written_back: AtomicU64,
    busy: AtomicU64,
    /// The number of further first stores whose notification makes the mappings stale, as if the page were written back
    /// before write permission is granted.
    overtaken: AtomicU64,
}

impl Notified {
    pub fn new(world: &World) -> Arc<Self> {
        Arc::new(Self {
            pages: Mutex::new(Pages::new(world.frames.clone())),
            mappings: Mappings::new(),
            heard: AtomicU64::new(0),
            written_back: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            overtaken: AtomicU64::new(0),
        })
    }

    fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    fn clean(&self) -> u64 {
        let found = self.mappings.clean(0, u64::MAX);
        self.written_back.fetch_add(found.dirty, Ordering::Relaxed);
        found.dirty
    }
}

impl Object<Machine> for Notified {
    fn frame(
        &self,
        memory: &Memory<Machine>,
        index: u64,
        _write: bool,
    ) -> Result<Frame, ObjectError> {
        if self.busy.load(Ordering::Relaxed) > 0 {
            self.busy.fetch_sub(1, Ordering::Relaxed);
            return Err(ObjectError::WouldBlock);
        }
        if index >= 8 {
            return Err(ObjectError::BeyondEnd);
        }
        let mut pages = self.pages.lock().unwrap();
        let frame = match pages.get(index) {
            Some(frame) => frame,
            None => {
                let frame = memory.frames().allocate_zeroed(0, FrameKind::Object)?;
                pages.insert(index, frame.frame())?;
                frame.into_raw()
            }
        };
        Ok(memory.frames().share(frame).into_raw())
    }

    fn cached(&self, memory: &Memory<Machine>, index: u64) -> Option<Frame> {
        let frame = self.pages.lock().unwrap().get(index)?;
        Some(memory.frames().share(frame).into_raw())
    }

    fn contains(&self, index: u64) -> bool {
        index < 8
    }

    fn notify_first_write(&self) -> bool {
        true
    }

    fn first_write(&self, _index: u64) -> Result<(), ObjectError> {
        self.heard.fetch_add(1, Ordering::Relaxed);
        if self.overtaken.load(Ordering::Relaxed) > 0 {
            self.overtaken.fetch_sub(1, Ordering::Relaxed);
            self.mappings.stale();
        }
        Ok(())
    }

    fn identity(&self) -> ObjectIdentity {
        ObjectIdentity::default()
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("/disk/file")
    }

    fn mappings(&self) -> &Mappings<Machine> {
        &self.mappings
    }

    fn sync(&self, _memory: &Memory<Machine>, _first: u64, _pages: u64) -> Result<(), ObjectError> {
        self.clean();
        Ok(())
    }
}

#[test]
fn an_object_hears_of_each_first_store_and_of_no_other() {
    let world = World::new();
    let object = Notified::new(&world);
    let mut process = world.process();
    process.map_object(0, 8, RW, &object, true);
    assert_eq!(process.load_with(0), Ok((0, vec![FaultKind::File])));
    assert_eq!(process.store(0, 1), Ok(vec![FaultKind::WriteOnly]));
    assert_eq!(object.heard(), 1);
    assert_eq!(process.store(0, 2), Ok(vec![]));
    assert_eq!(process.store(1, 2), Ok(vec![FaultKind::File]));
    assert_eq!(object.heard(), 2);

    // After the rights were removed and restored, the first store to a clean page must notify the object, and a second
    // store must not.
    process.protect(0, 8, R);
    process.protect(0, 8, RW);
    assert_eq!(process.store(0, 3), Ok(vec![]), "dirty: it has heard");
    assert_eq!(object.clean(), 2);
    process.check();
    process.protect(0, 8, R);
    process.protect(0, 8, RW);
    assert_eq!(process.store(0, 4), Ok(vec![FaultKind::WriteOnly]));
    assert_eq!(object.heard(), 3);
}

#[test]
fn a_store_that_cleaning_overtakes_is_heard_of_again() {
    let world = World::new();
    let object = Notified::new(&world);
    let mut process = world.process();
    process.map_object(0, 8, RW, &object, true);
    process.load(0);
    object.overtaken.store(1, Ordering::Relaxed);
    assert_eq!(
        process.store(0, 1),
        Ok(vec![FaultKind::Spurious, FaultKind::WriteOnly])
    );
    assert_eq!(object.heard(), 2);
    object.overtaken.store(1, Ordering::Relaxed);
    assert_eq!(process.store(1, 1), Ok(vec![FaultKind::File]));
    assert_eq!(
        object.heard(),
        4,
        "a page that was absent starts again by itself"
    );
}

#[test]
fn every_mapping_of_an_object_is_cleaned() {
    let world = World::new();
    let object = Notified::new(&world);
    let mut one = world.process();
    let mut other = world.process();
    let mut private = world.process();
    one.map_object(0, 4, RW, &object, true);
    other.map_object(4, 4, RW, &object, true);
    private.map_object(0, 4, RW, &object, false);
    one.store(0, 1).unwrap();
    other.store(5, 1).unwrap();
    private.store(2, 1).unwrap();
    assert_eq!(object.mappings.areas(), 3);
    one.space.sync(page(0), 4 * PAGE, SyncFlags::WAIT).unwrap();
    assert_eq!(object.written_back.load(Ordering::Relaxed), 2);
    for process in [&mut one, &mut other] {
        process.check();
    }
    assert_eq!(one.store(0, 2), Ok(vec![FaultKind::WriteOnly]));
    assert_eq!(other.store(5, 2), Ok(vec![FaultKind::WriteOnly]));
    assert_eq!(private.store(2, 2), Ok(vec![]));
    drop(one);
    assert_eq!(object.mappings.areas(), 2);
}

#[test]
fn a_busy_object_is_waited_for_by_the_caller() {
    let world = World::new();
    let object = Notified::new(&world);
    let mut process = world.process();
    process.map_object(0, 8, RW, &object, true);
    object.busy.store(1, Ordering::Relaxed);
    let account = world.counted(|| {
        assert_eq!(process.store(0, 1), Err(FaultError::WouldBlock));
        assert_eq!(process.store(0, 1), Ok(vec![FaultKind::File]));
    });
    assert_eq!(rows(&account, &[Row::FaultFile, Row::FaultRefused]), [1, 0]);
}

#[test]
fn areas_of_one_open_object_merge_and_of_two_do_not() {
    let world = World::new();
    let object = world.shmem(8);
    let process = world.process();
    let map = |object: &Arc<Shmem<Machine>>, index: u64, offset: u64| {
        let request = MapRequest::object(object.clone(), offset * PAGE, 2 * PAGE, RW, true)
            .at(Placement::Fixed(page(index)));
        process.space.map(&request).unwrap();
    };
    map(&object, 0, 0);
    map(&object, 2, 2);
    assert_eq!(process.areas(), "4rw");
    map(&object, 4, 3);
    assert_eq!(process.areas(), "4rw 2rw", "offsets do not meet");
    let other = world.shmem(8);
    map(&other, 6, 5);
    assert_eq!(process.areas(), "4rw 2rw 2rw");
    assert_eq!(object.mappings().areas(), 2);
    process.unmap(1, 2);
    assert_eq!(object.mappings().areas(), 3);
    process.unmap(0, 8);
    assert!(!object.mappings().is_mapped());
}

#[test]
fn shared_anonymous_memory_is_a_promise() {
    let world = World::new();
    let identity = ObjectIdentity::default();
    let promised = |pages: u64| {
        let object = Shmem::new(world.memory.clone(), pages * PAGE, identity).unwrap();
        object.promised()
    };
    let object = promised(10).unwrap();
    assert_eq!(world.memory.commit().committed(), 10);
    drop(object);
    assert_eq!(world.memory.commit().committed(), 0);
    assert!(promised(world.frames.total() + 1).is_err());
}

#[test]
fn a_run_of_pages_is_looked_up_like_each_of_them() {
    let world = World::new();
    let memory = &world.memory;
    let object = world.shmem(530);
    // Two kinds of pages are tested: pages around index 512, where a node of the tree ends, and pages just before the
    // object's end.
    for index in [0, 1, 63, 500, 509, 511, 512, 515, 529] {
        object.write_at(index * PAGE, &[3]).unwrap();
    }
    let unset = Frame::new(7);
    let held = |frame| world.frames.adopt(frame).frame();
    for first in [0, 1, 60, 470, 505, 511, 512, 525, 530, 1 << 40] {
        for wanted in [
            0,
            1,
            0b1011,
            0xffff,
            0xffff_0000_0000_00f0,
            1 << 63,
            u64::MAX,
        ] {
            let mut frames = [unset; 64];
            let found = object.cached_run(memory, first, wanted, &mut frames);
            for (place, frame) in frames.into_iter().enumerate() {
                let place = place as u64;
                let expected = object.cached(memory, first + place).map(held);
                let expected = expected.filter(|_| wanted >> place & 1 != 0);
                let is_found = found >> place & 1 != 0;
                assert_eq!(
                    is_found,
                    expected.is_some(),
                    "{first} + {place} of {wanted:x}"
                );
                assert_eq!(frame, expected.unwrap_or(unset));
                if is_found {
                    held(frame);
                }
            }
        }
    }
    object.set_size(0).unwrap();
    assert_eq!(object.resident(), 0);
}

#[test]
fn a_run_is_found_wherever_the_last_page_is() {
    let world = World::new();
    let object = world.shmem(1 << 40);
    // Each row stores one more page: first a page, then one below it, then one whose index does not fit in 32 bits. The
    // last row stores its page after a truncation has left only page 8.
    for (stored, cut) in [(40, None), (8, None), ((1 << 33) + 3, None), (9, Some(9))] {
        if let Some(pages) = cut {
            object.set_size(pages * PAGE).unwrap();
            object.set_size(PAGE << 40).unwrap();
        }
        object.write_at(stored * PAGE, &[3]).unwrap();
        for first in [0, 8, 9, 33, 41, 1 << 33, (1 << 33) + 4] {
            let mut frames = [Frame::new(7); 16];
            let found = object.cached_run(&world.memory, first, 0xffff, &mut frames);
            for (place, frame) in (0..16).zip(frames) {
                let expected = object.cached(&world.memory, first + place);
                assert_eq!(found >> place & 1 != 0, expected.is_some());
                for held in expected.into_iter().chain(expected.map(|_| frame)) {
                    assert_eq!(world.frames.adopt(held).frame(), frame);
                }
            }
        }
    }
    object.set_size(0).unwrap();
    assert_eq!(object.resident(), 0);
}

#[test]
fn sparse_pages_behave_as_a_map() {
    let world = World::new();
    let before = world.frames.used();
    let mut pages = Pages::new(world.frames.clone());
    let mut model = std::collections::BTreeMap::new();
    let mut number = 1_u64;
    for _ in 0..4000 {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // The index is one of few, which differ at every level of the tree.
        let index = ((number >> 33) % 12) << ((number >> 40) % 6 * 9);
        match (number >> 60) % 4 {
            0 | 1 if pages.get(index).is_none() => {
                let frame = world.frames.allocate(0, FrameKind::Object).unwrap();
                pages.insert(index, frame.frame()).unwrap();
                model.insert(index, frame.into_raw());
            }
            2 => {
                let removed = pages.remove(index);
                let expected = model.remove(&index);
                assert_eq!(removed, expected.map(Stored::InMemory));
                drop(expected.map(|frame| world.frames.adopt(frame)));
            }
            _ => {
                let next = model
                    .range(index..)
                    .next()
                    .map(|(index, frame)| (*index, Stored::InMemory(*frame)));
                assert_eq!(pages.next(index), next);
            }
        }
        assert_eq!(pages.get(index), model.get(&index).copied());
        assert_eq!(pages.len(), model.len() as u64);
    }
    assert!(pages.len() > 10);
    let far = 12 << 27;
    let above = model.range(far..).count() as u64;
    assert_eq!(pages.remove_range(far, u64::MAX), above);
    assert_eq!(pages.next(far), None);
    drop(pages);
    assert_eq!(world.frames.used(), before);
}

/// Every page of an object is freed even if its first existing page is far from its start.
#[test]
fn an_object_whose_first_page_is_a_late_one_leaves_nothing_behind() {
    for index in [0, 511, 512, 513, 512 * 512] {
        let world = World::new();
        let used = world.frames.used();
        let object = world.shmem(index + 1);
        object.write_at(index * PAGE, &[1]).unwrap();
        assert!(world.frames.used() > used);
        drop(object);
        assert_eq!(world.frames.used(), used, "page {index}");
    }
}
