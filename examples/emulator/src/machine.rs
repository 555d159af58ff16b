//! The emulated machine: frames in host memory, and CPUs that have a software TLB each.

use std::cell::Cell;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memwright_table::sync::Threads;
use memwright_table::table::{PageAccess, Translation};
use memwright_table::{
    CpuId, CpuSet, Frame, FrameRange, Invalidation, Machine, PAGE_SIZE, Page, PageRange, Table,
    VirtAddr, X86_64,
};

/// The number of frames: 4 MiB.
pub const FRAMES: u32 = 1024;

/// The number of CPUs. Each is a thread of the host.
pub const CPUS: usize = 2;

/// The translations that a CPU has cached.
type Tlb = HashMap<Page, Translation>;

pub struct Emulator {
    memory: NonNull<u8>,
    tlbs: [Mutex<Tlb>; CPUS],
}

/// A page of host memory, aligned to its size.
#[derive(Clone)]
#[repr(align(4096))]
struct HostPage {
    _bytes: [u8; PAGE_SIZE],
}

thread_local! {
    /// The CPU that the calling thread emulates.
    static CPU: Cell<CpuId> = const { Cell::new(CpuId::new(0)) };
}

// SAFETY: the memory is accessed through `Machine` only.
unsafe impl Send for Emulator {}
// SAFETY: as above.
unsafe impl Sync for Emulator {}

impl Emulator {
    /// Creates the machine. It exists until the process exits.
    pub fn new() -> &'static Self {
        let memory = vec![
            HostPage {
                _bytes: [0; PAGE_SIZE]
            };
            FRAMES as usize
        ];
        Box::leak(Box::new(Self {
            memory: NonNull::from(memory.leak()).cast(),
            tlbs: Default::default(),
        }))
    }

    /// Makes the calling thread the CPU with this number.
    pub fn run_as(cpu: CpuId) {
        CPU.set(cpu);
    }

    /// Locks the TLB of a CPU.
    fn tlb(&self, cpu: CpuId) -> MutexGuard<'_, Tlb> {
        let tlb = self.tlbs[cpu.index()].lock();
        tlb.unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs an access to a byte of guest memory, as the calling CPU. `act` is called with the frame and the offset
    /// of the byte. Returns false if the CPU takes a page fault instead.
    pub fn access(
        &self,
        table: &Table<&'static Self>,
        address: VirtAddr,
        kind: PageAccess,
        act: impl FnOnce(Frame, usize),
    ) -> bool {
        // The TLB stays locked from before the walk until the access has ended. An invalidation on another CPU therefore
        // finds the translation in the TLB, and waits for the access.
        let mut tlb = self.tlb(Self::cpu());
        let cached = tlb.get(&address.page()).copied();
        let usable = cached.filter(|found| match kind {
            PageAccess::Load => true,
            PageAccess::Store => found.stores,
            PageAccess::Fetch => found.fetches,
        });
        let Some(found) = usable.or_else(|| table.translate(address.page(), kind)) else {
            return false;
        };
        tlb.insert(address.page(), found);
        act(found.frame, address.offset());
        true
    }

    fn invalidate(&self, cpu: CpuId, what: &Invalidation) {
        let mut tlb = self.tlb(cpu);
        match *what {
            Invalidation::Pages {
                first,
                count,
                stride,
            } => {
                let end = first.add(u64::from(count) * stride.pages());
                let range = PageRange::new(first, end);
                tlb.retain(|page, _| !range.contains(*page));
            }
            Invalidation::All | Invalidation::AllAndTables => tlb.clear(),
        }
    }
}

impl Threads for Emulator {
    fn cpu() -> CpuId {
        CPU.get()
    }

    fn relax() {
        std::thread::yield_now();
    }
}

// SAFETY: `FRAMES` frames begin at `memory`. They are never freed, and no reference to them exists. A CPU uses a
// translation only while its TLB is locked, so it uses none that `invalidate` or `load_root` has removed.
unsafe impl Machine for Emulator {
    type Arch = X86_64;
    type Threads = Self;

    fn memory_base(&self) -> NonNull<u8> {
        self.memory
    }

    fn has_memory(&self, range: FrameRange) -> bool {
        range.end_number() <= u64::from(FRAMES)
    }

    fn cpu_count(&self) -> usize {
        CPUS
    }

    fn load_root(&self, _root: Frame) {
        self.tlb(Self::cpu()).clear();
    }

    fn invalidate_local(&self, what: &Invalidation) {
        self.invalidate(Self::cpu(), what);
    }

    /// Removes the translations from the TLBs of the other CPUs. Hardware would interrupt these CPUs instead.
    fn invalidate_remote(&self, targets: CpuSet, _root: Frame, what: &[Invalidation]) {
        for cpu in targets.iter() {
            for one in what {
                self.invalidate(cpu, one);
            }
        }
    }
}
