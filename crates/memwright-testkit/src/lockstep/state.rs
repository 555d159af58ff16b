//! The memory manager and the model, which perform the same steps, and the differences between them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use memwright::SharedSetting;
use memwright::object::{ObjectIdentity, Shmem};
use memwright::uffd::Watch;
use memwright::{SharedSizeMode, SizeMode};
use memwright_table::{PAGE_SIZE, Page, PageSize, VirtAddr};

use crate::HostSwap;
use crate::machine::TestMachine;
use crate::model::Model;
use crate::noted_file::NotedFile;
use crate::process::{Host, Process};
use crate::script::{Scale, Watcher};
use crate::terms::Rights;

/// How often each kind of step succeeded.
pub type Successes = BTreeMap<&'static str, u64>;

/// Why a script cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The memory manager and the model disagree; the text says how.
    Disagreement(String),
    /// The memory manager ran out of memory. The model never runs out of memory.
    Exhausted,
}

impl From<String> for Difference {
    fn from(text: String) -> Self {
        Self::Disagreement(text)
    }
}

impl core::fmt::Display for Difference {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Disagreement(text) => f.write_str(text),
            Self::Exhausted => f.write_str("out of memory"),
        }
    }
}

impl Difference {
    /// Adds the place where the difference was found.
    pub(super) fn at(self, place: &dyn core::fmt::Display) -> Self {
        match self {
            Self::Disagreement(text) => Self::Disagreement(format!("{place}: {text}")),
            Self::Exhausted => Self::Exhausted,
        }
    }
}

pub(super) enum File<M: TestMachine> {
    Plain(Arc<Shmem<M>>),
    Noted(Arc<NotedFile<M>>),
}

/// The memory manager on a machine, and the model, which performs the same steps.
pub struct Lockstep<M: TestMachine> {
    pub(super) host: Arc<Host<M>>,
    pub(super) model: Model,
    pub(super) processes: BTreeMap<usize, Process<M>>,
    pub(super) files: Vec<File<M>>,
    pub(super) created: usize,
    pub(super) scale: Scale,
    /// The number of pages of the largest folio that the machine allocates.
    pub(super) largest: u64,
    /// The userfaultfd contexts, each with the number of its process and its kind.
    pub(super) watchers: Vec<(usize, Watcher, Watch)>,
    /// The swap device, and its number if it is in use.
    pub(super) device: Option<(Arc<HostSwap>, Option<usize>)>,
    /// Whether a step that runs out of memory reclaims pages and is retried.
    pub(super) reclaims: bool,
    /// Whether the hardware loads pages speculatively, which counts as an access.
    pub(super) speculates: bool,
    /// Whether the soft-dirty state is compared. Set once a process has cleared it.
    pub(super) clears: bool,
    /// How often each kind of step succeeded: a test that never reaches a case proves nothing.
    pub(super) successes: Successes,
}

pub(super) fn real_rights(rights: Rights) -> memwright::Rights {
    let mut real = memwright::Rights::empty();
    real.set(memwright::Rights::READ, rights.read);
    real.set(memwright::Rights::WRITE, rights.write);
    real.set(memwright::Rights::EXECUTE, rights.execute);
    real
}

pub(super) fn model_rights(rights: memwright::Rights) -> Rights {
    Rights {
        read: rights.contains(memwright::Rights::READ),
        write: rights.contains(memwright::Rights::WRITE),
        execute: rights.contains(memwright::Rights::EXECUTE),
    }
}

pub(super) fn address(page: u64) -> VirtAddr {
    Page::new(page).address()
}

pub(super) fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}

impl<M: TestMachine> Lockstep<M> {
    /// Creates one process and two files of zeroes that are not mapped.
    ///
    /// # Panics
    /// If the memory for them cannot be allocated.
    #[must_use]
    pub fn new(host: Arc<Host<M>>) -> Self {
        let processes = BTreeMap::from([(0, Process::new(&host))]);
        let mut lockstep = Self {
            host,
            model: Model::default(),
            processes,
            files: Vec::new(),
            created: 1,
            scale: Scale(1),
            largest: 1,
            watchers: Vec::new(),
            device: None,
            reclaims: false,
            speculates: false,
            clears: false,
            successes: BTreeMap::new(),
        };
        lockstep.model.create_process(0);
        lockstep.create_files();
        lockstep
    }

    fn create_files(&mut self) {
        let (memory, pages) = (self.host.memory(), self.scale.file());
        let identity = ObjectIdentity {
            device: 1,
            inode: 1,
        };
        let plain = Shmem::new(memory.clone(), bytes(pages), identity);
        let plain = plain.expect("heap");
        let plain = plain.with_huge_pages(SharedSetting::File);
        let noted = NotedFile::new(memory.clone(), pages);
        self.files = vec![File::Plain(Arc::new(plain)), File::Noted(Arc::new(noted))];
        for file in &self.files {
            let memory = matches!(file, File::Plain(_));
            self.model.create_object(pages, memory);
        }
    }

    /// Sets how many pages each place of a script stands for.
    #[must_use]
    pub fn scaled(mut self, scale: Scale) -> Self {
        self.scale = scale;
        self.largest = PageSize::Size2M.pages();
        self.model = Model::default();
        self.model.create_process(0);
        self.create_files();
        self
    }

    /// Allocates anonymous and shared memory in folios of `orders` wherever they fit.
    #[must_use]
    pub fn in_folios(mut self, orders: &[u8]) -> Self {
        let settings = self.host.memory().huge();
        for order in orders {
            settings.sizes.set_mode(*order, SizeMode::Always);
            settings.set_shared_size(*order, SharedSizeMode::Always);
            self.largest = self.largest.max(1 << order);
        }
        self
    }

    /// Adds a swap device.
    ///
    /// # Panics
    /// If there is no heap memory for the state of its slots.
    #[must_use]
    pub fn with_swap(mut self, device: Arc<HostSwap>) -> Self {
        let number = self.host.memory().add_swap(device.clone(), 0);
        self.device = Some((device, number.expect("heap")));
        self
    }

    /// Allows pages that no program has accessed to count as accessed, because the CPUs of the machine load pages
    /// speculatively.
    #[must_use]
    pub fn speculating(mut self) -> Self {
        self.speculates = true;
        self
    }

    /// When a step runs out of memory, reclaims pages and retries the step. If the step still runs out of memory, the
    /// script ends.
    #[must_use]
    pub fn reclaiming(mut self) -> Self {
        self.reclaims = true;
        self
    }

    /// Returns the machine and the memory manager that runs on it.
    #[must_use]
    pub fn host(&self) -> &Arc<Host<M>> {
        &self.host
    }

    pub(super) fn succeeded(&mut self, what: &'static str) {
        *self.successes.entry(what).or_default() += 1;
    }
}
