//! A model of the contents of memory and of the permitted accesses: slow, obvious, and independent of the
//! implementation.
//!
//! Every process has its own record of every page that it maps. A private page has a value, which is copied when the
//! process forks. A shared page refers to a page of an object. The model has no frames, reference counts, exclusivity
//! or faults, and no huge pages, swap, nodes or merged pages: none of these may be visible to a program. The one
//! exception is `MADV_FREE`: a program can observe whether a page that it has freed in this way was discarded.
//!
//! The model tracks for each page whether it was written since write tracking was last reset. Where Linux's interfaces
//! may report an unwritten page as written, the state is [`Stored::Maybe`]. The model is exact about the pages that
//! count as accessed since they were read-write-protected, except that only pages in memory or in swap are protected.

mod access;
mod advise;
mod armed;
mod fork;
mod map;
mod object;
mod page;
mod remap;
mod soft_dirty;
mod watch;

pub use page::{Armed, ObjectNumber, PAGE, Source, Stored};

use alloc::vec::Vec;

use crate::terms::Rights;
use alloc::collections::BTreeMap;
use page::{Contents, Mapped};

/// Why an access or an operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing is mapped at this page.
    Hole(u64),
    /// The rights at this page forbid it.
    Denied(u64),
    /// The object ends before this page.
    BeyondObject(u64),
    /// The operation does not apply to the mapping of this page.
    NotApplicable(u64),
    /// The mapping of this page is sealed.
    Sealed(u64),
    /// A store to this page must wait for the userfaultfd handler.
    Protected(u64),
    /// This page is registered with a userfaultfd, but not with that of the call.
    Watched(u64),
    /// The page is not registered with the userfaultfd of the call.
    NotWatched,
    /// The page exists already: it was stored to, or has a guard marker.
    Exists(u64),
    /// The arguments contradict each other.
    Invalid,
}

/// The pages of one process.
#[derive(Clone, Debug, Default)]
pub struct Space {
    pages: BTreeMap<u64, Mapped>,
    /// Whether accesses to read-write-protected pages wait for the userfaultfd handler.
    accesses_wait: bool,
}

/// The pages of an object, one element each. The length of the vector is the size of the object.
#[derive(Clone, Debug, Default)]
struct Object {
    pages: Vec<Contents>,
    /// Whether the object is memory rather than a file on a disk. Memory can be registered for userfaultfd write
    /// protection.
    memory: bool,
}

/// Processes and objects.
#[derive(Clone, Debug, Default)]
pub struct Model {
    spaces: BTreeMap<usize, Space>,
    objects: Vec<Object>,
}

impl Model {
    /// Creates a process without mappings.
    pub fn create_process(&mut self, process: usize) {
        self.spaces.insert(process, Space::default());
    }

    /// Removes a process.
    pub fn exit(&mut self, process: usize) {
        self.spaces.remove(&process);
    }

    /// Returns the numbers of all processes.
    pub fn processes(&self) -> impl Iterator<Item = usize> + '_ {
        self.spaces.keys().copied()
    }

    /// Returns the rights of every mapped page, in order.
    pub fn rights(&self, process: usize) -> impl Iterator<Item = (u64, Rights)> + '_ {
        self.spaces[&process]
            .pages
            .iter()
            .map(|(&page, mapped)| (page, mapped.rights))
    }

    /// Returns the mapped pages of a range.
    ///
    /// # Errors
    /// Nothing is mapped in the range.
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

    /// Returns every mapped page of every process.
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

    /// Returns the private contents of a page. If the page has no private copy, creates one with the current contents.
    fn own(&mut self, process: usize, page: u64) -> &mut Contents {
        let now = self.contents(process, page).clone();
        let mapped = self.space(process).pages.get_mut(&page);
        mapped.expect("a mapped page").own.get_or_insert(now)
    }
}
