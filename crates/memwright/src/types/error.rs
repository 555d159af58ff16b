//! Errors, one small enum per operation. The Linux personality translates them to errno values. If a variant becomes an
//! errno value, its comment names the value that Linux 7.2 returns.

use core::fmt;

use memwright_table::{NoHugePage, OutOfFrames, OutOfMemory, PageSize, PhysAddr, VirtAddr};

use crate::types::access::Access;
use crate::types::layout::LayoutError;
use crate::types::uffd::WatchedFault;

/// The limit that an operation would exceed: a limit of the process (`setrlimit`) or of the memory manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `RLIMIT_AS`.
    AddressSpace,
    /// `RLIMIT_DATA`.
    Data,
    /// `RLIMIT_STACK`.
    Stack,
    /// `RLIMIT_MEMLOCK`.
    Locked,
    /// `vm.max_map_count`.
    Areas,
}

/// The reason why an address space could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceError {
    /// The layout is invalid, for this reason.
    BadLayout(LayoutError),
    /// No frame is free for the page table, or the heap has no room.
    OutOfMemory,
}

impl fmt::Display for SpaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpaceError::BadLayout(error) => error.fmt(f),
            SpaceError::OutOfMemory => f.write_str("out of memory"),
        }
    }
}

impl core::error::Error for SpaceError {}

impl From<OutOfMemory> for SpaceError {
    fn from(_: OutOfMemory) -> Self {
        SpaceError::OutOfMemory
    }
}

/// The reason why a mapping failed. The address space is unchanged, with one exception: if no frame is free for the
/// page tables of a mapping of device memory, the mappings that it would have replaced are unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The length is 0 (EINVAL).
    NoLength,
    /// The address or the offset is not a multiple of the page size (EINVAL).
    Misaligned,
    /// The range ends above the end of user addresses (ENOMEM).
    OutOfRange,
    /// The range begins below the lowest user address (EPERM).
    TooLow,
    /// No free range is long enough (ENOMEM).
    NoRoom,
    /// The range overlaps the existing mapping at this address, and the request must not replace mappings (EEXIST).
    Taken(VirtAddr),
    /// The offset plus the length overflows (EOVERFLOW).
    OffsetTooLarge,
    /// The rights exceed what the object allows (EACCES).
    Denied,
    /// The request has flags that only the memory manager sets. The value contains the bits of these flags (EINVAL).
    Flags(u32),
    /// The machine has no device memory at these physical addresses, or the allocator manages a frame of them (EINVAL).
    NotDevice(PhysAddr),
    /// The crate was compiled without the feature that the mapping needs, `objects` or `hugetlb` (ENODEV).
    Unsupported,
    /// The request would replace a sealed area. The address is that of the first sealed page (EPERM).
    Sealed(VirtAddr),
    /// The operation would exceed a limit (ENOMEM; EAGAIN for [`Limit::Locked`]).
    OverLimit(Limit),
    /// The commit charge exceeds what the overcommit mode allows (ENOMEM).
    Overcommit,
    /// A data structure could not be allocated (ENOMEM).
    OutOfMemory,
}

/// The reason why an unmap failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmapError {
    /// The length is 0 (EINVAL).
    NoLength,
    /// The address is not a multiple of the page size (EINVAL).
    Misaligned,
    /// The range is not in user addresses (EINVAL).
    OutOfRange,
    /// The range overlaps a sealed area. The address is that of the first sealed page (EPERM).
    Sealed(VirtAddr),
    /// Splitting an area would exceed the limit on areas (ENOMEM).
    OverLimit(Limit),
    /// A data structure could not be allocated (ENOMEM).
    OutOfMemory,
}

/// The reason why a protection change stopped. Areas below the address in the error have changed, as on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectError {
    /// The address is not a multiple of the page size (EINVAL).
    Misaligned,
    /// The range wraps around or leaves user addresses (ENOMEM).
    OutOfRange,
    /// Nothing is mapped at this address (ENOMEM).
    Hole(VirtAddr),
    /// The rights exceed the maximum rights of the area, or MDWE denies them (EACCES).
    Denied(VirtAddr),
    /// The protection key is not allocated (EINVAL).
    Key,
    /// The area is sealed (EPERM).
    Sealed(VirtAddr),
    /// The operation would exceed a limit (ENOMEM).
    OverLimit(Limit),
    /// The commit charge exceeds what the overcommit mode allows (ENOMEM).
    Overcommit,
    /// A data structure could not be allocated (ENOMEM).
    OutOfMemory,
}

/// The reason why an `mremap` failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapError {
    /// An address is not a multiple of the page size (EINVAL).
    Misaligned,
    /// The new length is 0, or overflows when it is rounded up to pages (EINVAL).
    NoLength,
    /// The old and the new range overlap (EINVAL).
    Overlap,
    /// `fixed` or `dont_unmap` is set without `may_move`, or `dont_unmap` with two different lengths (EINVAL).
    Flags,
    /// The area at this address cannot be remapped in this way (EINVAL). Private memory cannot be mapped a second time.
    /// Hugetlb memory can neither grow nor be cut inside a page. Neither hugetlb memory nor device memory can stay
    /// mapped.
    NotApplicable(VirtAddr),
    /// The old range is not inside one area, or device memory would grow (EFAULT).
    NoArea(VirtAddr),
    /// A sealed area is mapped at the old or at the new address (EPERM).
    Sealed(VirtAddr),
    /// The new range ends above the end of user addresses (EINVAL).
    OutOfRange,
    /// The new range begins below the lowest user address (EPERM).
    TooLow,
    /// No free range is long enough, or the area cannot grow in place and the caller does not allow it to move
    /// (ENOMEM).
    NoRoom,
    /// The operation would exceed a limit (ENOMEM; EAGAIN for [`Limit::Locked`]).
    OverLimit(Limit),
    /// The commit charge exceeds what the overcommit mode allows (ENOMEM).
    Overcommit,
    /// A data structure could not be allocated (ENOMEM).
    OutOfMemory,
}

/// The reason why advice was not applied to the complete range. As on Linux, it was applied to the areas below the
/// address in the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdviseError {
    /// The address is not a multiple of the page size (EINVAL).
    Misaligned,
    /// The range wraps around (EINVAL).
    OutOfRange,
    /// Nothing is mapped at this address; the advice was still applied to the rest of the range (ENOMEM).
    Hole(VirtAddr),
    /// The advice does not apply to the area at this address (EINVAL).
    NotApplicable(VirtAddr),
    /// The area at this address does not grant the right that the advice requires (EACCES).
    Denied(VirtAddr),
    /// The area at this address is sealed, and the advice would discard its contents (EPERM).
    Sealed(VirtAddr),
    /// A page could not be populated (EFAULT). [`FaultError::OutOfMemory`] means that no frame is free for the page
    /// (ENOMEM).
    Fault(FaultError),
    /// A userfaultfd must resolve a fault first; the caller then repeats the call.
    Watched(Awaited),
    /// The operation would exceed a limit (ENOMEM).
    OverLimit(Limit),
    /// A page is temporarily in use: the caller may repeat the call (EAGAIN).
    Busy(VirtAddr),
    /// A data structure could not be allocated, for example for the split of an area (EAGAIN). If no frame is free for
    /// a page that is populated, the error is [`Fault`](Self::Fault) instead.
    OutOfMemory,
}

/// A fault that a userfaultfd must resolve before an operation can continue. The caller reports the fault, waits, and
/// repeats the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The address of the page.
    pub at: VirtAddr,
    /// The access that faulted.
    pub access: Access,
    /// The kind of fault that the caller reports to the userfaultfd.
    pub fault: WatchedFault,
}

/// The page at which populating stopped, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) at: VirtAddr,
    pub(crate) access: Access,
    pub(crate) error: FaultError,
}

impl Stopped {
    /// Returns the userfaultfd fault that must be resolved before the operation is repeated. Returns `None` if the
    /// operation stopped for another reason.
    pub(crate) fn awaits(self) -> Option<Awaited> {
        let Self { at, access, error } = self;
        match error {
            FaultError::Watched(fault) => Some(Awaited { at, access, fault }),
            _ => None,
        }
    }
}

impl From<Stopped> for AdviseError {
    fn from(stopped: Stopped) -> Self {
        let fault = Self::Fault(stopped.error);
        stopped.awaits().map_or(fault, Self::Watched)
    }
}

impl From<Stopped> for LockError {
    fn from(stopped: Stopped) -> Self {
        let fault = Self::Fault(stopped.error);
        stopped.awaits().map_or(fault, Self::Watched)
    }
}

/// The reason why a call that populates memory stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PopulateError {
    /// A userfaultfd must resolve a fault before the call can continue.
    Watched(Awaited),
    /// No frame is free, or a data structure could not be allocated.
    OutOfMemory,
}

/// The reason why anonymous memory could not be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The address is not a multiple of the page size, or the range begins or ends inside a hugetlb page (EINVAL).
    Misaligned,
    /// The range wraps around (EINVAL).
    OutOfRange,
    /// Nothing is mapped at this address (ENOMEM).
    Hole(VirtAddr),
    /// A file is mapped at this address (EBADF).
    NotAnonymous(VirtAddr),
    /// The operation would exceed a limit (ENOMEM).
    OverLimit(Limit),
    /// A data structure could not be allocated (ENOMEM).
    OutOfMemory,
}

/// The reason why an `mseal` failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealError {
    /// The address is not a multiple of the page size, or the range begins or ends inside a hugetlb page (EINVAL).
    Misaligned,
    /// The range wraps around (EINVAL).
    OutOfRange,
    /// Nothing is mapped at this address (ENOMEM).
    Hole(VirtAddr),
    /// The operation would exceed a limit (ENOMEM). The areas at lower addresses have been sealed.
    OverLimit(Limit),
    /// A data structure could not be allocated (ENOMEM). The areas at lower addresses have been sealed.
    OutOfMemory,
}

/// The reason why memory was not locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockError {
    /// The range wraps around (EINVAL).
    OutOfRange,
    /// Nothing is mapped at this address (ENOMEM).
    Hole(VirtAddr),
    /// The operation would exceed a limit (ENOMEM; EPERM when the limit is zero).
    OverLimit(Limit),
    /// A page could not be populated (ENOMEM, or EAGAIN).
    Fault(FaultError),
    /// A userfaultfd must resolve a fault first. The areas are locked, and the caller may repeat the call.
    Watched(Awaited),
    /// A data structure could not be allocated (ENOMEM).
    OutOfMemory,
}

/// The reason why an `msync` failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncError {
    /// The address is not a multiple of the page size (EINVAL).
    Misaligned,
    /// The range wraps around (ENOMEM).
    OutOfRange,
    /// Nothing is mapped at this address; the rest of the range was still written back (ENOMEM).
    Hole(VirtAddr),
    /// Invalidation was requested for locked memory (EBUSY).
    Locked(VirtAddr),
    /// The object failed to write back (EIO).
    Object(ObjectError),
}

/// The reason why a fork failed. Nothing of the child remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkError {
    /// There is no memory for the child's tables or areas (ENOMEM).
    OutOfMemory,
    /// The commit charge for the child exceeds what the overcommit mode allows (ENOMEM).
    Overcommit,
}

/// The reason why a page fault was not resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// Nothing is mapped at this address (SIGSEGV, `SEGV_MAPERR`).
    NoArea,
    /// The area does not grant the right (SIGSEGV, `SEGV_ACCERR`).
    Denied,
    /// The protection-key register of this CPU denies the access to pages with this key (SIGSEGV, `SEGV_PKUERR`).
    Key(u8),
    /// The entry is a guard marker (SIGSEGV, `SEGV_MAPERR`).
    Guard,
    /// The entry is a poison marker for a page of this size (SIGBUS, `BUS_MCEERR_AR`).
    Poison(PageSize),
    /// The page is beyond the end of the object, or the object has reached its limit of pages (SIGBUS, `BUS_ADRERR`).
    BeyondObject,
    /// Reading the page from its object or swap device failed (SIGBUS, `BUS_ADRERR`).
    Io,
    /// The stack is not allowed to expand to this address (SIGSEGV, `SEGV_MAPERR`).
    StackLimit,
    /// The hugetlb pool has no free page (SIGBUS, `BUS_ADRERR`).
    NoHugePage,
    /// No frame is free: the caller runs direct reclaim or the OOM killer, then retries.
    OutOfMemory,
    /// The page is busy: the caller waits with no lock held, then retries.
    WouldBlock,
    /// A userfaultfd must resolve the fault: the caller reports it, waits, and retries.
    Watched(WatchedFault),
}

impl FaultError {
    /// Returns whether the error means that the area permits the access but the page cannot be provided. Linux counts
    /// such a fault in `pgfault`. It does not count a fault whose access the area denies (Linux 7.3 `mm/memory.c`,
    /// `mm_account_fault`).
    pub(crate) const fn is_failure(self) -> bool {
        match self {
            Self::Guard | Self::Poison(_) | Self::BeyondObject | Self::Io | Self::NoHugePage => {
                true
            }
            Self::NoArea
            | Self::Denied
            | Self::Key(_)
            | Self::StackLimit
            | Self::OutOfMemory
            | Self::WouldBlock
            | Self::Watched(_) => false,
        }
    }
}

/// The reason why a userfaultfd registration, unregistration or write protection (uffd-wp) failed, or why a
/// `PAGEMAP_SCAN` failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchError {
    /// The address or the length is not a multiple of the page size, the length is 0, or the range is not in user
    /// memory (EINVAL).
    BadRange,
    /// Nothing is mapped in the range (EINVAL).
    NoArea,
    /// The modes contradict each other (EINVAL).
    Modes,
    /// The area at this address does not support the mode, is registered with another userfaultfd, or has a hugetlb page
    /// of which only a part is in the range (EINVAL).
    NotApplicable(VirtAddr),
    /// Some area in the range can never become writable, or has no store tracking although the scan requires it
    /// (EPERM).
    NotWritable,
    /// Memory in the range is registered with another userfaultfd (EBUSY).
    Busy,
    /// Memory in the range is not registered with the userfaultfd in this mode (ENOENT).
    NotWatched,
    /// The operation would exceed a limit (ENOMEM).
    OverLimit(Limit),
    /// A data structure could not be allocated (ENOMEM).
    OutOfMemory,
    /// The crate was compiled without the feature that the operation needs, `uffd` or `tracking` (ENOSYS).
    Unsupported,
}

impl From<CutError> for WatchError {
    fn from(error: CutError) -> Self {
        match error {
            CutError::OverLimit(limit) => Self::OverLimit(limit),
            CutError::OutOfMemory => Self::OutOfMemory,
        }
    }
}

/// The reason why `UFFDIO_MOVE` did not move a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveError {
    /// The source or the target is not within a single area (EINVAL).
    SeveralAreas,
    /// The target is not registered with the userfaultfd (EINVAL).
    NotRegistered,
    /// Pages cannot be moved between these areas: one of them is shared or maps an object, the source is not writable,
    /// or the areas differ in their rights or in whether they are locked (EINVAL).
    NotApplicable,
    /// Nothing is mapped at the start of the target (ENOENT).
    NotWatched,
    /// No area is mapped at the source, or the source has no page (ENOENT).
    NotThere,
    /// The source has a guard, poison or write-protection marker in place of the page (EFAULT).
    Marked,
    /// The target already has a page (EEXIST).
    Exists,
    /// The page is shared, pinned or being migrated (EBUSY).
    Busy,
    /// There is no free memory (ENOMEM).
    OutOfMemory,
}

/// The reason why a userfaultfd ioctl did not fill a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillError {
    /// The area cannot be filled in this way, or the page is not the first page of a hugetlb page (EINVAL).
    NotApplicable,
    /// The page was to be write-protected, but its area is not registered for write protection (EINVAL).
    NotProtectable,
    /// The object has the page, but could not provide it: it could not be read, or is in use (EINVAL).
    Unavailable,
    /// The page is not registered with the userfaultfd (ENOENT).
    NotWatched,
    /// The entry is not empty (EEXIST).
    Exists,
    /// The object does not have the page (EFAULT).
    NotThere,
    /// The page is beyond the end of the shared object (ENOMEM).
    BeyondEnd,
    /// The page is being filled concurrently: the caller retries.
    Busy,
    /// There is no free memory (ENOMEM).
    OutOfMemory,
}

/// The reason why an object does not provide the frame of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectError {
    /// The index is beyond the end of the object.
    BeyondEnd,
    /// No frame is free.
    OutOfMemory,
    /// The limit of pages is reached: the [`Room`](crate::object::Room) that the object allocates from is full.
    NoRoom,
    /// Access to the backing store failed with an I/O error.
    Io,
    /// The page is being read or written back: the caller waits, then retries.
    WouldBlock,
    /// The page is in swap: the caller swaps it in with [`bring_in`](crate::object::Object::bring_in), then retries.
    InSwap,
}

impl From<ObjectError> for FaultError {
    fn from(error: ObjectError) -> Self {
        match error {
            // There is no page and none can be allocated, so the access is an error.
            ObjectError::BeyondEnd | ObjectError::NoRoom => Self::BeyondObject,
            ObjectError::OutOfMemory => Self::OutOfMemory,
            ObjectError::Io => Self::Io,
            // The fault is retried after the read or writeback has ended, or after the page has been swapped in.
            ObjectError::WouldBlock | ObjectError::InSwap => Self::WouldBlock,
        }
    }
}

impl From<OutOfFrames> for FaultError {
    fn from(_: OutOfFrames) -> Self {
        Self::OutOfMemory
    }
}

impl From<OutOfFrames> for ObjectError {
    fn from(_: OutOfFrames) -> Self {
        Self::OutOfMemory
    }
}

macro_rules! from_out_of_memory {
    ($($error:ty),*) => {
        $(
            impl From<OutOfMemory> for $error {
                fn from(_: OutOfMemory) -> Self {
                    Self::OutOfMemory
                }
            }

            impl From<OutOfFrames> for $error {
                fn from(_: OutOfFrames) -> Self {
                    Self::OutOfMemory
                }
            }
        )*
    };
}

impl From<NoHugePage> for FaultError {
    fn from(_: NoHugePage) -> Self {
        Self::NoHugePage
    }
}

impl From<OutOfMemory> for ObjectError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl From<NoHugePage> for ObjectError {
    fn from(_: NoHugePage) -> Self {
        Self::OutOfMemory
    }
}

from_out_of_memory!(
    MapError,
    UnmapError,
    ProtectError,
    RemapError,
    AdviseError,
    LockError,
    ForkError,
    WatchError,
    FillError,
    MoveError
);

/// The reason why an area could not be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutError {
    OverLimit(Limit),
    OutOfMemory,
}
