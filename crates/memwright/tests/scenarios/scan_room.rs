//! Scans for written pages over several page tables. The tests check which pages are reported and protected in three
//! cases: the caller has space for all of them, it has space for some of them, or the scan calls it for each run.

use memwright::track::{Categories, Scan, Share, Take};
use memwright::uffd::WatchModes;
use memwright_table::{Page, PageRange};

use crate::world::{PAGE, Process, RW, World, page, watch};

/// The number of pages in three page tables.
const PAGES: u64 = 3 * 512;

const WRITTEN: Scan = Scan::written(true);

/// A callback that takes pages until its space for runs or for pages is used up.
struct Room {
    runs: Vec<PageRange>,
    most_runs: usize,
    pages: u64,
    /// Whether `room` returns the space that is left. If not, `room` returns 0, and the scan calls `take` before it
    /// protects a run.
    tells: bool,
}

impl Take for Room {
    fn take(&mut self, run: PageRange, _categories: Categories, _share: Share) -> u64 {
        let pages = run.len().min(self.pages);
        let taken = PageRange::new(run.start, run.start.add(pages));
        let is_full = self.runs.len() == self.most_runs;
        match self.runs.last_mut() {
            Some(last) if last.end == run.start => last.end = taken.end,
            Some(_) | None if pages == 0 || is_full => return 0,
            Some(_) | None => self.runs.push(taken),
        }
        self.pages -= pages;
        pages
    }

    fn room(&self) -> u64 {
        let runs = (self.most_runs - self.runs.len()) as u64;
        if self.tells { runs.min(self.pages) } else { 0 }
    }
}

/// Scans from `from` on. Returns the written pages and where the scan stopped.
fn scanned(process: &Process<'_>, from: Page, mut room: Room) -> (Vec<u64>, Page) {
    let range = PageRange::new(from, page(PAGES).page());
    let end = process
        .space
        .tracking()
        .scan(range, &WRITTEN, &mut room)
        .unwrap();
    let start = page(0).page().number();
    let pages = room.runs.iter().flat_map(|run| run.iter());
    (pages.map(|page| page.number() - start).collect(), end)
}

fn watched(policy: &str, work: impl Fn(&mut Process<'_>)) {
    let world = World::with_frames(3000);
    world.memory.policy().set("track", policy).unwrap();
    let mut process = world.process();
    process.map(0, PAGES, RW);
    for index in 0..PAGES {
        process.store(index, 1).unwrap();
    }
    let watch = watch(true, true);
    let space = &process.space;
    space
        .uffd()
        .watch(page(0), PAGES * PAGE, &watch, WatchModes::WRITE_PROTECT)
        .unwrap();
    space
        .uffd()
        .write_protect(page(0), PAGES * PAGE, true)
        .unwrap();
    work(&mut process);
}

/// Returns pages in three tables: single pages, pairs, a long run across the end of a table, and the last page.
fn pages_to_write() -> Vec<u64> {
    let mut pages = vec![0, 7, 8, 100, 101, 300, 511];
    pages.extend((520..1000).step_by(9));
    pages.extend(1000..1100);
    pages.extend([1200, 1300, 1301, 1302, 1535]);
    pages
}

#[test]
fn a_scan_reports_each_written_page_once_whatever_the_room() {
    for policy in ["dirty-bit", "fault"] {
        for tells in [false, true] {
            for (most_runs, most_pages) in [(1000, 10_000), (1000, 37), (5, 10_000), (1, 1)] {
                watched(policy, |process| {
                    let all = PageRange::new(page(0).page(), page(PAGES).page());
                    // After a scan that finds every page unwritten, the dirty bits alone determine which pages were
                    // written.
                    assert_eq!(process.matching(all, &WRITTEN), []);
                    let written = pages_to_write();
                    for index in &written {
                        process.store(*index, 2).unwrap();
                    }
                    let (mut from, mut found) = (page(0).page(), Vec::new());
                    while from < page(PAGES).page() {
                        let room = Room {
                            runs: Vec::new(),
                            most_runs,
                            pages: most_pages,
                            tells,
                        };
                        let (pages, end) = scanned(process, from, room);
                        assert!(end > from, "{policy}, {tells}, {most_runs}, {most_pages}");
                        assert!(pages.len() as u64 <= most_pages);
                        found.extend(pages);
                        from = end;
                    }
                    assert_eq!(found, written, "{policy}, {tells}, {most_runs}");
                    process.store(600, 3).unwrap();
                    process.store(1535, 3).unwrap();
                    assert_eq!(process.matching(all, &WRITTEN), [600, 1535]);
                    assert_eq!(process.matching(all, &WRITTEN), []);
                });
            }
        }
    }
}
