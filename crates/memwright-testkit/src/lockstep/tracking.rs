//! The steps of write tracking and of huge pages, and the comparison of the pages that count as written.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use memwright::track::{Categories, Scan, Share, Take};
use memwright::uffd::{self, Watch, WatchError, WatchModes};
use memwright::{AdviseError, AreaFlags};
use memwright::{FolioSplit, Sight};
use memwright_table::{Architecture, Bits, CpuId, Entry, FrameKind, Page, PageRange, VirtAddr};

use super::kinds::{Kind, agree, disagree};
use super::{Difference, Lockstep, address, bytes};
use crate::machine::TestMachine;
use crate::model::{Model, Refusal, Stored};
use crate::process::{Process, Space};
use crate::script::{Range, Scale, Watcher};
use crate::terms;

/// Returns a scan for written pages with asynchronous write protection.
fn for_written(protect: bool) -> Scan {
    Scan {
        inverted: Categories::empty(),
        all: Categories::WRITTEN | Categories::TRACKED,
        any: Categories::empty(),
        protect,
        only_tracked: false,
    }
}

fn kind_of_watch(error: WatchError) -> Kind {
    match error {
        WatchError::BadRange
        | WatchError::NoArea
        | WatchError::Modes
        | WatchError::NotApplicable(_) => Kind::Invalid,
        WatchError::NotWritable | WatchError::Unsupported => Kind::Denied,
        WatchError::Busy => Kind::Busy,
        WatchError::NotWatched => Kind::NotWatched,
        WatchError::OverLimit(_) | WatchError::OutOfMemory => Kind::Resources,
    }
}

fn modes_of(watcher: Watcher) -> WatchModes {
    match watcher {
        Watcher::Waits | Watcher::Notes => WatchModes::WRITE_PROTECT,
        Watcher::Fills => WatchModes::WRITE_PROTECT | WatchModes::MISSING,
        Watcher::Accesses => WatchModes::READ_WRITE_PROTECT,
    }
}

fn in_model(process: usize, watcher: Watcher) -> terms::Watch {
    terms::Watch {
        number: process,
        asynchronous: watcher == Watcher::Notes,
        fills: watcher == Watcher::Fills,
        accesses: watcher == Watcher::Accesses,
    }
}

impl<M: TestMachine> Lockstep<M> {
    /// Returns the process's userfaultfd context of the kind `kind`. Creates the context if it does not exist yet.
    pub(super) fn watcher(&mut self, process: usize, kind: Watcher) -> Result<Watch, Difference> {
        let own = |(owner, of, _): &&(usize, Watcher, Watch)| (*owner, *of) == (process, kind);
        if let Some((.., watch)) = self.watchers.iter().find(own) {
            return Ok(watch.clone());
        }
        let watch = Watch::try_new(uffd::Watcher {
            number: process as u64,
            asynchronous: kind == Watcher::Notes,
            unpopulated: true,
            counts_accesses: true.into(),
            events: uffd::WatchEvents::empty(),
        })
        .map_err(|_| Difference::Exhausted)?;
        self.watchers.push((process, kind, watch.clone()));
        Ok(watch)
    }

    pub(super) fn watch(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        kind: Watcher,
    ) -> Result<(), Difference> {
        self.by_watcher(
            ("watch", process, cpu, range, kind),
            |space, at, length, watch| space.uffd().watch(at, length, watch, modes_of(kind)),
            |model, from, pages, watch| model.watch(process, from, pages, watch),
        )
    }

    pub(super) fn unwatch(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        kind: Watcher,
    ) -> Result<(), Difference> {
        self.by_watcher(
            ("unwatch", process, cpu, range, kind),
            |space, at, length, watch| space.uffd().unwatch(at, length, watch),
            |model, from, pages, watch| model.unwatch(process, from, pages, watch),
        )
    }

    pub(super) fn write_protect(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        kind: Watcher,
        protect: bool,
    ) -> Result<(), Difference> {
        self.by_watcher(
            ("write-protect", process, cpu, range, kind),
            |space, at, length, _| space.uffd().write_protect(at, length, protect),
            |model, from, pages, _| model.write_protect(process, from, pages, protect),
        )
    }

    /// Performs an operation of a userfaultfd on a range, in the memory manager and in the model.
    pub(super) fn by_watcher(
        &mut self,
        (what, process, cpu, range, kind): (&'static str, usize, CpuId, Range, Watcher),
        real: impl FnOnce(&Space<M>, VirtAddr, u64, &Watch) -> Result<(), WatchError>,
        model: impl FnOnce(&mut Model, u64, u64, terms::Watch) -> Result<(), Refusal>,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let watch = self.watcher(process, kind)?;
        let real = self.processes[&process].on(cpu, |space| {
            real(space, address(from), bytes(pages), &watch)
        });
        let expected = model(&mut self.model, from, pages, in_model(process, kind));
        if agree(what, expected, real.map_err(kind_of_watch))? {
            self.succeeded(what);
        }
        Ok(())
    }

    pub(super) fn scan(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        protect: bool,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let (found, outcome) = self.processes[&process].on(cpu, |space| {
            scanned(space, from, pages, &for_written(protect))
        });
        if outcome == Err(WatchError::OutOfMemory) {
            return Err(Difference::Exhausted);
        }
        if outcome != Ok(Page::new(from + pages)) {
            return disagree(format!("scan: {outcome:?}"));
        }
        compare(self.scale, self.model.written(process, from, pages), &found)
            .map_err(|difference| Difference::Disagreement(format!("scan: {difference}")))?;
        if protect {
            for page in found {
                self.model.protect_again(process, page);
            }
        }
        self.succeeded("scan");
        Ok(())
    }

    pub(super) fn clear_soft_dirty(&mut self, process: usize, cpu: CpuId) {
        self.processes[&process].on(cpu, |space| space.tracking().clear_soft_dirty());
        self.model.clear_soft_dirty(process);
        self.clears = true;
        self.succeeded("clear soft-dirty");
    }

    /// Collapses a range into huge pages. The model does not determine whether that is possible, so every result is
    /// accepted except a lack of memory.
    pub(super) fn collapse(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let real = self.processes[&process].on(cpu, |space| {
            space.advise(address(from), bytes(pages), memwright::Advice::Collapse)
        });
        match real {
            Ok(_) => self.succeeded("collapse"),
            Err(AdviseError::Hole(_)) if self.model.rights(process).count() == 0 => {}
            Err(AdviseError::OutOfMemory) => return Err(Difference::Exhausted),
            Err(_) => self.succeeded("collapse refused"),
        }
        Ok(())
    }

    /// Splits the folios of a range, which no program can observe.
    pub(super) fn split(&mut self, process: usize, cpu: CpuId, range: Range, order: u8) {
        let (from, pages) = self.scale.range(range);
        let range = PageRange::new(Page::new(from), Page::new(from + pages));
        let order = order.into();
        let splits = self.processes[&process].on(cpu, |space| {
            space
                .huge_pages()
                .split_folios(range, FolioSplit { order, at: None })
        });
        if splits.split > 0 {
            self.succeeded("split");
        }
    }

    /// Determines which pages freed by `MADV_FREE` were discarded, among those registered with a userfaultfd, and
    /// updates the model. A discarded page is no longer write-protected.
    pub(super) fn find_gone(&mut self, process: usize) {
        let uncertain: Vec<u64> = self.model.uncertain(process).collect();
        for page in uncertain {
            let range = PageRange::single(Page::new(page));
            let mut is_there = false;
            self.processes[&process]
                .space()
                .usage()
                .survey(range, |sight: Sight<'_, M>| {
                    if let Sight::Entry(_, extent, _) = sight {
                        is_there |= match extent.entry {
                            // A discarded anonymous page leaves no marker. A page with a marker was protected before it
                            // was populated, and still is.
                            Entry::Present(_)
                            | Entry::Swapped(_)
                            | Entry::Migrating(_)
                            | Entry::Marker(_) => true,
                            Entry::Empty => false,
                        };
                    }
                    true
                });
            if !is_there {
                self.model.went(process, page);
            }
        }
    }

    /// Determines which pages of private mappings of objects were copied although no store to them succeeded: a refused
    /// store can copy a page.
    pub(super) fn find_copied(&mut self, process: usize) {
        let pages: Vec<u64> = self.model.may_have_copied(process).collect();
        for page in pages {
            let frames = self.host.frames();
            let table = self.processes[&process].space().table();
            let mut cursor = table.look(PageRange::single(Page::new(page)));
            let entry = cursor.next_filled().map(|extent| extent.entry);
            let has_copied = match entry {
                Some(Entry::Present(page)) => matches!(
                    frames.kind(page.frame),
                    FrameKind::Anonymous | FrameKind::Merged
                ),
                Some(Entry::Swapped(_) | Entry::Migrating(_)) => true,
                Some(Entry::Empty | Entry::Marker(_)) | None => false,
            };
            self.model.copied(process, page, has_copied);
        }
    }

    /// Allows a store to mark its whole huge page or folio soft-dirty, as on Linux. Folios of an object are aligned in
    /// the object, wherever a mapping maps them.
    pub(super) fn spread_soft_dirty(&mut self, process: usize) {
        let most = self.largest;
        let folios = |model: &Model, page: u64| {
            let shared = model.shared_page(process, page);
            let shared = shared.map(|(object, index)| (Some(object), index / most));
            [Some((None, page / most)), shared]
        };
        let all: Vec<(u64, Stored)> = self.model.soft_dirty(process).collect();
        let stored = all.iter().filter(|(_, stored)| *stored != Stored::No);
        let stored: BTreeSet<_> = stored
            .flat_map(|(page, _)| folios(&self.model, *page))
            .flatten()
            .collect();
        for (page, _) in all {
            let mut folios = folios(&self.model, page).into_iter().flatten();
            if folios.any(|folio| stored.contains(&folio)) {
                self.model.blur_soft_dirty(process, page);
            }
        }
    }

    /// Compares with the model which pages count as written, without accessing them.
    pub(super) fn check_tracking(&self, number: usize, process: &Process<M>) -> Result<(), String> {
        let (start, end) = (self.scale.start(), self.scale.end());
        let pages = end - start;
        let noting = self
            .watchers
            .iter()
            .any(|(owner, kind, _)| *owner == number && *kind == Watcher::Notes);
        if noting {
            let (found, outcome) = scanned(process.space(), start, pages, &for_written(false));
            if outcome != Ok(Page::new(end)) {
                return Err(format!("process {number}: scan: {outcome:?}"));
            }
            compare(self.scale, self.model.written(number, start, pages), &found)
                .map_err(|difference| format!("process {number}: {difference}"))?;
        }
        self.check_armed(number, process)?;
        if self.clears {
            compare(
                self.scale,
                self.model.soft_dirty(number),
                &soft_dirty(process),
            )
            .map_err(|difference| format!("process {number}: soft-dirty: {difference}"))?;
        }
        Ok(())
    }
}

/// Scans a range. Returns the pages that the scan selects, and its result.
pub(super) fn scanned<M: TestMachine>(
    space: &Space<M>,
    from: u64,
    pages: u64,
    scan: &Scan,
) -> (Vec<u64>, Result<Page, WatchError>) {
    let range = PageRange::new(Page::new(from), Page::new(from + pages));
    let mut found = Found(Vec::new());
    let outcome = space.tracking().scan(range, scan, &mut found);
    (found.0, outcome)
}

/// The pages that a scan has selected. Their number is not limited, so the scan can protect several pages at a time.
struct Found(Vec<u64>);

impl Take for Found {
    fn take(&mut self, run: PageRange, _categories: Categories, _share: Share) -> u64 {
        self.0.extend(run.iter().map(Page::number));
        run.len()
    }

    fn room(&self) -> u64 {
        u64::MAX
    }
}

/// Returns the soft-dirty pages.
fn soft_dirty<M: TestMachine>(process: &Process<M>) -> Vec<u64> {
    let range = M::Arch::USER;
    let mut found = Vec::new();
    process
        .space()
        .usage()
        .survey(range, |sight: Sight<'_, M>| {
            match sight {
                Sight::Area(area) => {
                    if area.flags().contains(AreaFlags::SOFT_DIRTY) {
                        found.extend(area.range().intersect(range).iter());
                    }
                }
                Sight::Entry(area, extent, _) => {
                    let bits = match extent.entry {
                        Entry::Present(page) => page.bits,
                        Entry::Swapped(page) => page.bits,
                        Entry::Empty | Entry::Marker(_) | Entry::Migrating(_) => Bits::empty(),
                    };
                    if area.is_soft_dirty(bits) && !area.flags().contains(AreaFlags::SOFT_DIRTY) {
                        found.extend(extent.range.iter());
                    }
                }
            }
            true
        });
    found.into_iter().map(Page::number).collect()
}

/// Checks that `found` contains each page that must count as written, and no page that must not. `expected` and `found`
/// are in ascending order.
fn compare(
    scale: Scale,
    expected: impl Iterator<Item = (u64, Stored)>,
    found: &[u64],
) -> Result<(), String> {
    for (page, stored) in expected {
        let counts = found.binary_search(&page).is_ok();
        let name = || scale.name(page);
        match stored {
            Stored::No if counts => return Err(format!("{} counts as written", name())),
            Stored::Yes if !counts => {
                return Err(format!("{} was written, and does not count so", name()));
            }
            Stored::No | Stored::Yes | Stored::Maybe => {}
        }
    }
    Ok(())
}
