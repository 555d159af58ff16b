//! Address spaces for programs, and the error numbers of the memory manager's errors.

use crate::reclaim::Reclaim;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use memwright::{
    AdviseError, FaultError, ForkError, Layout, Limit, LockError, MapError, NameError,
    ProtectError, RemapError, SealError, SyncError, UnmapError,
};
use memwright_linux_abi::{Memory, Space, errno::Errno};
use memwright_linux_base::sync::Lock;
use memwright_linux_tasks::process::{Process, peak_resident_kib};
use memwright_linux_vfs::{
    direct_reclaim::Retry,
    identity::{Capabilities, Limits, Resource},
    random::Random,
    user::{LOWEST, USER_END},
};
use memwright_table::VirtAddr;

/// The load address of a position-independent program with an interpreter (`ELF_ET_DYN_BASE` of Linux 7.2).
const PROGRAM_BASE: u64 = (USER_END / 3 * 2) & !4095;
/// The minimum and the maximum gap in bytes between mappings and the end of the stack, which is reserved for the stack
/// (`mmap_base` of Linux 7.2, `arch/x86/mm/mmap.c`).
const STACK_GAP: (u64, u64) = (128 << 20, USER_END / 6 * 5);

/// The addresses at which `execve` places the parts of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Layouts {
    /// The end of the stack.
    pub stack_top: u64,
    /// The load address of a position-independent program with an interpreter.
    pub program: u64,
    /// The number of bytes between the end of the program and its heap.
    pub heap_gap: u64,
}

impl Layouts {
    /// Returns the addresses for a new program. They are random if there is a random source, and otherwise fixed.
    pub fn choose(random: Option<&Lock<Random>>) -> Self {
        let fixed = Self {
            stack_top: USER_END,
            program: PROGRAM_BASE,
            heap_gap: 0,
        };
        match random {
            None => fixed,
            // As on Linux: 22 random bits for the page of the stack, 28 random bits for the page of the program, and a
            // gap of up to 32 MiB before the heap.
            Some(random) => {
                let mut random = random.lock();
                Self {
                    stack_top: fixed.stack_top - (random.below(1 << 22) << 12),
                    program: fixed.program + (random.below(1 << 28) << 12),
                    heap_gap: random.below(1 << 13) << 12,
                }
            }
        }
    }
}

/// The default of `vm.max_map_count`.
const MOST_AREAS: usize = 65_530;

/// Returns the address below which mappings without an address hint are placed from the top down.
fn mapping_top(stack_limit: u64) -> u64 {
    let gap = stack_limit
        .clamp(STACK_GAP.0, STACK_GAP.1)
        .next_multiple_of(4096);
    USER_END - gap
}

/// The factory of address spaces. It contains the settings that all address spaces share.
pub struct Spaces {
    memory: Arc<Memory>,
    reclaim: Arc<Reclaim>,
    /// The random source for address layouts; `None` for the fixed layout.
    pub random: Option<Lock<Random>>,
    /// The maximum number of areas in an address space (`vm.max_map_count`).
    pub most_areas: AtomicUsize,
}

impl Spaces {
    /// Creates the factory of address spaces in `memory`.
    pub fn new(memory: Arc<Memory>, reclaim: Arc<Reclaim>, random: Option<Lock<Random>>) -> Self {
        Self {
            memory,
            reclaim,
            random,
            most_areas: AtomicUsize::new(MOST_AREAS),
        }
    }

    /// Creates an empty address space that enforces the given limits. If there is a random source, mappings are placed
    /// below a random address.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn create(
        &self,
        limits: &Limits,
        capabilities: Capabilities,
        random: Option<&Lock<Random>>,
    ) -> Result<Arc<Space>, Errno> {
        let mut top = mapping_top(limits.get(Resource::Stack).current);
        if let Some(random) = random {
            top -= (random.lock().below(1 << 28) << 12) + (1 << 34);
        }
        let layout = Layout {
            lowest: VirtAddr::new(LOWEST),
            mmap_top: VirtAddr::new(top),
            highest: VirtAddr::new(USER_END),
        };
        let space = self
            .reclaim
            .retry(|| Space::new(self.memory.clone(), layout));
        let space = space.map_err(|_| Errno::ENOMEM)?;
        space.set_limits(self.limits(limits, capabilities));
        Ok(Arc::new(space))
    }

    /// Returns the limits that the memory manager enforces for a process with the limits `limits` and the effective
    /// capabilities `capabilities`.
    pub fn limits(&self, limits: &Limits, capabilities: Capabilities) -> memwright::Limits {
        let current = |resource| limits.get(resource).current;
        memwright::Limits {
            address_space: current(Resource::AddressSpace),
            data: current(Resource::Data),
            stack: current(Resource::Stack),
            locked: current(Resource::Locked),
            may_lock_any: capabilities.contains(Capabilities::LOCK_MEMORY),
            may_map_low: capabilities.contains(Capabilities::RAW_ACCESS),
            areas: self.most_areas.load(Ordering::Relaxed),
        }
    }
}

/// Records the peak resident size of the process's address space in the resource usage of the process. Called before
/// the process leaves the address space.
pub fn note_peak(process: &Process) {
    if let Some(space) = process.space() {
        process
            .usage
            .resident_peak
            .fetch_max(peak_resident_kib(&space), Ordering::Relaxed);
    }
}

fn limit_errno(limit: Limit) -> Errno {
    match limit {
        Limit::AddressSpace | Limit::Data | Limit::Stack | Limit::Areas => Errno::ENOMEM,
        Limit::Locked => Errno::EAGAIN,
    }
}

/// Returns the error number with which `mmap` fails.
pub fn map_errno(error: MapError) -> Errno {
    match error {
        MapError::NoLength | MapError::Misaligned | MapError::Flags(_) | MapError::NotDevice(_) => {
            Errno::EINVAL
        }
        MapError::TooLow | MapError::Sealed(_) => Errno::EPERM,
        MapError::Unsupported => Errno::ENODEV,
        MapError::Taken(_) => Errno::EEXIST,
        MapError::OffsetTooLarge => Errno::EOVERFLOW,
        MapError::Denied => Errno::EACCES,
        MapError::OverLimit(limit) => limit_errno(limit),
        MapError::OutOfRange | MapError::NoRoom | MapError::Overcommit | MapError::OutOfMemory => {
            Errno::ENOMEM
        }
    }
}

/// Returns the error number with which `munmap` fails.
pub fn unmap_errno(error: UnmapError) -> Errno {
    match error {
        UnmapError::NoLength | UnmapError::Misaligned | UnmapError::OutOfRange => Errno::EINVAL,
        UnmapError::Sealed(_) => Errno::EPERM,
        UnmapError::OverLimit(_) | UnmapError::OutOfMemory => Errno::ENOMEM,
    }
}

/// Returns the error number with which `mprotect` fails.
#[cold]
#[inline(never)]
pub fn protect_errno(error: ProtectError) -> Errno {
    match error {
        ProtectError::Misaligned | ProtectError::Key => Errno::EINVAL,
        ProtectError::Denied(_) => Errno::EACCES,
        ProtectError::Sealed(_) => Errno::EPERM,
        ProtectError::OutOfRange
        | ProtectError::Hole(_)
        | ProtectError::OverLimit(_)
        | ProtectError::Overcommit
        | ProtectError::OutOfMemory => Errno::ENOMEM,
    }
}

/// Returns the error number with which `mremap` fails.
pub fn remap_errno(error: RemapError) -> Errno {
    match error {
        RemapError::Misaligned
        | RemapError::NoLength
        | RemapError::Overlap
        | RemapError::Flags
        | RemapError::NotApplicable(_)
        | RemapError::OutOfRange => Errno::EINVAL,
        RemapError::NoArea(_) => Errno::EFAULT,
        RemapError::Sealed(_) | RemapError::TooLow => Errno::EPERM,
        RemapError::OverLimit(limit) => limit_errno(limit),
        RemapError::NoRoom | RemapError::Overcommit | RemapError::OutOfMemory => Errno::ENOMEM,
    }
}

/// Returns the error number with which `madvise` fails.
pub fn advise_errno(error: AdviseError) -> Errno {
    match error {
        AdviseError::Misaligned | AdviseError::OutOfRange | AdviseError::NotApplicable(_) => {
            Errno::EINVAL
        }
        AdviseError::Hole(_)
        | AdviseError::OverLimit(
            Limit::AddressSpace | Limit::Data | Limit::Stack | Limit::Locked,
        )
        | AdviseError::Fault(FaultError::OutOfMemory) => Errno::ENOMEM,
        AdviseError::Denied(_) => Errno::EACCES,
        AdviseError::Sealed(_) => Errno::EPERM,
        AdviseError::Fault(FaultError::Poison(_)) => Errno::EHWPOISON,
        AdviseError::Fault(_) | AdviseError::Watched(_) => Errno::EFAULT,
        // `EAGAIN` means that a resource is exhausted or busy now, but that a later call can succeed
        // (`madvise_vma_behavior`).
        AdviseError::OverLimit(Limit::Areas) | AdviseError::OutOfMemory | AdviseError::Busy(_) => {
            Errno::EAGAIN
        }
    }
}

/// Returns the error number with which `mseal` fails.
pub fn seal_errno(error: SealError) -> Errno {
    match error {
        SealError::Misaligned | SealError::OutOfRange => Errno::EINVAL,
        SealError::Hole(_) | SealError::OverLimit(_) | SealError::OutOfMemory => Errno::ENOMEM,
    }
}

/// Returns the error number with which `PR_SET_VMA_ANON_NAME` fails.
pub fn name_errno(error: NameError) -> Errno {
    match error {
        NameError::Misaligned | NameError::OutOfRange => Errno::EINVAL,
        NameError::NotAnonymous(_) => Errno::EBADF,
        NameError::Hole(_) | NameError::OverLimit(_) | NameError::OutOfMemory => Errno::ENOMEM,
    }
}

/// Returns the error number with which a call of the `mlock` family fails. `limit` is the limit on locked memory:
/// exceeding a limit of 0 is `EPERM`, and exceeding any other limit is `ENOMEM`.
pub fn lock_errno(error: LockError, limit: u64) -> Errno {
    match error {
        LockError::OverLimit(_) if limit == 0 => Errno::EPERM,
        LockError::OutOfRange => Errno::EINVAL,
        LockError::Hole(_)
        | LockError::OverLimit(_)
        | LockError::Fault(_)
        | LockError::Watched(_)
        | LockError::OutOfMemory => Errno::ENOMEM,
    }
}

/// Returns the error number with which `msync` fails.
pub fn sync_errno(error: SyncError) -> Errno {
    match error {
        SyncError::Misaligned => Errno::EINVAL,
        SyncError::OutOfRange | SyncError::Hole(_) => Errno::ENOMEM,
        SyncError::Locked(_) => Errno::EBUSY,
        SyncError::Object(_) => Errno::EIO,
    }
}

/// Returns the error number with which `fork` fails.
pub fn fork_errno(error: ForkError) -> Errno {
    match error {
        ForkError::OutOfMemory | ForkError::Overcommit => Errno::ENOMEM,
    }
}

#[cfg(test)]
mod tests {
    use super::{PROGRAM_BASE, mapping_top};

    #[test]
    fn the_layout_is_that_of_linux_without_randomisation() {
        assert_eq!(PROGRAM_BASE, 0x5555_5555_4000);
        assert_eq!(mapping_top(8 << 20), 0x7fff_f7ff_f000);
        assert_eq!(mapping_top(1 << 30), 0x7fff_bfff_f000);
    }
}
