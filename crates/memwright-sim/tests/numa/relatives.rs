//! Tests of the reverse mapping: families of processes fork, exit, move, split and unmap memory while pages migrate or
//! are truncated. The result of each rmap walk is compared with all page tables.

use std::sync::Arc;

use memwright::object::{ObjectIdentity, Shmem};
use memwright::{MapRequest, Moved, Moving, RemapRequest};
use memwright_sim::SimulatedMachine;
use memwright_sim::programs::{Host, Process};
use memwright_table::{Frame, PageRange};
use memwright_testkit::chance::Chance;

use crate::support::{self, FIRST, READ, READ_WRITE, START, at, bytes, fork, map, write};
use crate::{migrate_as, two_nodes};

/// The number of pages of the range in which processes map memory.
const PAGES: u64 = 96;

/// The maximum number of processes that exist at the same time.
const MOST: u64 = 7;

/// The number of pages of the object.
const OBJECT: u64 = 24;

/// Processes that are related by forks, and the object that they map.
struct Family {
    host: Arc<Host>,
    object: Arc<Shmem<SimulatedMachine>>,
    processes: Vec<Process>,
    chance: Chance,
}

impl Family {
    fn new(seed: u64) -> Self {
        let host = two_nodes(4096);
        let identity = ObjectIdentity::default();
        let object = Shmem::new(host.memory().clone(), bytes(OBJECT), identity).expect("heap");
        let processes = vec![Process::new(&host)];
        Self {
            host,
            object: Arc::new(object),
            processes,
            chance: Chance::new(seed),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.chance.below(bound as usize) as u64
    }

    /// Returns the first page and the number of pages of a random range of at most `most` pages within `PAGES`.
    fn range(&mut self, most: u64) -> (u64, u64) {
        let pages = 1 + self.below(most);
        (self.below(PAGES - pages), pages)
    }

    fn step(&mut self) {
        let count = self.processes.len() as u64;
        let number = self.below(count) as usize;
        let (first, pages) = self.range(12);
        let kind = self.below(12);
        let (offset, target, shape) = (
            self.below(OBJECT - pages),
            self.below(PAGES - pages - 2),
            self.below(12),
        );
        let process = &self.processes[number];
        match kind {
            0 if count < MOST => self.processes.push(fork(process, FIRST)),
            0 | 1 if count > 1 => drop(self.processes.swap_remove(number)),
            0..=2 => map(
                process,
                MapRequest::anonymous(bytes(pages), READ_WRITE),
                first,
            ),
            3 => {
                // Maps the range by two calls, the upper part first, so that the areas merge.
                let upper = pages / 2;
                for (at, length) in [(upper, pages - upper), (0, upper)] {
                    if length > 0 {
                        let (object, offset) = (self.object.clone(), bytes(offset + at));
                        let shared = shape % 2 == 0;
                        let request =
                            MapRequest::object(object, offset, bytes(length), READ_WRITE, shared);
                        map(process, request, first + at);
                    }
                }
            }
            4 => {
                let rights = if shape % 2 == 0 { READ } else { READ_WRITE };
                let length = bytes(pages);
                // This fails if nothing is mapped there.
                let _ = process.on(FIRST, |space| space.protect(at(first), length, rights));
            }
            5 if pages < 4 => drop(process.on(FIRST, |space| space.unmap(at(first), bytes(pages)))),
            5..=7 => {
                let grown = shape % 3;
                let request = RemapRequest {
                    old: at(first),
                    old_length: bytes(pages),
                    new_length: bytes(pages + grown),
                    may_move: shape != 1,
                    fixed: (shape != 1).then(|| at(target)),
                    dont_unmap: shape == 0,
                };
                // This fails if the old range is not one area, or overlaps the new range.
                let _ = process.on(FIRST, |space| space.remap(request));
            }
            _ => {
                for page in first..first + pages {
                    // This fails if no writable memory is mapped there.
                    let _ = write(process, FIRST, page, number as u8);
                }
            }
        }
    }

    /// Returns every mapping of a page by a process: the number of the process, the page, and the frame.
    fn mapped(&self) -> Vec<(usize, u64, Frame)> {
        let mut found = Vec::new();
        for (number, process) in self.processes.iter().enumerate() {
            process.on(FIRST, |space| {
                for page in 0..PAGES + 4 {
                    let place = START.add(page);
                    let entry = space.table().cursor(PageRange::single(place)).peek();
                    if let Some(present) = entry.present() {
                        found.push((number, page, present.frame_of(place)));
                    }
                }
            });
        }
        found
    }

    /// Migrates a page that one of the processes maps, and checks that it has migrated for all processes. Returns
    /// whether the page is mapped more than once.
    fn migrate(&mut self) -> bool {
        let before = self.mapped();
        if before.is_empty() {
            return false;
        }
        let chosen = self.below(before.len() as u64) as usize;
        let (number, page, frame) = before[chosen];
        let node = 1 - self.host.frames().node_of(frame);
        let moved = migrate_as(&self.processes[number], FIRST, page, node, Moving::All);
        assert_eq!(
            moved,
            Ok(Moved::To(node)),
            "page {page} of process {number}"
        );
        let after = self.mapped();
        let of = |list: &[(usize, u64, Frame)], frame| -> Vec<(usize, u64)> {
            let same = list.iter().filter(|(.., one)| *one == frame);
            same.map(|(number, page, _)| (*number, *page)).collect()
        };
        let new = after.iter().find(|one| (one.0, one.1) == (number, page));
        let new = new.expect("the page is mapped").2;
        assert_eq!(of(&after, new), of(&before, frame));
        assert_eq!(of(&after, frame), [], "nothing maps the old frame");
        of(&after, new).len() > 1
    }

    /// Removes pages from the object, and checks that no process maps them.
    fn truncate(&mut self) {
        let first = self.below(OBJECT);
        let end = (first + 1 + self.below(4)).min(OBJECT);
        let frames: Vec<Frame> = (first..end)
            .filter_map(|index| self.object.frame_for(index, false).expect("in the object"))
            .collect();
        let punched = self.object.punch(bytes(first), bytes(end));
        punched.expect("memory is there");
        let left = self.mapped();
        assert!(left.iter().all(|(.., frame)| !frames.contains(frame)));
    }
}

#[test]
fn every_mapping_of_a_page_is_found() {
    let (mut migrated, mut shared) = (0, 0);
    for seed in 0..12 {
        let mut family = Family::new(seed);
        for step in 0..400 {
            family.step();
            if step % 5 == 0 {
                migrated += 1;
                shared += u32::from(family.migrate());
            }
            if step % 40 == 0 {
                family.truncate();
            }
        }
        support::assert_coherent(&family.host);
        for process in &family.processes {
            assert_eq!(process.space().audit(), Ok(()));
        }
    }
    assert!(
        shared > migrated / 4,
        "{shared} of {migrated} pages had several entries"
    );
}
