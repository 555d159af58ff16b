//! One memory access of a user program, as a CPU performs it.

use memwright_table::{CpuId, Frame, VirtAddr};

use crate::format;
use crate::machine::{Core, RightsMiss, SimulatedMachine};
use crate::memory_type::MemoryType;
use crate::mistake::Mistake;
use crate::schedule::{self, Point};
use crate::tlb::Translation;
use crate::walk::{self, Intent, WalkFault};

/// The error code that x86-64 pushes for a page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultCode {
    /// Whether a translation was present and forbade the access. If false, no translation was present.
    pub present: bool,
    /// The access was a store.
    pub write: bool,
    /// The access was an instruction fetch.
    pub fetch: bool,
    /// An entry had a reserved bit set. Memwright never writes such an entry.
    pub reserved: bool,
}

/// A page fault in user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// The first byte that could not be accessed (CR2).
    pub address: VirtAddr,
    /// The error code.
    pub code: FaultCode,
}

/// One CPU of a machine, in user mode.
///
/// Accesses are those of user code. No method of this type calls the memory manager.
#[derive(Clone, Copy, Debug)]
pub struct Cpu<'m> {
    machine: &'m SimulatedMachine,
    id: CpuId,
}

impl SimulatedMachine {
    /// Returns a CPU of this machine.
    ///
    /// # Panics
    /// If the machine has no such CPU.
    #[must_use]
    pub fn on(&self, id: CpuId) -> Cpu<'_> {
        assert!(id.index() < self.options().cpus, "no {id:?}");
        Cpu { machine: self, id }
    }
}

impl Cpu<'_> {
    /// Loads the bytes that start at `address`.
    ///
    /// # Errors
    /// The page fault at the first page that cannot be read. The bytes of the pages before it are in `into`.
    pub fn read(&self, address: VirtAddr, into: &mut [u8]) -> Result<(), PageFault> {
        let memory = self.machine.memory();
        let mut done = 0;
        while done < into.len() {
            let here = VirtAddr::new(address.as_u64() + done as u64);
            let bytes = (4096 - here.offset()).min(into.len() - done);
            self.access(here, Intent::Read, |frame| {
                memory.load(frame, here.offset(), &mut into[done..done + bytes]);
            })?;
            done += bytes;
        }
        Ok(())
    }

    /// Stores the bytes that start at `address`.
    ///
    /// # Errors
    /// The page fault at the first page that cannot be written. The bytes of the pages before it are stored.
    pub fn write(&self, address: VirtAddr, from: &[u8]) -> Result<(), PageFault> {
        let memory = self.machine.memory();
        let mut done = 0;
        while done < from.len() {
            let here = VirtAddr::new(address.as_u64() + done as u64);
            let bytes = (4096 - here.offset()).min(from.len() - done);
            self.access(here, Intent::Write, |frame| {
                memory.store(frame, here.offset(), &from[done..done + bytes]);
            })?;
            done += bytes;
        }
        Ok(())
    }

    /// Adds to the 64-bit word at `address` as one locked instruction and returns its previous value.
    ///
    /// # Errors
    /// The page fault if the word cannot be written.
    ///
    /// # Panics
    /// If `address` is not a multiple of 8.
    pub fn fetch_add(&self, address: VirtAddr, value: u64) -> Result<u64, PageFault> {
        assert!(address.offset() % 8 == 0, "{address:?} is misaligned");
        let memory = self.machine.memory();
        self.access(address, Intent::Write, |frame| {
            let word = memory.word(frame, address.offset() / 8);
            word.fetch_add(value, std::sync::atomic::Ordering::SeqCst)
        })
    }

    /// Fetches one instruction byte.
    ///
    /// # Errors
    /// The page fault if the byte cannot be executed.
    pub fn fetch(&self, address: VirtAddr) -> Result<u8, PageFault> {
        let memory = self.machine.memory();
        self.access(address, Intent::Fetch, |frame| {
            memory
                .byte(frame, address.offset())
                .load(std::sync::atomic::Ordering::Relaxed)
        })
    }

    /// Translates and performs one access inside a page. The CPU's lock is held from the translation to the end of the
    /// access. Once an invalidation has returned, no access therefore uses an older translation.
    fn access<T>(
        &self,
        address: VirtAddr,
        intent: Intent,
        perform: impl FnOnce(Frame) -> T,
    ) -> Result<T, PageFault> {
        schedule::step(Point::Access);
        self.machine.provoke();
        let mut core = self.machine.core(self.id);
        match self.translate(&mut core, address, intent) {
            Ok(translation) => {
                let frame = translation.frame_of(address.page().number());
                self.machine.check_type(frame, translation.pat);
                let result = perform(frame);
                drop(core);
                if format::BREAK_BEFORE_MAKE {
                    self.machine.check_made(self.id, &translation);
                }
                Ok(result)
            }
            Err(code) => {
                if format::FAULT_DROPS {
                    core.tlb.drop_address(address.page().number());
                }
                core.cost.faults += 1;
                Err(PageFault { address, code })
            }
        }
    }

    fn translate(
        &self,
        core: &mut Core,
        address: VirtAddr,
        intent: Intent,
    ) -> Result<Translation, FaultCode> {
        let page = address.page().number();
        if let Some(cached) = core.tlb.find(page) {
            if intent.permitted(cached.rights) {
                if intent != Intent::Write || cached.dirty {
                    core.cost.hits += 1;
                    return Ok(cached);
                }
                core.cost.dirty_walks += 1;
            } else if self.machine.options().rights_miss == RightsMiss::Faults {
                core.cost.stale_faults += u64::from(self.tables_permit(core, page, intent));
                return Err(code(intent, WalkFault::Forbidden));
            }
        }
        if core.tlb.is_absent(page) {
            core.cost.stale_faults += u64::from(self.tables_permit(core, page, intent));
            return Err(code(intent, WalkFault::NotPresent));
        }
        self.walk(core, page, intent)
    }

    fn walk(&self, core: &mut Core, page: u64, intent: Intent) -> Result<Translation, FaultCode> {
        let Some(root) = core.root else {
            return Err(code(intent, WalkFault::NotPresent));
        };
        let walk = walk::walk(self.machine.memory(), root, page, intent, &mut core.tlb);
        core.cost.walks += 1;
        core.cost.walk_reads += walk.reads;
        let careless = self.machine.mistake() == Some(Mistake::WritesAnywhere);
        let outcome = match walk.outcome {
            Err(WalkFault::Forbidden) if careless && intent == Intent::Write => {
                let memory = self.machine.memory();
                let walk = walk::walk(memory, root, page, Intent::Read, &mut core.tlb);
                walk.outcome.map(|mut translation| {
                    translation.rights.write = true;
                    translation
                })
            }
            outcome => outcome,
        };
        match outcome {
            Ok(translation) => {
                core.tlb.insert(translation);
                Ok(translation)
            }
            Err(fault) => {
                if format::CACHES_ABSENT && fault == WalkFault::NotPresent {
                    core.tlb.insert_absent(page);
                }
                Err(code(intent, fault))
            }
        }
    }

    /// Returns the type that the tables give to the memory at `address`, or `None` if no page is mapped there.
    #[must_use]
    pub fn memory_type(&self, address: VirtAddr) -> Option<MemoryType> {
        let root = self.machine.core(self.id).root?;
        let found = walk::look(self.machine.memory(), root, address.page().number())?;
        Some(self.machine.type_of(found.ok()?.pat))
    }

    fn tables_permit(&self, core: &Core, page: u64, intent: Intent) -> bool {
        let permits = |now: Translation| intent.permitted(now.rights);
        core.root
            .and_then(|root| walk::look(self.machine.memory(), root, page))
            .is_some_and(|now| now.is_ok_and(permits))
    }
}

fn code(intent: Intent, fault: WalkFault) -> FaultCode {
    FaultCode {
        present: match fault {
            WalkFault::NotPresent => false,
            WalkFault::Forbidden | WalkFault::Reserved => true,
        },
        write: intent == Intent::Write,
        fetch: intent == Intent::Fetch,
        reserved: fault == WalkFault::Reserved,
    }
}
