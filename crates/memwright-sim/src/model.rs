//! What memory must contain and permit: slow, obvious, and written without the implementation.
//!
//! Every process owns every page that it maps: a private page is a value, copied when the process
//! forks, and a shared page names a page of an object. There are no frames, no reference counts,
//! no exclusivity and no faults here; whatever the implementation does about those must not show.
//! Nor are there huge pages, swap, nodes or merged pages: that memory is mapped in larger pieces, that it is elsewhere or
//! shared with its equals must not show either. Only of what was said to be unneeded one may see that it went.
//!
//! What was written since somebody last asked is kept for each page, with a third answer: where Linux's
//! interfaces let a page that nobody wrote count as written, the model says [`Stored::Maybe`].

use std::collections::BTreeMap;

use crate::terms::{Advice, Intent, Remap, Rights, Watch};

/// Bytes of one page.
pub const PAGE: usize = 4096;

/// What a page contains; `None` is all zero.
type Contents = Option<Box<[u8; PAGE]>>;

/// Whether these bytes are there from `offset` on.
fn shows(contents: &Contents, offset: usize, bytes: &[u8]) -> bool {
    match contents {
        Some(contents) => contents[offset..].starts_with(bytes),
        None => bytes.iter().all(|&byte| byte == 0),
    }
}

fn store(contents: &mut Contents, offset: usize, value: u8) {
    contents.get_or_insert_with(|| Box::new([0; PAGE]))[offset] = value;
}

/// A file or a piece of shared memory, by number.
pub type ObjectNumber = usize;

/// What a new mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zeroes, each process its own.
    Anonymous,
    /// An object's pages from `index` on, until the process writes: then its own copy.
    Private {
        /// The object.
        object: ObjectNumber,
        /// The object's page that the first page of the mapping shows.
        index: u64,
    },
    /// An object's pages from `index` on.
    Shared {
        /// The object.
        object: ObjectNumber,
        /// The object's page that the first page of the mapping shows.
        index: u64,
    },
}

impl Source {
    /// The page of an object that is shown here, unless the process has its own.
    fn object(self) -> Option<(ObjectNumber, u64)> {
        match self {
            Self::Anonymous => None,
            Self::Private { object, index } | Self::Shared { object, index } => {
                Some((object, index))
            }
        }
    }

    fn advanced(self, pages: u64) -> Self {
        match self {
            Self::Anonymous => Self::Anonymous,
            Self::Private { object, index } => Self::Private {
                object,
                index: index + pages,
            },
            Self::Shared { object, index } => Self::Shared {
                object,
                index: index + pages,
            },
        }
    }
}

/// What a child does not get of a page: two flags, of which the first one wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OnFork {
    /// Nothing is mapped there (`MADV_DONTFORK`).
    omit: bool,
    /// It is zero there (`MADV_WIPEONFORK`).
    wipe: bool,
}

/// Whether a page was written since somebody last asked for such stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stored {
    /// It was not, and may not count as if.
    No,
    /// It was, and must count so.
    Yes,
    /// Nobody asked yet, or what was there went: it may count as either.
    #[default]
    Maybe,
}

impl Stored {
    /// Something happened that may count as a store.
    fn blur(&mut self) {
        if *self == Self::No {
            *self = Self::Maybe;
        }
    }

    /// What was written went, and may count as written still.
    fn lose(&mut self) {
        *self = Self::Maybe;
    }
}

#[derive(Clone, Debug)]
struct Mapped {
    rights: Rights,
    source: Source,
    /// A private page's contents once it has any of its own.
    own: Option<Contents>,
    /// What it contains if that went (`MADV_FREE`): zeroes, with what was stored since. Which of the two it is shows
    /// when somebody looks.
    otherwise: Option<Contents>,
    /// A store was refused where the page showed its object's contents, or memory may have run out before they were
    /// copied: it may have contents of its own since then.
    may_have_copied: bool,
    on_fork: OnFork,
    /// Every access is refused as if nothing were mapped.
    guard: bool,
    /// Neither the mapping nor its rights change any more (`mseal`).
    sealed: bool,
    watch: Option<Watch>,
    /// Since it was write-protected for its watcher. A page that may not count as written is protected.
    since_protected: Stored,
    /// Since soft-dirty was cleared.
    since_cleared: Stored,
}

impl Mapped {
    /// Nothing happened yet.
    fn new(rights: Rights, source: Source) -> Self {
        Self {
            rights,
            source,
            own: None,
            otherwise: None,
            may_have_copied: false,
            on_fork: OnFork::default(),
            guard: false,
            sealed: false,
            watch: None,
            since_protected: Stored::Maybe,
            since_cleared: Stored::Maybe,
        }
    }

    /// Whether a store is refused because the page is write-protected.
    fn is_protected(&self) -> bool {
        let refuses = self.watch.is_some_and(|watch| !watch.asynchronous);
        refuses && self.since_protected == Stored::No
    }

    /// Stores are for its watcher to allow, or to hear of, from now on. A guard stays one.
    fn protect(&mut self, on: bool) {
        self.since_protected = match on && !self.guard {
            true => Stored::No,
            false => Stored::Maybe,
        };
    }

    fn stored(&mut self) {
        (self.since_protected, self.since_cleared) = (Stored::Yes, Stored::Yes);
    }

    /// Whether the page is one of an object's.
    fn shows(&self, which: ObjectNumber, indices: std::ops::Range<u64>) -> bool {
        let shown = self.source.object();
        shown.is_some_and(|(object, index)| object == which && indices.contains(&index))
    }

    /// What was here is gone, by the process's own wish. The protection of what is no anonymous memory outlives it.
    fn dropped(&mut self) {
        (self.own, self.otherwise) = (None, None);
        self.since_cleared.lose();
        if self.source == Source::Anonymous || self.since_protected == Stored::Yes {
            self.since_protected.lose();
        }
    }

    /// `MADV_FREE`: the page may be discarded until it is written again. A page of zeroes that a folio brought along is
    /// discarded too, and its write-protection goes with it.
    fn may_go(&mut self) {
        self.otherwise = Some(None);
        if self.own.is_some() {
            self.since_cleared.lose();
        }
    }

    /// It is at another place now, and nobody was told.
    fn moved(&mut self) {
        self.watch = None;
        self.since_protected.lose();
        self.since_cleared.lose();
    }
}

/// Why an access or an operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing is mapped at this page.
    Hole(u64),
    /// The rights at this page forbid it.
    Denied(u64),
    /// The object ends before this page.
    BeyondObject(u64),
    /// The operation does not apply to what is mapped at this page.
    NotApplicable(u64),
    /// What is mapped at this page is sealed.
    Sealed(u64),
    /// A store to this page is for its watcher to allow.
    Protected(u64),
    /// This page has another watcher.
    Watched(u64),
    /// This page has not this watcher.
    NotWatched,
    /// Something was stored in this page.
    Exists(u64),
    /// The arguments contradict each other.
    Invalid,
}

/// The pages of one process.
#[derive(Clone, Debug, Default)]
pub struct Space {
    pages: BTreeMap<u64, Mapped>,
}

/// An object's pages; it ends where they do.
#[derive(Clone, Debug, Default)]
struct Object {
    pages: Vec<Contents>,
    /// Not a file on a disk: stores to it may be refused through userfaultfd.
    memory: bool,
}

/// Processes and objects.
#[derive(Clone, Debug, Default)]
pub struct Model {
    spaces: BTreeMap<usize, Space>,
    objects: Vec<Object>,
}

impl Model {
    /// A new object of zeroes, in memory or on a disk.
    pub fn create_object(&mut self, pages: u64, memory: bool) -> ObjectNumber {
        self.objects.push(Object {
            pages: vec![None; pages as usize],
            memory,
        });
        self.objects.len() - 1
    }

    /// A new process that maps nothing.
    pub fn create_process(&mut self, process: usize) {
        self.spaces.insert(process, Space::default());
    }

    /// The process is gone.
    pub fn exit(&mut self, process: usize) {
        self.spaces.remove(&process);
    }

    /// The processes that live.
    pub fn processes(&self) -> impl Iterator<Item = usize> + '_ {
        self.spaces.keys().copied()
    }

    /// `MAP_FIXED`: what was there is gone.
    ///
    /// # Errors
    /// A sealed page of the range: then all is as before.
    pub fn map(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        rights: Rights,
        source: Source,
    ) -> Result<(), Refusal> {
        self.check_seals(process, from, pages)?;
        self.became_soft_dirty(process);
        for page in 0..pages {
            let mapped = Mapped::new(rights, source.advanced(page));
            self.space(process).pages.insert(from + page, mapped);
        }
        Ok(())
    }

    /// Whether no page of a range is sealed.
    ///
    /// # Errors
    /// The first that is.
    pub fn check_seals(&self, process: usize, from: u64, pages: u64) -> Result<(), Refusal> {
        let mut range = self.spaces[&process].pages.range(from..from + pages);
        match range.find(|(_, mapped)| mapped.sealed) {
            Some((&page, _)) => Err(Refusal::Sealed(page)),
            None => Ok(()),
        }
    }

    /// `mseal`
    ///
    /// # Errors
    /// The first hole: then nothing is sealed.
    pub fn seal(&mut self, process: usize, from: u64, pages: u64) -> Result<(), Refusal> {
        for page in from..from + pages {
            self.mapped(process, page)?;
        }
        for page in from..from + pages {
            self.mapped(process, page)?.sealed = true;
        }
        Ok(())
    }

    /// `MAP_POPULATE`: as `MADV_POPULATE_WRITE` where the process may write pages of its own, else as
    /// `MADV_POPULATE_READ`; stops silently at the first page that cannot be had.
    pub fn populate(&mut self, process: usize, from: u64, pages: u64) {
        let Ok(first) = self.mapped(process, from).cloned() else {
            return;
        };
        let shared = matches!(first.source, Source::Shared { .. });
        let write = first.rights.write && !shared;
        let advice = if write {
            Advice::PopulateWrite
        } else {
            Advice::PopulateRead
        };
        // What stops it is found again by the access that needs the page.
        let _ = self.advise(process, from, pages, advice);
    }

    /// `MAP_POPULATE` where memory may run out, which ends it silently: which of an object's pages it copied is to be
    /// [looked for](Self::may_have_copied).
    pub fn populate_some(&mut self, process: usize, from: u64, pages: u64) {
        for (_, mapped) in self.space(process).pages.range_mut(from..from + pages) {
            let is_private = matches!(mapped.source, Source::Private { .. });
            mapped.may_have_copied |= is_private && mapped.rights.write && mapped.own.is_none();
        }
    }

    /// Nothing is mapped in the range afterwards.
    ///
    /// # Errors
    /// A sealed page of the range: then all is as before.
    pub fn unmap(&mut self, process: usize, from: u64, pages: u64) -> Result<(), Refusal> {
        self.check_seals(process, from, pages)?;
        self.space(process)
            .pages
            .retain(|&page, _| page < from || from + pages <= page);
        Ok(())
    }

    /// The rights change page by page until a hole or a sealed page.
    ///
    /// # Errors
    /// The first of these.
    pub fn protect(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        rights: Rights,
    ) -> Result<(), Refusal> {
        for page in from..from + pages {
            let mapped = self.mapped(process, page)?;
            if mapped.sealed {
                return Err(Refusal::Sealed(page));
            }
            mapped.rights = rights;
        }
        Ok(())
    }

    /// Whether all pages of a range are mapped alike, so that they may be one area.
    #[must_use]
    pub fn is_uniform(&self, process: usize, from: u64, pages: u64) -> bool {
        let space = &self.spaces[&process];
        let Some(first) = space.pages.get(&from) else {
            return false;
        };
        (1..pages).all(|page| {
            space.pages.get(&(from + page)).is_some_and(|here| {
                here.rights == first.rights
                    && here.on_fork == first.on_fork
                    && here.sealed == first.sealed
                    && here.watch == first.watch
                    && here.source == first.source.advanced(page)
            })
        })
    }

    /// Whether anything is mapped in a range.
    #[must_use]
    pub fn is_free(&self, process: usize, from: u64, pages: u64) -> bool {
        let mut range = self.spaces[&process].pages.range(from..from + pages);
        range.next().is_none()
    }

    /// Whether `mremap` of a [uniform](Self::is_uniform) range must be refused.
    ///
    /// # Errors
    /// Why.
    pub fn may_remap(&self, remap: Remap) -> Result<(), Refusal> {
        if remap.keep && remap.pages != remap.new_pages {
            return Err(Refusal::Invalid);
        }
        if let Some(to) = remap.to {
            if to < remap.from + remap.pages && remap.from < to + remap.new_pages {
                return Err(Refusal::Invalid);
            }
        }
        Ok(())
    }

    /// Moves and resizes a uniform range; `to` is where it is now.
    ///
    /// # Panics
    /// If the range is not mapped.
    pub fn remap(&mut self, process: usize, remap: Remap, to: u64) {
        let first = self
            .mapped(process, remap.from)
            .expect("a mapped range")
            .clone();
        if to != remap.from {
            self.unmap(process, to, remap.new_pages)
                .expect("a place that may be replaced");
        }
        self.became_soft_dirty(process);
        let space = self.space(process);
        let mut moved = Vec::new();
        for page in 0..remap.pages {
            if let Some(mapped) = space.pages.remove(&(remap.from + page)) {
                moved.push(mapped);
            }
        }
        for page in 0..remap.new_pages {
            let fresh = Mapped {
                on_fork: first.on_fork,
                sealed: first.sealed,
                watch: first.watch,
                ..Mapped::new(first.rights, first.source.advanced(page))
            };
            let mut mapped = moved
                .get(page as usize)
                .cloned()
                .unwrap_or_else(|| fresh.clone());
            if to != remap.from {
                mapped.moved();
            }
            space.pages.insert(to + page, mapped);
            if remap.keep {
                space.pages.insert(remap.from + page, fresh);
            }
        }
    }

    /// Moves whatever is mapped in the range, with the holes between: what lies at the new place of a hole
    /// stays (Linux 6.17 and later, for `MREMAP_FIXED` without a change of length).
    pub fn move_each(&mut self, process: usize, remap: Remap, to: u64) {
        self.became_soft_dirty(process);
        let space = self.space(process);
        let mut moved = Vec::new();
        for page in 0..remap.pages {
            if let Some(mut mapped) = space.pages.remove(&(remap.from + page)) {
                if remap.keep {
                    let mut fresh = mapped.clone();
                    fresh.dropped();
                    (fresh.guard, fresh.since_protected) = (false, Stored::Maybe);
                    space.pages.insert(remap.from + page, fresh);
                }
                mapped.moved();
                moved.push((to + page, mapped));
            }
        }
        space.pages.extend(moved);
    }

    /// Follows advice page by page. `Drop` and the advice for forks skip holes and report the first
    /// one; the rest stops there.
    ///
    /// # Errors
    /// The first page that the advice could not be followed for.
    pub fn advise(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        advice: Advice,
    ) -> Result<(), Refusal> {
        let mut hole = Ok(());
        for page in from..from + pages {
            if let Err(refusal) = self.advise_page(process, page, advice) {
                let skips = !matches!(advice, Advice::PopulateRead | Advice::PopulateWrite);
                match refusal {
                    Refusal::Hole(_) if skips => hole = hole.and(Err(refusal)),
                    _ => return Err(refusal),
                }
            }
        }
        hole
    }

    fn advise_page(&mut self, process: usize, page: u64, advice: Advice) -> Result<(), Refusal> {
        let mapped = self.mapped(process, page)?;
        let anonymous = mapped.source == Source::Anonymous;
        let discards = matches!(
            advice,
            Advice::Drop
                | Advice::Free
                | Advice::OmitOnFork
                | Advice::WipeOnFork
                | Advice::InstallGuard
        );
        if discards && mapped.sealed && anonymous && !mapped.rights.write {
            return Err(Refusal::Sealed(page));
        }
        match advice {
            Advice::Drop => mapped.dropped(),
            Advice::WantHuge
            | Advice::RefuseHuge
            | Advice::Cold
            | Advice::PageOut
            | Advice::Mergeable
            | Advice::Unmergeable => {}
            Advice::Free if anonymous => mapped.may_go(),
            Advice::OmitOnFork => mapped.on_fork.omit = true,
            Advice::InheritOnFork => mapped.on_fork.omit = false,
            Advice::WipeOnFork if anonymous => mapped.on_fork.wipe = true,
            Advice::KeepOnFork => mapped.on_fork.wipe = false,
            Advice::InstallGuard => {
                mapped.dropped();
                (mapped.guard, mapped.since_protected) = (true, Stored::Maybe);
            }
            Advice::RemoveGuard => mapped.guard = false,
            Advice::Free | Advice::WipeOnFork => return Err(Refusal::NotApplicable(page)),
            Advice::PopulateRead => self.permit_populate(process, page, Intent::Read)?,
            Advice::PopulateWrite => {
                let permitted = self.permit_populate(process, page, Intent::Write);
                if let Err(Refusal::Protected(page)) = permitted {
                    self.refuse_store(process, page);
                }
                permitted?;
                if !matches!(self.mapped(process, page)?.source, Source::Shared { .. }) {
                    self.own(process, page);
                }
                let mapped = self.mapped(process, page)?;
                mapped.since_protected.blur();
                mapped.since_cleared.blur();
            }
        }
        Ok(())
    }

    /// To populate what the rights forbid is no refused access but a wrong argument. That a write implies reading
    /// does not count here.
    fn permit_populate(&self, process: usize, page: u64, intent: Intent) -> Result<(), Refusal> {
        let mapped = self.spaces[&process].pages.get(&page);
        if intent == Intent::Read && mapped.is_some_and(|mapped| !mapped.rights.read) {
            return Err(Refusal::NotApplicable(page));
        }
        self.permit(process, page, intent)
            .map_err(|refusal| match refusal {
                Refusal::Denied(page) => Refusal::NotApplicable(page),
                other => other,
            })
    }

    /// A child with a copy of every page, made here and now.
    pub fn fork(&mut self, parent: usize, child: usize) {
        let mut copy = self.space(parent).clone();
        copy.pages.retain(|_, mapped| !mapped.on_fork.omit);
        for mapped in copy.pages.values_mut() {
            // Nobody watches the child, and of what it can find again nothing is copied.
            (mapped.watch, mapped.since_protected) = (None, Stored::Maybe);
            if mapped.since_cleared == Stored::Yes {
                mapped.since_cleared.lose();
            }
            if mapped.on_fork.wipe {
                mapped.dropped();
                mapped.guard = false;
            }
        }
        self.spaces.insert(child, copy);
    }

    /// Whether a process may access a page.
    ///
    /// # Errors
    /// Why not.
    pub fn permit(&self, process: usize, page: u64, intent: Intent) -> Result<(), Refusal> {
        let space = &self.spaces[&process];
        let mapped = space.pages.get(&page).ok_or(Refusal::Hole(page))?;
        let granted = match intent {
            Intent::Read => mapped.rights.any(),
            Intent::Write => mapped.rights.write,
            Intent::Fetch => mapped.rights.execute,
        };
        if !granted {
            return Err(Refusal::Denied(page));
        }
        if mapped.guard {
            return Err(Refusal::Hole(page));
        }
        if intent == Intent::Write && mapped.is_protected() {
            return Err(Refusal::Protected(page));
        }
        if self.may_be_present(process, page) {
            Ok(())
        } else {
            Err(Refusal::BeyondObject(page))
        }
    }

    /// A store of one byte.
    ///
    /// # Errors
    /// Why not.
    pub fn write(
        &mut self,
        process: usize,
        page: u64,
        offset: usize,
        value: u8,
    ) -> Result<(), Refusal> {
        let permitted = self.permit(process, page, Intent::Write);
        if let Err(Refusal::Protected(page)) = permitted {
            self.refuse_store(process, page);
        }
        permitted?;
        self.mapped(process, page)?.stored();
        let source = self.mapped(process, page)?.source;
        if let Source::Shared { object, index } = source {
            store(
                &mut self.objects[object].pages[index as usize],
                offset,
                value,
            );
            return Ok(());
        }
        store(self.own(process, page), offset, value);
        if let Some(otherwise) = &mut self.mapped(process, page)?.otherwise {
            store(otherwise, offset, value);
        }
        Ok(())
    }

    /// A watcher refuses a store. What was not there may be from now on, as a page that is new, and a private page of an
    /// object as a copy (Linux 7.2 `mm/memory.c`, `do_anonymous_page`, `set_pte_range`, `do_cow_fault`).
    fn refuse_store(&mut self, process: usize, page: u64) {
        self.blur_soft_dirty(process, page);
        if let Ok(mapped) = self.mapped(process, page) {
            let is_private = matches!(mapped.source, Source::Private { .. });
            mapped.may_have_copied = is_private && mapped.own.is_none();
        }
    }

    /// Pages of an object that the last step may have copied, by a refused store or while memory ran out.
    pub fn may_have_copied(&self, process: usize) -> impl Iterator<Item = u64> + '_ {
        let pages = self.spaces[&process].pages.iter();
        pages
            .filter(|(_, mapped)| mapped.may_have_copied)
            .map(|(&page, _)| page)
    }

    /// Whether the last step copied a page: what is stored in the object later does not show there.
    pub fn copied(&mut self, process: usize, page: u64, has_copied: bool) {
        if let Ok(mapped) = self.mapped(process, page) {
            mapped.may_have_copied = false;
        }
        if has_copied {
            self.own(process, page);
        }
    }

    /// Whether a page, which is mapped, may be seen to contain `bytes` from `offset` on. Where it might have been
    /// otherwise, it is as it was seen from now on.
    pub fn shows(&mut self, process: usize, page: u64, offset: usize, bytes: &[u8]) -> bool {
        let is = |contents: &Contents| shows(contents, offset, bytes);
        let kept = is(self.contents(process, page));
        let Ok(mapped) = self.mapped(process, page) else {
            return kept;
        };
        let gone = mapped.otherwise.as_ref().is_some_and(is);
        if gone && !kept {
            mapped.own = mapped.otherwise.take();
        } else if kept && !gone && mapped.otherwise != Some(None) {
            mapped.otherwise = None;
        }
        kept || gone
    }

    /// Whether the page has something to show: it is mapped and no object ends before it.
    #[must_use]
    pub fn may_be_present(&self, process: usize, page: u64) -> bool {
        let mapped = self.spaces[&process].pages.get(&page);
        mapped.is_some_and(|mapped| {
            let (own, shown) = (mapped.own.is_some(), mapped.source.object());
            let inside = |(object, index)| index < self.object_pages(object);
            !mapped.guard && (own || shown.is_none_or(inside))
        })
    }

    /// Whether no entry may let a store through: its watcher must allow it first.
    #[must_use]
    pub fn refuses_stores(&self, process: usize, page: u64) -> bool {
        self.spaces[&process].pages[&page].is_protected()
    }

    /// Pages that somebody watches, and that may have gone by now: protection goes with them.
    pub fn uncertain(&self, process: usize) -> impl Iterator<Item = u64> + '_ {
        let pages = self.spaces[&process].pages.iter();
        pages
            .filter(|(_, mapped)| mapped.watch.is_some() && mapped.otherwise.is_some())
            .map(|(&page, _)| page)
    }

    /// A page that was allowed to go went.
    pub fn went(&mut self, process: usize, page: u64) {
        if let Ok(mapped) = self.mapped(process, page) {
            mapped.own = mapped.otherwise.take();
            mapped.since_protected.lose();
        }
    }

    /// The rights of every mapped page, in order.
    pub fn rights(&self, process: usize) -> impl Iterator<Item = (u64, Rights)> + '_ {
        self.spaces[&process]
            .pages
            .iter()
            .map(|(&page, mapped)| (page, mapped.rights))
    }

    /// A `write` system call on an object: one byte, inside it.
    pub fn write_object(&mut self, object: ObjectNumber, index: u64, offset: usize, value: u8) {
        store(
            &mut self.objects[object].pages[index as usize],
            offset,
            value,
        );
    }

    /// A `read` system call on an object: one byte, inside it.
    #[must_use]
    pub fn read_object(&self, object: ObjectNumber, index: u64, offset: usize) -> u8 {
        let contents = &self.objects[object].pages[index as usize];
        contents.as_ref().map_or(0, |bytes| bytes[offset])
    }

    /// Where an object ends, in pages.
    #[must_use]
    pub fn object_pages(&self, object: ObjectNumber) -> u64 {
        self.objects[object].pages.len() as u64
    }

    /// `ftruncate`: what lies beyond the new end is gone, private copies of it too.
    pub fn truncate(&mut self, object: ObjectNumber, pages: u64) {
        self.objects[object].pages.resize(pages as usize, None);
        for mapped in self.all() {
            if mapped.shows(object, pages..u64::MAX) {
                mapped.dropped();
            }
        }
    }

    /// `FALLOC_FL_PUNCH_HOLE`: zeroes; private copies stay.
    pub fn punch(&mut self, object: ObjectNumber, index: u64, pages: u64) {
        let all = &mut self.objects[object].pages;
        for contents in all.iter_mut().skip(index as usize).take(pages as usize) {
            *contents = None;
        }
        for mapped in self.all() {
            if mapped.own.is_none() && mapped.shows(object, index..index + pages) {
                mapped.dropped();
            }
        }
    }

    /// Private pages of the object that were filled with zeroes and not stored to since. They go with a hole if the zero
    /// page is what they show (Linux 7.2 `mm/memory.c`, `zap_present_ptes`).
    pub fn filled_with_zeroes(
        &self,
        process: usize,
        object: ObjectNumber,
        index: u64,
        pages: u64,
    ) -> impl Iterator<Item = u64> + '_ {
        let all = self.spaces[&process].pages.iter();
        all.filter(move |(_, mapped)| {
            let is_private = matches!(mapped.source, Source::Private { .. });
            is_private && mapped.own == Some(None) && mapped.shows(object, index..index + pages)
        })
        .map(|(&page, _)| page)
    }

    /// A private page that shows an object lost what it had of its own.
    pub fn lost(&mut self, process: usize, page: u64) {
        if let Ok(mapped) = self.mapped(process, page) {
            mapped.dropped();
        }
    }

    /// Returns the pages of a range that are registered with a watcher.
    pub fn watched(&self, process: usize, from: u64, pages: u64) -> impl Iterator<Item = u64> + '_ {
        let range = self.spaces[&process].pages.range(from..from + pages);
        range
            .filter(|(_, mapped)| mapped.watch.is_some())
            .map(|(&page, _)| page)
    }

    /// Removes the watcher of a page whose area merged with a moved area.
    pub fn lose_watch(&mut self, process: usize, page: u64) {
        if let Ok(mapped) = self.mapped(process, page) {
            mapped.watch = None;
            mapped.since_protected.lose();
        }
    }

    /// Registers the mapped pages of a range with a watcher (`UFFDIO_REGISTER` with write protection).
    ///
    /// # Errors
    /// The first page that cannot be watched so: then none is.
    pub fn watch(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        watch: Watch,
    ) -> Result<(), Refusal> {
        for (page, mapped) in self.in_range(process, from, pages)? {
            if !watch.asynchronous && !self.is_memory(mapped.source) {
                return Err(Refusal::Invalid);
            }
            if mapped.watch.is_some_and(|other| other != watch) {
                return Err(Refusal::Watched(page));
            }
        }
        for (_, mapped) in self.space(process).pages.range_mut(from..from + pages) {
            mapped.watch = Some(watch);
        }
        Ok(())
    }

    /// Nobody watches the pages of the range any more, which `watch` did (`UFFDIO_UNREGISTER`).
    ///
    /// # Errors
    /// A page that another one watches, or that nobody can: then all is as before.
    pub fn unwatch(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        watch: Watch,
    ) -> Result<(), Refusal> {
        for (_, mapped) in self.in_range(process, from, pages)? {
            let unwatched = mapped.watch.is_none() && self.is_memory(mapped.source);
            if !unwatched && mapped.watch != Some(watch) {
                return Err(Refusal::Invalid);
            }
        }
        for (_, mapped) in self.space(process).pages.range_mut(from..from + pages) {
            (mapped.watch, mapped.since_protected) = (None, Stored::Maybe);
        }
        Ok(())
    }

    /// Stores to the pages of the range are refused, or noted, from now on; or no longer (`UFFDIO_WRITEPROTECT`).
    ///
    /// # Errors
    /// Nothing mapped, or a page that nobody watches: those before it have changed.
    pub fn write_protect(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        protect: bool,
    ) -> Result<(), Refusal> {
        let mut result = Err(Refusal::NotWatched);
        for (_, mapped) in self.space(process).pages.range_mut(from..from + pages) {
            if mapped.watch.is_none() {
                return Err(Refusal::NotWatched);
            }
            mapped.protect(protect);
            result = Ok(());
        }
        result
    }

    /// Whether a watcher says what a page of the range contains that nobody touched.
    #[must_use]
    pub fn is_filled(&self, process: usize, from: u64, pages: u64) -> bool {
        let mut range = self.spaces[&process].pages.range(from..from + pages);
        range.any(|(_, mapped)| mapped.watch.is_some_and(|watch| watch.fills))
    }

    /// Whether nobody has stored anything in a page but zeroes where there were some, so that there may be none.
    fn may_be_missing(&self, process: usize, page: u64) -> bool {
        let mapped = &self.spaces[&process].pages[&page];
        let is_zero = |contents: &Contents| shows(contents, 0, &[0; PAGE]);
        match mapped.source {
            Source::Shared { object, index } => {
                let shown = self.objects[object].pages.get(index as usize);
                shown.is_none_or(Option::is_none)
            }
            Source::Private { .. } => mapped.own.is_none(),
            Source::Anonymous => {
                let gone = mapped.otherwise.as_ref();
                is_zero(self.contents(process, page)) || gone.is_some_and(is_zero)
            }
        }
    }

    /// A page gets contents, the same byte everywhere, write-protected or not (`UFFDIO_COPY`, `UFFDIO_ZEROPAGE`).
    ///
    /// # Errors
    /// Nobody watches, or somebody has stored something there. If it was only read, it may have a page too.
    pub fn fill(
        &mut self,
        process: usize,
        page: u64,
        value: u8,
        protect: bool,
    ) -> Result<(), Refusal> {
        let mapped = self.mapped(process, page);
        let mapped = mapped.map_err(|_| Refusal::NotWatched)?.clone();
        mapped.watch.ok_or(Refusal::NotWatched)?;
        if !self.is_memory(mapped.source) {
            return Err(Refusal::Invalid);
        }
        let contents = (value != 0).then(|| Box::new([value; PAGE]));
        let stored = contents.is_some();
        let shown = mapped.source.object();
        if shown.is_some_and(|(object, index)| index >= self.object_pages(object)) {
            return Err(Refusal::BeyondObject(page));
        }
        if mapped.guard || !self.may_be_missing(process, page) {
            return Err(Refusal::Exists(page));
        }
        if let Source::Shared { object, index } = mapped.source {
            self.objects[object].pages[index as usize] = contents;
        } else {
            let mapped = self.mapped(process, page)?;
            (mapped.own, mapped.otherwise) = (Some(contents), None);
        }
        let mapped = self.mapped(process, page)?;
        if stored {
            mapped.stored();
        } else {
            mapped.since_protected.lose();
            mapped.since_cleared.blur();
        }
        if protect {
            mapped.since_protected = Stored::No;
        }
        Ok(())
    }

    /// A page of anonymous memory goes where a watcher fills, and leaves nothing behind (`UFFDIO_MOVE`).
    ///
    /// # Errors
    /// It is no such page, or something was stored there.
    pub fn relocate(&mut self, process: usize, from: u64, to: u64) -> Result<(), Refusal> {
        let target = self.mapped(process, to)?;
        if target.source != Source::Anonymous || target.watch.is_none() {
            return Err(Refusal::NotWatched);
        }
        if target.guard || !self.may_be_missing(process, to) {
            return Err(Refusal::Exists(to));
        }
        let source = self.mapped(process, from)?;
        if source.source != Source::Anonymous || source.guard {
            return Err(Refusal::NotApplicable(from));
        }
        let moved = (source.own.take(), source.otherwise.take());
        let target = self.mapped(process, to)?;
        (target.own, target.otherwise) = moved;
        for page in [from, to] {
            let mapped = self.mapped(process, page)?;
            mapped.since_protected.lose();
            mapped.since_cleared.lose();
        }
        Ok(())
    }

    /// What a scan for written pages must find of those whose stores are noted (`PAGEMAP_SCAN`).
    pub fn written(
        &self,
        process: usize,
        from: u64,
        pages: u64,
    ) -> impl Iterator<Item = (u64, Stored)> + '_ {
        let range = self.spaces[&process].pages.range(from..from + pages);
        let noted =
            range.filter(|(_, mapped)| mapped.watch.is_some_and(|watch| watch.asynchronous));
        noted.map(|(&page, mapped)| (page, mapped.since_protected))
    }

    /// A scan found a page written, and protected it again.
    pub fn protect_again(&mut self, process: usize, page: u64) {
        if let Ok(mapped) = self.mapped(process, page) {
            mapped.protect(true);
        }
    }

    /// From now on only what is written afterwards is soft-dirty (`/proc/PID/clear_refs`).
    pub fn clear_soft_dirty(&mut self, process: usize) {
        for mapped in self.space(process).pages.values_mut() {
            mapped.since_cleared = Stored::No;
        }
    }

    /// A page may count as soft-dirty, though nobody wrote it.
    pub fn blur_soft_dirty(&mut self, process: usize, page: u64) {
        if let Ok(mapped) = self.mapped(process, page) {
            mapped.since_cleared.blur();
        }
    }

    /// Which pages must be soft-dirty, and which must not.
    pub fn soft_dirty(&self, process: usize) -> impl Iterator<Item = (u64, Stored)> + '_ {
        let pages = self.spaces[&process].pages.iter();
        pages.map(|(&page, mapped)| (page, mapped.since_cleared))
    }

    /// A new area is soft-dirty as a whole, and so is any that it becomes one with.
    fn became_soft_dirty(&mut self, process: usize) {
        for mapped in self.space(process).pages.values_mut() {
            mapped.since_cleared.blur();
        }
    }

    /// The mapped pages of a range.
    ///
    /// # Errors
    /// There are none.
    fn in_range(
        &self,
        process: usize,
        from: u64,
        pages: u64,
    ) -> Result<impl Iterator<Item = (u64, &Mapped)>, Refusal> {
        let range = self.spaces[&process].pages.range(from..from + pages);
        let mut range = range.map(|(&page, mapped)| (page, mapped)).peekable();
        range.peek().ok_or(Refusal::Invalid)?;
        Ok(range)
    }

    fn is_memory(&self, source: Source) -> bool {
        source
            .object()
            .is_none_or(|(object, _)| self.objects[object].memory)
    }

    /// Every mapped page.
    fn all(&mut self) -> impl Iterator<Item = &mut Mapped> {
        let spaces = self.spaces.values_mut();
        spaces.flat_map(|space| space.pages.values_mut())
    }

    fn space(&mut self, process: usize) -> &mut Space {
        self.spaces.get_mut(&process).expect("a process that lives")
    }

    fn mapped(&mut self, process: usize, page: u64) -> Result<&mut Mapped, Refusal> {
        self.space(process)
            .pages
            .get_mut(&page)
            .ok_or(Refusal::Hole(page))
    }

    fn contents(&self, process: usize, page: u64) -> &Contents {
        let mapped = &self.spaces[&process].pages[&page];
        match (&mapped.own, mapped.source.object()) {
            (Some(own), _) => own,
            (None, None) => &None,
            (None, Some((object, index))) => &self.objects[object].pages[index as usize],
        }
    }

    /// The process's own contents of a private page, made now if it had none.
    fn own(&mut self, process: usize, page: u64) -> &mut Contents {
        let now = self.contents(process, page).clone();
        let mapped = self.space(process).pages.get_mut(&page);
        mapped.expect("a mapped page").own.get_or_insert(now)
    }
}
