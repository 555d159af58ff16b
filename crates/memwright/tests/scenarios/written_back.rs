//! Tests of the reclaim of pages of a file on a disk: dirty pages are written back first, and the next access reads
//! them again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use memwright::object::{
    Leaving, Left, Mappings, Object, ObjectError, ObjectIdentity, Pages, Stored,
};
use memwright::{Advice, Effort, FaultKind, Memory, Row};
use memwright_table::{Frame, FrameKind};

use crate::swap::page_out;
use crate::world::{Machine, PAGE, Process, RW, World, page, rows};

const FILE: FaultKind = FaultKind::File;

/// A file on a simulated disk that stores only the first byte of each page.
struct Backed {
    /// The pages, behind a lock.
    pages: Mutex<Pages<Machine>>,
    /// The pages that were stored to since they were last written back.
    dirty: Mutex<BTreeSet<u64>>,
    disk: Mutex<BTreeMap<u64, u8>>,
    /// Whether writes to the disk fail.
    refuses: AtomicBool,
    mappings: Mappings<Machine>,
}

impl Backed {
    fn new(world: &World) -> Arc<Self> {
        Arc::new(Self {
            pages: Mutex::new(Pages::new(world.frames.clone())),
            dirty: Mutex::new(BTreeSet::new()),
            disk: Mutex::new((0..8).map(|index| (index, 100 + index as u8)).collect()),
            refuses: AtomicBool::new(false),
            mappings: Mappings::new(),
        })
    }

    fn in_memory(&self) -> u64 {
        self.pages.lock().unwrap().len()
    }

    fn on_disk(&self, index: u64) -> u8 {
        self.disk.lock().unwrap()[&index]
    }

    fn is_dirty(&self, index: u64) -> bool {
        self.dirty.lock().unwrap().contains(&index)
    }

    /// Writes page `index` back if it is dirty. Returns whether it was dirty, or an error if the disk fails the write.
    fn write_back(&self, memory: &Memory<Machine>, index: u64) -> Result<bool, ObjectError> {
        if !self.dirty.lock().unwrap().remove(&index) {
            return Ok(false);
        }
        // Write-protect the mappings before the page is copied. A later store then notifies the file, which makes the
        // page dirty again.
        let _ = self.mappings.clean(index, index + 1);
        if self.refuses.load(Ordering::Relaxed) {
            self.dirty.lock().unwrap().insert(index);
            return Err(ObjectError::Io);
        }
        let mut byte = [0];
        if let Some(frame) = self.pages.lock().unwrap().get(index) {
            memory.frames().read(frame, 0, &mut byte);
        }
        self.disk.lock().unwrap().insert(index, byte[0]);
        Ok(true)
    }
}

impl Object<Machine> for Backed {
    fn frame(
        &self,
        memory: &Memory<Machine>,
        index: u64,
        _write: bool,
    ) -> Result<Frame, ObjectError> {
        let Some(&byte) = self.disk.lock().unwrap().get(&index) else {
            return Err(ObjectError::BeyondEnd);
        };
        let mut pages = self.pages.lock().unwrap();
        let frame = match pages.get(index) {
            Some(frame) => frame,
            None => {
                let frame = memory.frames().allocate_zeroed(0, FrameKind::Object)?;
                memory.frames().write(frame.frame(), 0, &[byte]);
                pages.insert(index, frame.frame())?;
                frame.into_raw()
            }
        };
        Ok(memory.frames().share(frame).into_raw())
    }

    fn send_out(&self, memory: &Memory<Machine>, leaving: &Leaving) -> Left {
        let mut leaves = leaving.pages;
        self.mappings.keep(&mut leaves, leaving.unused);
        let mut left = Left::default();
        for index in leaves.iter() {
            match self.write_back(memory, index) {
                Ok(written) => left.written_back += u64::from(written),
                Err(_) => leaves.remove(index),
            }
        }
        self.mappings.stale();
        for run in leaves.runs() {
            self.mappings.withdraw(run.start, run.end);
        }
        let frames = memory.frames();
        let mut pages = self.pages.lock().unwrap();
        for index in leaves.iter() {
            let frame = pages.get(index);
            let free = frame.is_some_and(|frame| frames.references(frame) == 1);
            if !free || self.is_dirty(index) {
                continue;
            }
            if let Some(Stored::InMemory(frame)) = pages.remove(index) {
                drop(frames.adopt(frame));
                left.pages += 1;
            }
        }
        left
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

    fn first_write(&self, index: u64) -> Result<(), ObjectError> {
        self.dirty.lock().unwrap().insert(index);
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
}

/// Creates a process that maps the file, has read all pages, and has written the first half of them.
fn half_written(world: &World) -> (Process<'_>, Arc<Backed>) {
    let file = Backed::new(world);
    let mut process = world.process();
    process.map_object(0, 8, RW, &file, true);
    for index in 0..8 {
        assert_eq!(process.load(index), 100 + index as u8);
    }
    for index in 0..4 {
        process.store(index, 10 + index as u8).unwrap();
    }
    (process, file)
}

/// Scans all pages once, and reclaims those that were not accessed since the previous scan. Returns the number of pages
/// reclaimed.
fn look(process: &Process<'_>) -> u64 {
    let mut effort = Effort {
        look: 1000,
        wanted: 1000,
        charged: false,
    };
    assert_eq!(process.space.reclaim(page(0).page(), &mut effort), None);
    process.check();
    1000 - effort.wanted
}

#[test]
fn what_was_stored_is_written_back_and_the_rest_just_goes() {
    let world = World::new();
    let (mut process, file) = half_written(&world);
    let account = world.counted(|| page_out(&process, 0, 8));
    assert_eq!(rows(&account, &[Row::WrittenBack, Row::SwapOut]), [4, 0]);
    assert_eq!((file.in_memory(), process.resident()), (0, 0));
    assert_eq!([0, 3, 4].map(|index| file.on_disk(index)), [10, 13, 104]);
    assert_eq!(process.load_with(0), Ok((10, vec![FILE])));
    assert_eq!(process.store(5, 15), Ok(vec![FILE]));
    assert!(file.is_dirty(5) && !file.is_dirty(0));
    process.check();
}

#[test]
fn reclaim_writes_back_what_nobody_used_since_it_looked() {
    let world = World::new();
    let (mut process, file) = half_written(&world);
    assert_eq!(look(&process), 0, "all were used");
    process.load(1);
    process.load(6);
    let account = world.counted(|| assert_eq!(look(&process), 6));
    assert_eq!(account.count(Row::WrittenBack), 3);
    assert_eq!((file.in_memory(), process.resident()), (2, 2));
    assert_eq!((process.load(1), process.load(2)), (11, 12));
}

#[test]
fn what_the_disk_refuses_stays_and_stays_dirty() {
    let world = World::new();
    let (mut process, file) = half_written(&world);
    file.refuses.store(true, Ordering::Relaxed);
    let account = world.counted(|| page_out(&process, 0, 8));
    assert_eq!(account.count(Row::WrittenBack), 0);
    assert_eq!(file.in_memory(), 4);
    assert!((0..4).all(|index| file.is_dirty(index)));
    assert_eq!(process.load(2), 12);
    file.refuses.store(false, Ordering::Relaxed);
    // The failed attempt made the dirty pages read-only. No store follows that would notify the file and make them
    // dirty again. They must therefore have stayed dirty, and are written back now.
    page_out(&process, 0, 8);
    assert_eq!((file.in_memory(), file.on_disk(2)), (0, 12));
}

#[test]
fn locked_and_borrowed_pages_stay() {
    let world = World::new();
    let (mut process, file) = half_written(&world);
    process
        .space
        .residency()
        .lock(page(0), 2 * PAGE, false)
        .unwrap();
    let borrowed = file.cached(&world.memory, 2).unwrap();
    let advised = process.space.advise(page(2), 6 * PAGE, Advice::PageOut);
    advised.unwrap();
    assert_eq!(look(&process) + look(&process), 0);
    assert_eq!(file.in_memory(), 3);
    drop(world.frames.adopt(borrowed));
    assert_eq!((process.load(0), process.load(2)), (10, 12));
}
