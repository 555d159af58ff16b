//! Physical memory, CPUs, and the `Machine` implementation that Memwright runs on. All `unsafe` code of the crate is
//! here.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use memwright_table::{
    Architecture, CpuId, CpuSet, Frame, FrameRange, Frames, Invalidation, MAX_CPUS, MOST_TAGS,
    Machine, Region, Tags, Threads, Topology, Uses, sync,
};

use crate::cost::Cost;
use crate::format::{self, Arch};
use crate::locked::locked;
use crate::memory_type::{self, MemoryType};
use crate::mistake::Mistake;
use crate::schedule::{self, Point};
use crate::tlb::{Tlb, Translation};

const FRAME_BYTES: usize = 4096;

/// Physical memory: frames 0 to N - 1 in one allocation, accessed through atomics only. Device memory follows the
/// frames that a memory manager may manage.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    frames: u32,
    device: u32,
}

// SAFETY: this value owns the allocation, which does not move and is accessed through atomics only; what Memwright does
// through `memory_base` follows the contract of `Machine`.
unsafe impl Send for Memory {}
// SAFETY: as above; no method hands out a plain reference to the bytes.
unsafe impl Sync for Memory {}

impl Memory {
    fn layout(frames: u32) -> Layout {
        Layout::from_size_align(frames as usize * FRAME_BYTES, FRAME_BYTES)
            .expect("simulated memory must fit the address space of the host")
    }

    fn new(frames: u32, device: u32) -> Self {
        assert!(frames > 0, "a machine needs memory");
        let layout = Self::layout(frames + device);
        // SAFETY: the layout has a size above zero, asserted above.
        let base = unsafe { alloc_zeroed(layout) };
        match NonNull::new(base) {
            Some(base) => Self {
                base,
                frames,
                device,
            },
            None => handle_alloc_error(layout),
        }
    }

    /// Returns the number of frames that a memory manager may manage, which start at frame 0.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Returns the frames of device memory.
    #[must_use]
    pub fn device(&self) -> FrameRange {
        FrameRange {
            start: Frame::new(self.frames),
            count: self.device,
        }
    }

    /// Returns whether the machine has this frame.
    #[must_use]
    pub fn has(&self, frame: Frame) -> bool {
        frame.number() < self.frames + self.device
    }

    /// Returns the 64-bit word `index` (0 to 511) of a frame.
    ///
    /// # Panics
    /// If the machine has no such frame or the index is above 511.
    #[must_use]
    pub fn word(&self, frame: Frame, index: usize) -> &AtomicU64 {
        assert!(
            self.has(frame) && index < 512,
            "no word {index} in {frame:?}"
        );
        let offset = frame.number() as usize * FRAME_BYTES + index * 8;
        // SAFETY: the offset is inside the allocation (asserted) and a multiple of 8; the memory is
        // initialised, lives as long as `self`, and is shared through atomics only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Returns the byte at `offset` (0 to 4095) of a frame.
    ///
    /// # Panics
    /// If the machine has no such frame or the offset is above 4095.
    #[must_use]
    pub fn byte(&self, frame: Frame, offset: usize) -> &AtomicU8 {
        assert!(
            self.has(frame) && offset < FRAME_BYTES,
            "no byte {offset} in {frame:?}"
        );
        let offset = frame.number() as usize * FRAME_BYTES + offset;
        // SAFETY: the offset is inside the allocation (asserted); the memory is initialised, lives as
        // long as `self`, and is shared through atomics only.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset)) }
    }

    /// Copies bytes out of one frame, one byte at a time.
    pub fn load(&self, frame: Frame, offset: usize, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = self.byte(frame, offset + index).load(Ordering::Relaxed);
        }
    }

    /// Copies bytes into one frame, one byte at a time.
    pub fn store(&self, frame: Frame, offset: usize, from: &[u8]) {
        for (index, byte) in from.iter().enumerate() {
            self.byte(frame, offset + index)
                .store(*byte, Ordering::Relaxed);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and nothing borrows from a value being dropped.
        unsafe { dealloc(self.base.as_ptr(), Self::layout(self.frames + self.device)) }
    }
}

/// The reaction of a CPU if its TLB holds a translation that forbids the access.
///
/// The processor manual permits both reactions ("4.10.4.3 Optional Invalidation" in editions before 2023): a processor
/// may fault even if the tables permit the access by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RightsMiss {
    /// The CPU faults, and drops its cached entries for the address.
    #[default]
    Faults,
    /// The CPU walks the tables again, as QEMU's TCG does.
    Walks,
}

/// The size and the behaviour of a machine.
#[derive(Clone, Copy, Debug)]
pub struct MachineOptions {
    /// The number of frames of physical memory. They start at frame 0.
    pub frames: u32,
    /// The number of CPUs, at most [`MAX_CPUS`].
    pub cpus: usize,
    /// The number of NUMA nodes, at least one. Frames and CPUs are divided evenly among the nodes; the first node gets
    /// the lowest numbers.
    pub nodes: usize,
    /// The reaction of a CPU if its TLB holds a translation that forbids the access.
    pub rights_miss: RightsMiss,
    /// The number of address-space tags per CPU, such as the PCIDs of x86-64, at most [`MOST_TAGS`]. A CPU keeps the
    /// translations of this number of roots, including the loaded one. With 0 or 1, a CPU keeps the translations of the
    /// loaded root only.
    pub tags: usize,
    /// The number of frames of device memory, which follow the frames of physical memory.
    pub device: u32,
    /// Whether the CPUs have set up their page attribute tables for write-combining.
    pub write_combining: bool,
    /// The CPU whose control registers permit no use of the page tables, if there is one.
    pub wrong_registers_on: Option<CpuId>,
}

impl Default for MachineOptions {
    fn default() -> Self {
        Self {
            frames: 4096,
            cpus: 2,
            nodes: 1,
            rights_miss: RightsMiss::Faults,
            tags: 0,
            device: 0,
            write_combining: true,
            wrong_registers_on: None,
        }
    }
}

/// One CPU: its cached translations, its loaded root, and its counts.
#[derive(Debug, Default)]
pub(crate) struct Core {
    pub(crate) tlb: Tlb,
    pub(crate) root: Option<Frame>,
    /// The tag under which `tlb` caches translations.
    tag: usize,
    tags: Tags,
    /// The translations cached under the other tags.
    kept: [Tlb; MOST_TAGS],
    pub(crate) cost: Cost,
}

impl Core {
    /// Loads `root` on a CPU with `tags` tags. If `keep` is true, the translations of `root` that the CPU has cached
    /// stay cached. Otherwise they are dropped.
    fn load_root(&mut self, root: Frame, tags: usize, keep: bool) {
        let choice = self.tags.choose(root, tags.max(1), keep);
        std::mem::swap(&mut self.tlb, &mut self.kept[self.tag]);
        std::mem::swap(&mut self.tlb, &mut self.kept[choice.tag]);
        self.tag = choice.tag;
        self.root = Some(root);
        self.cost.root_loads += 1;
        if choice.kept {
            self.cost.kept_loads += 1;
        } else {
            self.cost.entries_dropped += self.tlb.clear();
        }
    }
}

/// A hook that runs for each target of a remote invalidation, just before the target CPU performs it. This is the last
/// moment at which the target can use its stale translations.
type Window = dyn Fn(&SimulatedMachine, CpuId) + Send + Sync;

/// Hardware that acts between the steps of the software. The machine gives it a turn before every access of a user
/// program, before every invalidation takes effect, before an interrupt arrives at each of its targets, and at every
/// step of the sync layer.
pub(crate) trait Agent: Send {
    /// Takes a turn. The machine holds no lock meanwhile, and begins no other turn before this one ends.
    fn act(&mut self, machine: &SimulatedMachine);
}

struct Board {
    memory: Memory,
    options: MachineOptions,
    cores: Vec<Mutex<Core>>,
    /// Whether `agent` is set. A separate flag, because every step reads it and the read must be cheap.
    provoked: AtomicBool,
    agent: Mutex<Option<Box<dyn Agent>>>,
    mistake: Mutex<Option<Mistake>>,
    /// Invalidations that a planted mistake delays: the CPU, the root, and what to invalidate.
    late: Mutex<Vec<(CpuId, Frame, Invalidation)>>,
    window: Mutex<Option<Arc<Window>>>,
    /// The result of [`Machine::template`].
    template: Mutex<Option<Frame>>,
    violations: Mutex<Vec<String>>,
}

/// The simulated machine. Clones are handles to the same machine.
#[derive(Clone)]
pub struct SimulatedMachine {
    board: Arc<Board>,
}

impl std::fmt::Debug for SimulatedMachine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SimulatedMachine")
            .field("options", &self.board.options)
            .finish()
    }
}

thread_local! {
    /// The CPU that this host thread acts as.
    static CURRENT: Cell<u16> = const { Cell::new(0) };
    /// The machine that the CPU belongs to, for the functions of [`Threads`], which receive no machine.
    static MACHINE: RefCell<Option<SimulatedMachine>> = const { RefCell::new(None) };
}

/// A guard: the host thread that created it acts as a CPU of a machine until the guard is dropped.
#[must_use]
#[derive(Debug)]
pub struct RunningOn {
    cpu_before: u16,
    machine_before: Option<SimulatedMachine>,
}

impl Drop for RunningOn {
    fn drop(&mut self) {
        CURRENT.set(self.cpu_before);
        MACHINE.replace(self.machine_before.take());
    }
}

impl Threads for SimulatedMachine {
    fn cpu() -> CpuId {
        CpuId::new(CURRENT.get())
    }

    fn relax() {
        std::thread::yield_now();
    }

    // If the thread runs under a schedule, the scheduler has suspended it before this call. Otherwise the thread yields
    // and checks its condition again.
    fn halt(_limit: Option<u32>) {
        std::thread::yield_now();
    }

    /// Called at every step of the sync layer, for example before a lock is acquired or an entry is accessed. Lets a
    /// [schedule] decide which thread runs next. Then gives the agent a turn, because hardware can walk the tables
    /// between any two of these steps.
    fn step(step: sync::Step) {
        schedule::step(Point::Sync(step));
        MACHINE.with_borrow(|machine| {
            if let Some(machine) = machine {
                machine.provoke();
            }
        });
    }
}

impl SimulatedMachine {
    /// Creates a machine whose memory is zero and whose CPUs have no root loaded.
    ///
    /// # Panics
    /// If `options` have no frames, no CPU or more than [`MAX_CPUS`].
    #[must_use]
    pub fn new(options: MachineOptions) -> Self {
        assert!(
            (1..=MAX_CPUS).contains(&options.cpus),
            "{} CPUs",
            options.cpus
        );
        let board = Board {
            memory: Memory::new(options.frames, options.device),
            options,
            cores: (0..options.cpus)
                .map(|_| Mutex::new(Core::default()))
                .collect(),
            provoked: AtomicBool::new(false),
            agent: Mutex::new(None),
            mistake: Mutex::new(None),
            late: Mutex::new(Vec::new()),
            window: Mutex::new(None),
            template: Mutex::new(None),
            violations: Mutex::new(Vec::new()),
        };
        Self {
            board: Arc::new(board),
        }
    }

    /// Returns the physical memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.board.memory
    }

    /// Returns the options that the machine was created with.
    #[must_use]
    pub fn options(&self) -> &MachineOptions {
        &self.board.options
    }

    /// Returns a new frame allocator with all memory except frame 0, so that an address of 0 is always a mistake.
    ///
    /// # Panics
    /// If there is too little memory for the metadata of the allocator.
    #[must_use]
    pub fn frames(&self) -> Arc<Frames<Self>> {
        let (nodes, all) = (self.board.options.nodes, self.board.memory.frames);
        let first_of = |node: usize| (all as usize * node / nodes).max(1) as u32;
        let regions: Vec<Region> = (0..nodes)
            .map(|node| Region {
                range: FrameRange {
                    start: Frame::new(first_of(node)),
                    count: first_of(node + 1) - first_of(node),
                },
                node: node as u8,
            })
            .collect();
        let frames = Frames::new(self.clone(), &regions);
        let mut frames = frames.expect("room for the metadata of the frames");
        let mut topology = Topology::new(nodes);
        for cpu in self.cpus() {
            let node = cpu.index() * nodes / self.board.options.cpus;
            topology.set_cpu(cpu, node as u8);
        }
        let placed = frames.set_topology(topology);
        placed.expect("a topology of the nodes of the regions");
        Arc::new(frames)
    }

    /// Makes the calling host thread act as this CPU, until the guard is dropped.
    ///
    /// # Panics
    /// If the machine has no such CPU.
    pub fn run_on(&self, cpu: CpuId) -> RunningOn {
        assert!(cpu.index() < self.board.cores.len(), "no {cpu:?}");
        RunningOn {
            cpu_before: CURRENT.replace(cpu.index() as u16),
            machine_before: MACHINE.replace(Some(self.clone())),
        }
    }

    /// Returns all CPUs, in order.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        (0..self.board.cores.len()).map(|index| CpuId::new(index as u16))
    }

    /// Returns the table root that a CPU has loaded.
    #[must_use]
    pub fn loaded_root(&self, cpu: CpuId) -> Option<Frame> {
        self.core(cpu).root
    }

    /// Returns the counts of one CPU.
    #[must_use]
    pub fn cost(&self, cpu: CpuId) -> Cost {
        self.core(cpu).cost
    }

    /// Returns the sum of the counts of all CPUs.
    #[must_use]
    pub fn total_cost(&self) -> Cost {
        self.cpus()
            .fold(Cost::default(), |sum, cpu| sum.plus(&self.cost(cpu)))
    }

    /// Sets the agent, or removes it with `None`.
    pub(crate) fn set_agent(&self, agent: Option<Box<dyn Agent>>) {
        self.board
            .provoked
            .store(agent.is_some(), Ordering::Relaxed);
        *locked(&self.board.agent) = agent;
    }

    /// Makes the machine act as if the memory manager made this mistake. `None` ends that.
    pub fn set_mistake(&self, mistake: Option<Mistake>) {
        *locked(&self.board.mistake) = mistake;
    }

    /// Sets the root whose kernel half new tables copy.
    pub fn set_template(&self, root: Option<Frame>) {
        *locked(&self.board.template) = root;
    }

    /// Sets a hook that runs for each target of a remote invalidation, just before the target performs it.
    pub fn set_window(&self, window: Option<Arc<Window>>) {
        *locked(&self.board.window) = window;
    }

    /// Returns the violations that the machine has recorded, oldest first, and clears the list. A correct memory
    /// manager causes none.
    #[must_use]
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.board.violations))
    }

    pub(crate) fn core(&self, cpu: CpuId) -> MutexGuard<'_, Core> {
        locked(&self.board.cores[cpu.index()])
    }

    /// Gives the agent a turn, if there is one.
    pub(crate) fn provoke(&self) {
        if !self.board.provoked.load(Ordering::Relaxed) {
            return;
        }
        // The agent is removed while it acts, so that no lock is held meanwhile and it cannot be called recursively.
        let taken = locked(&self.board.agent).take();
        if let Some(mut agent) = taken {
            agent.act(self);
            *locked(&self.board.agent) = Some(agent);
        }
    }

    pub(crate) fn mistake(&self) -> Option<Mistake> {
        *locked(&self.board.mistake)
    }

    fn deliver(&self, cpu: CpuId, what: &Invalidation) {
        let mut core = self.core(cpu);
        let dropped = core.tlb.invalidate(what);
        core.cost.entries_dropped += dropped;
    }

    /// Performs an invalidation of `root` on the interrupted CPU `cpu`.
    fn deliver_remote(&self, cpu: CpuId, root: Frame, what: &Invalidation) {
        let mut core = self.core(cpu);
        if core.root == Some(root) {
            let dropped = core.tlb.invalidate(what);
            core.cost.entries_dropped += dropped;
        } else {
            core.tags.forget(root);
        }
    }

    /// Returns the memory type that an index in the page attribute table selects.
    pub(crate) fn type_of(&self, pat: u8) -> MemoryType {
        memory_type::in_pat(pat, self.board.options.write_combining)
    }

    /// Records a violation if a page of `frame` has a memory type that does not suit the frame: memory other than device
    /// memory is write-back, and device memory has one of the types for which there is a cache mode.
    pub(crate) fn check_type(&self, frame: Frame, pat: u8) {
        let found = self.type_of(pat);
        let suits = match found {
            MemoryType::WriteBack => true,
            MemoryType::WriteCombining | MemoryType::Uncached => {
                self.board.memory.device().contains(frame)
            }
            MemoryType::WriteThrough | MemoryType::WriteProtected | MemoryType::UncachedMinus => {
                false
            }
        };
        if !suits {
            let text = format!("{frame:?} is accessed as {found:?}");
            locked(&self.board.violations).push(text);
        }
    }

    /// Records a violation if `cpu` has cached `made` while a CPU with the same root loaded has cached a translation
    /// that contradicts it. Both translations may be cached if neither permits writing and the contents of their pages
    /// are equal.
    pub(crate) fn check_made(&self, cpu: CpuId, made: &Translation) {
        let root = self.core(cpu).root;
        for other in self.cpus() {
            let core = self.core(other);
            let stale = core.tlb.leaves().find(|leaf| leaf.contradicts(made));
            let Some(stale) = stale.filter(|_| core.root == root).copied() else {
                continue;
            };
            drop(core);
            if self.are_interchangeable(&stale, made) {
                continue;
            }
            // The entry may have changed since `cpu` accessed the page. If it has, `cpu` has dropped `made`.
            if self.core(cpu).tlb.leaves().any(|leaf| leaf == made) {
                let text = format!("{other:?} has cached {stale:?} when {cpu:?} uses {made:?}");
                locked(&self.board.violations).push(text);
            }
        }
    }

    /// Returns whether a program cannot distinguish two translations of one page: neither can be written, and the
    /// contents are equal.
    fn are_interchangeable(&self, one: &Translation, other: &Translation) -> bool {
        let words = |made: &Translation| {
            let frame = made.frame;
            (0..512).map(move |index| self.memory().word(frame, index).load(Ordering::Relaxed))
        };
        let writable = one.rights.write || other.rights.write;
        !writable && (one.size, one.pat) == (other.size, other.pat) && words(one).eq(words(other))
    }

    /// Records a violation if any CPU can still reach a frame that the kernel is about to fill, or if it is a frame of
    /// device memory.
    fn check_unreachable(&self, frame: Frame, action: &str) {
        if self.board.memory.device().contains(frame) {
            let text = format!("{action} {frame:?} of a device");
            locked(&self.board.violations).push(text);
        }
        for cpu in self.cpus() {
            let core = self.core(cpu);
            for leaf in core.tlb.leaves() {
                let frames = leaf.frame.number()..leaf.frame.number() + leaf.size.pages() as u32;
                if frames.contains(&frame.number()) {
                    let text = format!(
                        "{action} {frame:?} while {cpu:?} still reaches it through {leaf:?}"
                    );
                    locked(&self.board.violations).push(text);
                }
            }
            for (directory, cached) in core.tlb.directories() {
                if cached.table == frame {
                    let text = format!(
                        "{action} {frame:?} while {cpu:?} still walks it as a table: {directory:?}"
                    );
                    locked(&self.board.violations).push(text);
                }
            }
        }
    }
}

// SAFETY: frame f is at `memory_base() + f * 4096` for every frame that `has_memory` accepts; the allocation lives as
// long as any handle, and the only references to its bytes are to atomics. `invalidate_local` and `invalidate_remote`
// have dropped the translations that their arguments name when they return (a planted mistake breaks that on purpose:
// it leads to wrong bytes in simulated memory, never to undefined behaviour of the host).
unsafe impl Machine for SimulatedMachine {
    type Arch = Arch;
    type Threads = Self;

    fn memory_base(&self) -> NonNull<u8> {
        self.board.memory.base
    }

    fn has_memory(&self, range: FrameRange) -> bool {
        range.end_number() <= u64::from(self.board.memory.frames)
    }

    fn has_device_memory(&self, range: FrameRange) -> bool {
        self.board.memory.device().covers(range)
    }

    fn has_write_combining(&self) -> bool {
        self.board.options.write_combining
    }

    fn template(&self) -> Option<Frame> {
        *locked(&self.board.template)
    }

    fn cpu_count(&self) -> usize {
        self.board.cores.len()
    }

    fn registers(&self) -> Option<<Arch as Architecture>::Registers> {
        let is_wrong = self.board.options.wrong_registers_on == Some(Self::cpu());
        let uses = Uses {
            tags: self.keeps_translations(),
            write_combining: self.has_write_combining(),
            sets_accessed_and_dirty: Arch::SETS_ACCESSED_AND_DIRTY,
        };
        format::registers(uses, is_wrong)
    }

    fn load_root(&self, root: Frame) {
        let keep = self.mistake() == Some(Mistake::KeptForever);
        let tags = self.board.options.tags;
        schedule::step(Point::Load);
        self.core(Self::cpu()).load_root(root, tags, keep);
    }

    fn keeps_translations(&self) -> bool {
        self.board.options.tags > 1
    }

    fn load_kept_root(&self, root: Frame) {
        let tags = self.board.options.tags;
        schedule::step(Point::Load);
        self.core(Self::cpu()).load_root(root, tags, true);
    }

    fn invalidate_local(&self, what: &Invalidation) {
        self.provoke();
        let cpu = Self::cpu();
        self.core(cpu).cost.local_invalidations += 1;
        if let Some(what) = Mistake::local(self.mistake(), what) {
            self.deliver(cpu, &what);
        }
    }

    fn invalidate_remote(&self, targets: CpuSet, root: Frame, what: &[Invalidation]) {
        let sender = Self::cpu();
        let window = locked(&self.board.window).clone();
        let mistake = self.mistake();
        for (cpu, root, what) in std::mem::take(&mut *locked(&self.board.late)) {
            self.deliver_remote(cpu, root, &what);
        }
        let last = self.cpus().filter(|&cpu| targets.contains(cpu)).last();
        for cpu in self.cpus().filter(|&cpu| targets.contains(cpu)) {
            self.core(sender).cost.interrupts_sent += 1;
            self.core(cpu).cost.interrupts_taken += 1;
            // The interrupt arrives in this step at the latest.
            schedule::step(Point::Arrival);
            self.provoke();
            if let Some(window) = &window {
                window(self, cpu);
            }
            if mistake == Some(Mistake::OneCpuShort) && Some(cpu) == last {
                continue;
            }
            for what in what {
                match Mistake::remote(mistake, what) {
                    Some(what) if mistake == Some(Mistake::Late) => {
                        locked(&self.board.late).push((cpu, root, what));
                    }
                    Some(what) => self.deliver_remote(cpu, root, &what),
                    None => {}
                }
            }
        }
    }

    fn clear_frame(&self, frame: Frame) {
        self.check_unreachable(frame, "cleared");
        for index in 0..512 {
            self.board
                .memory
                .word(frame, index)
                .store(0, Ordering::Relaxed);
        }
    }

    fn copy_frame(&self, from: Frame, to: Frame) {
        self.check_unreachable(to, "copied into");
        let words = match self.mistake() {
            Some(Mistake::HalfCopy) => 256,
            Some(_) | None => 512,
        };
        for index in 0..words {
            let value = self.board.memory.word(from, index).load(Ordering::Relaxed);
            self.board
                .memory
                .word(to, index)
                .store(value, Ordering::Relaxed);
        }
    }
}

/// Implements [`Machine`] for a type with a field `machine`, which is a [`SimulatedMachine`]. For callers that
/// implement further traits on a type with additional state. `$threads` becomes the type [`Machine::Threads`].
///
/// Frame 0, which belongs to no allocator, is the empty table from which new tables are created.
#[macro_export]
macro_rules! machine_around {
    ($type:ty, $threads:ty) => {
        // SAFETY: every method forwards to the simulated machine, which keeps the contract and lives as long; frame 0
        // is in its memory, zeroed, and is not given to Memwright.
        unsafe impl ::memwright_table::Machine for $type {
            type Arch = $crate::Arch;
            type Threads = $threads;

            fn memory_base(&self) -> ::core::ptr::NonNull<u8> {
                self.machine.memory_base()
            }

            fn has_memory(&self, range: ::memwright_table::FrameRange) -> bool {
                range.start.number() > 0 && self.machine.has_memory(range)
            }

            fn has_device_memory(&self, range: ::memwright_table::FrameRange) -> bool {
                self.machine.has_device_memory(range)
            }

            fn has_write_combining(&self) -> bool {
                self.machine.has_write_combining()
            }

            fn template(&self) -> Option<::memwright_table::Frame> {
                Some(::memwright_table::Frame::new(0))
            }

            fn cpu_count(&self) -> usize {
                self.machine.cpu_count()
            }

            fn registers(
                &self,
            ) -> Option<<$crate::Arch as ::memwright_table::Architecture>::Registers> {
                self.machine.registers()
            }

            fn load_root(&self, root: ::memwright_table::Frame) {
                self.machine.load_root(root);
            }

            fn keeps_translations(&self) -> bool {
                self.machine.keeps_translations()
            }

            fn load_kept_root(&self, root: ::memwright_table::Frame) {
                self.machine.load_kept_root(root);
            }

            fn invalidate_local(&self, what: &::memwright_table::Invalidation) {
                self.machine.invalidate_local(what);
            }

            fn invalidate_remote(
                &self,
                targets: ::memwright_table::CpuSet,
                root: ::memwright_table::Frame,
                what: &[::memwright_table::Invalidation],
            ) {
                self.machine.invalidate_remote(targets, root, what);
            }

            fn clear_frame(&self, frame: ::memwright_table::Frame) {
                self.machine.clear_frame(frame);
            }

            fn copy_frame(&self, from: ::memwright_table::Frame, to: ::memwright_table::Frame) {
                self.machine.copy_frame(from, to);
            }
        }
    };
}
