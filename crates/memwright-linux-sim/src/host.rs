//! The simulated machine on which the personality runs: one CPU, a clock that counts operations, and no devices.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memwright_linux_abi::M;
use memwright_linux_abi::arch::x86_64::debug::DebugRegisters;
use memwright_linux_abi::arch::x86_64::regs::{FpuArea, UserRegs, UserState};
use memwright_linux_abi::channel::Channel;
use memwright_linux_abi::host::{
    self, BlockDevice, Channels, Clock, ContextId, CpuTimes, Cpus, Host, Instruments,
    InterruptKind, KernelEvents, OutOfMemory, Registers, StackDepth, Stretch, Trap, UserAccess,
    UserFault,
};
use memwright_table::{CpuId, Frame, Machine, PAGE_SIZE, VirtAddr};

use crate::calls::Calls;
use crate::contexts::Contexts;
use crate::program::Operation;
use memwright_sim::SimulatedMachine;
use memwright_sim::locked::locked;
use memwright_sim::mmu::PageFault;

/// The only CPU.
pub(crate) const CPU: CpuId = CpuId::new(0);

/// The simulated duration of one operation, in nanoseconds.
const OPERATION: u64 = 1_000;

/// `MOST_OPERATIONS` is the maximum number of operations of all programs of a run together; after that number, each
/// program exits. `MOST_WAITS` is the maximum number of times that the CPU idles until a timer expires; after that
/// number, the run ends.
const MOST_OPERATIONS: u64 = 2_000;
const MOST_WAITS: u64 = 200;

/// The parts of the host besides CPU and memory: kernel stacks, the program, the clock and the output.
pub struct Surroundings {
    pub(crate) contexts: &'static Contexts,
    pub(crate) operations: Vec<Operation>,
    events: Mutex<Option<&'static dyn KernelEvents>>,
    clock: AtomicU64,
    deadline: Mutex<Option<u64>>,
    kicked: AtomicBool,
    pub(crate) performed: AtomicU64,
    waits: AtomicU64,
    /// A function that is called once, when the first program enters user mode.
    pub(crate) begins: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// The frames that the personality has written, in order, each with its channel.
    pub(crate) output: Mutex<Vec<(Channel, Vec<u8>)>>,
    pub(crate) code: Mutex<Option<u8>>,
    /// The system calls that programs made.
    pub(crate) calls: Mutex<Calls>,
}

/// The simulated machine with the parts that make it a host of the personality.
pub struct Simulated {
    pub(crate) machine: SimulatedMachine,
    pub(crate) more: Surroundings,
}

memwright_sim::machine_around!(Simulated, <M as Machine>::Threads);

impl Surroundings {
    pub(crate) fn new(contexts: &'static Contexts, operations: Vec<Operation>) -> Self {
        Self {
            contexts,
            operations,
            events: Mutex::new(None),
            clock: AtomicU64::new(0),
            deadline: Mutex::new(None),
            kicked: AtomicBool::new(false),
            performed: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            begins: Mutex::new(None),
            output: Mutex::new(Vec::new()),
            code: Mutex::new(None),
            calls: Mutex::new(Calls::default()),
        }
    }

    /// Advances the clock by one operation. Returns false if the run has already used up its operations.
    pub(crate) fn tick(&self) -> bool {
        self.clock.fetch_add(OPERATION, Ordering::Relaxed);
        self.performed.fetch_add(1, Ordering::Relaxed) < MOST_OPERATIONS
    }

    /// Returns a pending interrupt: a reschedule request, or the timer interrupt if the deadline of the timer has
    /// passed.
    pub(crate) fn interrupt(&self) -> Option<Trap> {
        if self.kicked.swap(false, Ordering::Relaxed) {
            return Some(Trap::Reschedule);
        }
        let mut deadline = locked(&self.deadline);
        let over = deadline.is_some_and(|at| at <= self.clock.load(Ordering::Relaxed));
        over.then(|| {
            *deadline = None;
            Trap::Timer
        })
    }
}

impl Simulated {
    /// Copies between kernel and user memory page by page, with one call of `piece` for each page. The personality
    /// resolves the faults.
    fn copy(
        &self,
        address: u64,
        length: usize,
        write: bool,
        mut piece: impl FnMut(VirtAddr, usize, usize) -> Result<(), PageFault>,
    ) -> Result<(), UserFault> {
        let mut done = 0;
        while done < length {
            let here = VirtAddr::new(address + done as u64);
            let bytes = (PAGE_SIZE - here.offset()).min(length - done);
            while piece(here, done, bytes).is_err() {
                let events = *locked(&self.more.events);
                if !events.is_some_and(|events| events.user_fault(here.as_u64(), write)) {
                    let address = here.as_u64();
                    return Err(UserFault { address, done });
                }
            }
            done += bytes;
        }
        Ok(())
    }

    fn read_user(&self, to: &mut [u8], from: u64) -> Result<(), UserFault> {
        let length = to.len();
        self.copy(from, length, false, |here, done, bytes| {
            self.machine.on(CPU).read(here, &mut to[done..done + bytes])
        })
    }

    fn write_user(&self, to: u64, from: &[u8]) -> Result<(), UserFault> {
        self.copy(to, from.len(), true, |here, done, bytes| {
            self.machine.on(CPU).write(here, &from[done..done + bytes])
        })
    }
}

impl Clock for Simulated {
    fn now(&self) -> u64 {
        self.more.clock.load(Ordering::Relaxed)
    }

    fn set_deadline(&self, deadline: Option<u64>) {
        *locked(&self.more.deadline) = deadline;
    }

    fn pause_clock(&self) {}

    fn resume_clock(&self) {}
}

impl Cpus for Simulated {
    fn start_cpus(&self) {}

    fn kick(&self, _cpu: CpuId) {
        self.more.kicked.store(true, Ordering::Relaxed);
    }

    fn interrupts(&self, _cpu: CpuId, _kind: InterruptKind) -> u64 {
        0
    }

    fn times(&self, _cpu: CpuId) -> CpuTimes {
        CpuTimes::default()
    }

    fn cpuid(&self, _leaf: u32, _subleaf: u32) -> [u32; 4] {
        [0; 4]
    }

    fn hardware_capabilities(&self) -> u64 {
        0
    }

    fn idle(&self) {
        if self.more.interrupt().is_some() {
            return;
        }
        let deadline = locked(&self.more.deadline).take();
        let waits = self.more.waits.fetch_add(1, Ordering::Relaxed);
        match deadline.filter(|_| waits < MOST_WAITS) {
            Some(at) => {
                self.more.clock.fetch_max(at, Ordering::Relaxed);
            }
            // The run ends: all threads sleep and no timer is set, or the CPU has idled `MOST_WAITS` times.
            None => self.more.contexts.end(),
        }
    }
}

impl host::Contexts for Simulated {
    fn most_contexts(&self) -> usize {
        /// The maximum number of contexts. It is low, because each context is a thread of the host.
        const MOST: usize = 4096;
        MOST
    }

    fn create_context(&self, argument: usize) -> Result<ContextId, OutOfMemory> {
        let events = locked(&self.more.events).ok_or(OutOfMemory)?;
        let machine = self.machine.clone();
        let start = move || {
            let _running = machine.run_on(CPU);
            events.context_start(argument)
        };
        self.more.contexts.create(start).ok_or(OutOfMemory)
    }

    fn switch_context(&self, from: ContextId, to: ContextId) {
        self.more.contexts.switch(from, to);
    }

    fn destroy_context(&self, context: ContextId) {
        self.more.contexts.destroy(context);
    }

    fn boot_context(&self) -> ContextId {
        ContextId(0)
    }

    fn kernel_root(&self) -> Option<Frame> {
        self.template()
    }
}

impl Registers for Simulated {
    fn load_bases(&self, _user: &UserState) {}

    fn store_bases(&self, _user: &mut UserState) {}

    fn save_fpu(&self, area: &mut FpuArea) {
        *area = FpuArea::INITIAL;
    }

    fn restore_fpu(&self, _area: &FpuArea) {}

    fn fpu_size(&self) -> usize {
        FpuArea::HEADER + 64
    }

    fn fpu_features(&self) -> u64 {
        3
    }

    /// The simulated CPUs have no protection keys.
    fn set_key_rights(&self, _rights: u32) {}

    /// The machine has no access to the registers, which are in the context of the thread.
    fn entered_with(&self) -> Option<UserRegs> {
        None
    }

    fn load_debug(&self, _registers: &DebugRegisters) {}
}

impl Channels for Simulated {
    fn output(&self, channel: Channel, bytes: &[u8]) {
        locked(&self.more.output).push((channel, bytes.to_vec()));
    }

    fn input(&self, _to: &mut [u8]) -> Option<usize> {
        Some(0)
    }

    fn control(&self) -> Option<u8> {
        None
    }

    fn lower(&self, _request: &[u8], _answer: &mut [u8]) -> usize {
        0
    }
}

impl UserAccess for Simulated {
    fn copy_from_user(&self, to: &mut [u8], from: u64) -> Result<(), UserFault> {
        self.read_user(to, from)
    }

    fn copy_to_user(&self, to: u64, from: &[u8]) -> Result<(), UserFault> {
        self.write_user(to, from)
    }

    fn copy_frame_to_user(
        &self,
        to: u64,
        frame: Frame,
        offset: usize,
        length: usize,
    ) -> Result<(), UserFault> {
        let mut bytes = vec![0; length];
        self.machine.memory().load(frame, offset, &mut bytes);
        self.write_user(to, &bytes)
    }

    fn copy_frame_from_user(
        &self,
        frame: Frame,
        offset: usize,
        length: usize,
        from: u64,
    ) -> Result<(), UserFault> {
        let mut bytes = vec![0; length];
        let outcome = self.read_user(&mut bytes, from);
        let done = outcome.map_or_else(|fault| fault.done, |()| length);
        self.machine.memory().store(frame, offset, &bytes[..done]);
        outcome
    }

    fn clear_user(&self, to: u64, length: usize) -> Result<(), UserFault> {
        let zeroes = [0; PAGE_SIZE];
        self.copy(to, length, true, |here, _, bytes| {
            self.machine.on(CPU).write(here, &zeroes[..bytes])
        })
    }

    fn user_load32(&self, address: u64) -> Result<u32, UserFault> {
        let mut word = [0; 4];
        self.read_user(&mut word, address)?;
        Ok(u32::from_le_bytes(word))
    }

    fn user_compare_exchange32(&self, address: u64, old: u32, new: u32) -> Result<u32, UserFault> {
        let found = self.user_load32(address)?;
        let stored = if found == old { new } else { found };
        self.write_user(address, &stored.to_le_bytes())?;
        Ok(found)
    }

    fn user_peek32(&self, address: u64) -> Option<u32> {
        let mut word = [0; 4];
        let cpu = self.machine.on(CPU);
        cpu.read(VirtAddr::new(address), &mut word).ok()?;
        Some(u32::from_le_bytes(word))
    }

    fn user_try_exchange32(&self, address: u64, old: u32, new: u32) -> Option<u32> {
        let found = self.user_peek32(address)?;
        let stored = if found == old { new } else { found };
        let cpu = self.machine.on(CPU);
        cpu.write(VirtAddr::new(address), &stored.to_le_bytes())
            .ok()?;
        Some(found)
    }
}

impl Instruments for Simulated {
    fn mark_run_begins(&self) {}

    fn mark_run_ends(&self) {}

    fn user_instructions(&self) -> u64 {
        0
    }

    fn kernel_instructions(&self) -> u64 {
        self.now()
    }

    fn interrupt_instructions(&self) -> u64 {
        0
    }

    fn heap_low(&self) -> bool {
        false
    }

    fn heap_used(&self) -> usize {
        0
    }

    fn deepest_stack(&self) -> Option<StackDepth> {
        None
    }

    fn longest_stretch(&self) -> Stretch {
        Stretch::default()
    }

    fn forget_stretches(&self) {}
}

impl Host for Simulated {
    fn disk(&self) -> Option<&'static dyn BlockDevice> {
        None
    }

    fn set_events(&self, events: &'static dyn KernelEvents) {
        *locked(&self.more.events) = Some(events);
    }

    fn power_off(&self, code: u8) -> ! {
        *locked(&self.more.code) = Some(code);
        self.more.contexts.end()
    }
}
