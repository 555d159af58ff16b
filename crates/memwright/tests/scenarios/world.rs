//! The environment of the scenarios: a machine, its memory, and processes on it.

use std::sync::Arc;

use memwright::object::{Object, ObjectIdentity, Shmem};
use memwright::track::{Categories, Scan, Share};
use memwright::uffd::{Watch, WatchEvents, Watcher};
use memwright::{
    Access, Account, AddressSpace, AreaFlags, FaultError, FaultKind, Layout, MapRequest, Memory,
    Placement, Policy, Rights, Row,
};
use memwright_sim::{Arch, MachineOptions, PageFault, SimulatedMachine};
use memwright_table::{CpuId, Frames, Loaded, Machine as _, PageRange, VirtAddr};
use memwright_testkit::leak::LeakOnPanic;

pub type Machine = SimulatedMachine;

/// The number of bytes of a page.
pub const PAGE: u64 = 4096;
/// The address at which scenarios map by default. It is 4 pages below the end of a lowest-level table and of the table
/// one level above, so that mappings cross both ends.
pub const BASE: u64 = 512 * 512 * PAGE * 3 - 4 * PAGE;

pub const RW: Rights = Rights::READ.union(Rights::WRITE);
pub const R: Rights = Rights::READ;
pub const NONE: Rights = Rights::empty();

const LAYOUT: Layout = Layout::of::<Arch>();

/// Returns the address of page `index`, counted from [`BASE`].
pub fn page(index: u64) -> VirtAddr {
    VirtAddr::new(BASE + index * PAGE)
}

/// A machine with one or two CPUs and its memory. Its drop checks that no frame has leaked.
pub struct World {
    pub machine: Machine,
    pub frames: Arc<Frames<Machine>>,
    pub memory: Arc<Memory<Machine>>,
    used_at_start: u64,
}

impl World {
    pub fn new() -> Self {
        Self::with_frames(8192)
    }

    pub fn with_frames(frames: u32) -> Self {
        Self::with_options(MachineOptions {
            frames,
            ..MachineOptions::default()
        })
    }

    pub fn with_options(options: MachineOptions) -> Self {
        let machine = Machine::new(options);
        let frames = machine.frames();
        let used_at_start = frames.used();
        let memory = Arc::new(Memory::new(frames.clone(), Policy::default()).unwrap());
        Self {
            machine,
            frames,
            memory,
            used_at_start,
        }
    }

    pub fn process(&self) -> Process<'_> {
        let space = AddressSpace::new(self.memory.clone(), LAYOUT).unwrap();
        Process {
            world: self,
            space: Arc::new(space),
            running: None,
        }
    }

    pub fn account(&self) -> Account {
        self.memory.account()
    }

    /// Returns the counts that `act` added to the account.
    pub fn counted(&self, act: impl FnOnce()) -> Account {
        let before = self.account();
        act();
        self.account().since(&before)
    }

    pub fn shmem(&self, pages: u64) -> Arc<Shmem<Machine>> {
        let identity = ObjectIdentity {
            device: 1,
            inode: 7,
        };
        Arc::new(Shmem::new(self.memory.clone(), pages * PAGE, identity).unwrap())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        assert_eq!(self.machine.take_violations(), Vec::<String>::new());
        assert_eq!(self.memory.commit().committed(), 0, "promises left");
        // Two kinds of frames remain allocated: the zero frame, and the huge zero page if it was used.
        let huge = self.account().count(Row::FaultHugeZeroPage) > 0;
        let kept = if huge { 1 + 512 } else { 1 };
        assert_eq!(
            self.frames.used(),
            self.used_at_start + kept,
            "frames leaked"
        );
    }
}

/// A process with one thread, on CPU 0.
pub struct Process<'w> {
    pub world: &'w World,
    pub space: Arc<AddressSpace<Machine>>,
    running: Option<Loaded<Arc<AddressSpace<Machine>>>>,
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        let _kept = LeakOnPanic(self.space.clone());
        if std::thread::panicking() {
            return;
        }
        self.check();
        self.stop();
        // Unmap before the address space is dropped. If unmapping panics, the address space is leaked, because its drop
        // would unmap the rest.
        self.space.clear();
    }
}

impl<'w> Process<'w> {
    /// Returns the pages of `range` that a scan reports, counted from the start of `range`.
    pub fn matching(&self, range: PageRange, scan: &Scan) -> Vec<u64> {
        let mut found = Vec::new();
        let end = self.space.tracking().scan(
            range,
            scan,
            &mut |run: PageRange, _: Categories, _: Share| {
                found.extend(run.iter().map(|one| one.number() - range.start.number()));
                run.len()
            },
        );
        assert_eq!(end, Ok(range.end));
        found
    }

    /// Audits the address space, and the translations that the CPUs have cached.
    pub fn check(&self) {
        assert_eq!(self.space.audit(), Ok(()));
        assert!(
            self.world.machine.audit().is_empty(),
            "{:?}",
            self.world.machine.audit()
        );
    }

    fn cpu() -> CpuId {
        CpuId::new(0)
    }

    /// Loads the page table of the process on the CPU, unless the CPU uses it. The table counts as loaded until the
    /// process ends, even while the CPU uses tables of other processes, so that the CPU receives the invalidations of
    /// all of these tables.
    pub fn run(&mut self) {
        let (machine, root) = (&self.world.machine, self.space.table().root());
        if machine.loaded_root(Self::cpu()) == Some(root) {
            return;
        }
        if self.running.is_some() {
            machine.load_root(root);
        } else {
            self.running = Some(Loaded::new(self.space.clone()));
        }
    }

    /// Loads another page table, so that the CPU stops using that of the process.
    fn stop(&mut self) {
        if let Some(loaded) = self.running.take() {
            let idle = AddressSpace::new(self.world.memory.clone(), LAYOUT).unwrap();
            let (idle, _) = loaded.switch(&idle);
            idle.stop();
        }
    }

    /// Forks the process.
    pub fn fork(&self) -> Process<'w> {
        Process {
            world: self.world,
            space: Arc::new(self.space.fork().unwrap()),
            running: None,
        }
    }

    /// Forks the process. `child_context` returns the child's context for a userfaultfd context of the parent.
    pub fn fork_watched(
        &self,
        child_context: &mut dyn FnMut(&Watch) -> Option<Watch>,
    ) -> Process<'w> {
        Process {
            world: self.world,
            space: Arc::new(self.space.fork_watched(child_context).unwrap()),
            running: None,
        }
    }

    /// Maps private anonymous memory at page `index`.
    pub fn map(&self, index: u64, pages: u64, rights: Rights) {
        self.map_with(index, pages, rights, AreaFlags::empty());
    }

    pub fn map_with(&self, index: u64, pages: u64, rights: Rights, flags: AreaFlags) {
        let request = MapRequest::anonymous(pages * PAGE, rights)
            .at(Placement::Fixed(page(index)))
            .with(flags);
        assert_eq!(self.space.map(&request), Ok(page(index)));
    }

    pub fn map_object(
        &self,
        index: u64,
        pages: u64,
        rights: Rights,
        object: &Arc<impl Object<Machine> + 'static>,
        shared: bool,
    ) {
        let request = MapRequest::object(object.clone(), 0, pages * PAGE, rights, shared)
            .at(Placement::Fixed(page(index)));
        assert_eq!(self.space.map(&request), Ok(page(index)));
    }

    pub fn unmap(&self, index: u64, pages: u64) {
        self.space.unmap(page(index), pages * PAGE).unwrap();
    }

    pub fn protect(&self, index: u64, pages: u64, rights: Rights) {
        self.space
            .protect(page(index), pages * PAGE, rights)
            .unwrap();
    }

    fn resolve(&self, fault: PageFault) -> Result<FaultKind, FaultError> {
        let access = Access {
            write: fault.code.write,
            fetch: fault.code.fetch,
            user: true,
        };
        self.space.fault(fault.address, access)
    }

    /// Stores a byte, as a program does. Returns the kinds of the faults that the store took.
    pub fn store(&mut self, index: u64, byte: u8) -> Result<Vec<FaultKind>, FaultError> {
        self.run();
        let mut kinds = Vec::new();
        while let Err(fault) = self
            .world
            .machine
            .on(Self::cpu())
            .write(page(index), &[byte])
        {
            kinds.push(self.resolve(fault)?);
            assert!(kinds.len() < 8, "a store that never succeeds: {kinds:?}");
        }
        Ok(kinds)
    }

    /// Loads a byte, as a program does. Returns the byte and the kinds of the faults that the load took.
    pub fn load_with(&mut self, index: u64) -> Result<(u8, Vec<FaultKind>), FaultError> {
        self.run();
        let mut kinds = Vec::new();
        let mut byte = [0];
        while let Err(fault) = self
            .world
            .machine
            .on(Self::cpu())
            .read(page(index), &mut byte)
        {
            kinds.push(self.resolve(fault)?);
            assert!(kinds.len() < 8, "a load that never succeeds: {kinds:?}");
        }
        Ok((byte[0], kinds))
    }

    pub fn load(&mut self, index: u64) -> u8 {
        self.load_with(index).unwrap().0
    }

    /// Returns the areas as text: for each area its length and rights, and `.` for a hole.
    pub fn areas(&self) -> String {
        let mut row = String::new();
        let mut end = None;
        self.space.areas(&mut |area| {
            if end.is_some_and(|end| end != area.start()) {
                row.push_str(". ");
            }
            let rights = area.rights();
            let letters = [(R, 'r'), (Rights::WRITE, 'w'), (Rights::EXECUTE, 'x')];
            row.push_str(&area.pages().to_string());
            row.extend(
                letters
                    .iter()
                    .filter(|(right, _)| rights.contains(*right))
                    .map(|row| row.1),
            );
            row.push(' ');
            end = Some(area.end());
        });
        row.trim_end().to_string()
    }

    pub fn resident(&self) -> u64 {
        assert_eq!(
            self.space.usage().totals().resident,
            self.space.usage().resident_pages()
        );
        self.space.usage().resident_pages()
    }
}

/// Returns the counts of the rows `wanted`.
pub fn rows(account: &Account, wanted: &[Row]) -> Vec<u64> {
    wanted.iter().map(|row| account.count(*row)).collect()
}

/// Creates a userfaultfd context without events.
pub fn watch(asynchronous: bool, unpopulated: bool) -> Watch {
    Watch::try_new(Watcher {
        number: 1,
        asynchronous,
        unpopulated,
        counts_accesses: false.into(),
        events: WatchEvents::empty(),
    })
    .unwrap()
}
