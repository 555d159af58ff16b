//! What can go wrong, one small enum per operation. An errno appears only in the personality; the comment
//! at each variant names the one that Linux 7.2 returns.

use memwright_table::{NoHugePage, OutOfFrames, OutOfMemory, VirtAddr};

use crate::fault::Access;
use crate::space::CutError;
use crate::uffd::WatchedFault;

/// A limit of the process (`setrlimit`) or of the memory manager.
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

/// Why nothing was mapped. The address space is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The length is zero (EINVAL).
    NoLength,
    /// The address or the offset is not a multiple of the page size (EINVAL).
    Misaligned,
    /// The range does not end below the end of user addresses (ENOMEM).
    OutOfRange,
    /// The range begins below the lowest address (EPERM).
    TooLow,
    /// No free range is long enough (ENOMEM).
    NoRoom,
    /// Something is mapped there (EEXIST).
    Taken(VirtAddr),
    /// The offset plus the length does not fit (EOVERFLOW).
    OffsetTooLarge,
    /// The rights exceed what the object allows (EACCES).
    Denied,
    /// What is mapped there is sealed from this address on (EPERM).
    Sealed(VirtAddr),
    /// A limit forbids it (ENOMEM; EAGAIN for [`Limit::Locked`]).
    OverLimit(Limit),
    /// More than all memory at once (ENOMEM).
    Overcommit,
    /// No memory for a structure (ENOMEM).
    OutOfMemory,
}

/// Why nothing was unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmapError {
    /// The length is zero (EINVAL).
    NoLength,
    /// The address is not a multiple of the page size (EINVAL).
    Misaligned,
    /// The range is not in user addresses (EINVAL).
    OutOfRange,
    /// A sealed area lies in the range, from this address on (EPERM).
    Sealed(VirtAddr),
    /// Cutting an area in two would exceed the area limit (ENOMEM).
    OverLimit(Limit),
    /// No memory for a structure (ENOMEM).
    OutOfMemory,
}

/// Why a protection change stopped. Areas below the address have changed, as on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectError {
    /// The address is not a multiple of the page size (EINVAL).
    Misaligned,
    /// The range wraps around or leaves user addresses (ENOMEM).
    OutOfRange,
    /// Nothing is mapped here (ENOMEM).
    Hole(VirtAddr),
    /// More rights than the area may ever have (EACCES).
    Denied(VirtAddr),
    /// The program does not have the protection key (EINVAL).
    Key,
    /// The area is sealed (EPERM).
    Sealed(VirtAddr),
    /// A limit forbids it (ENOMEM).
    OverLimit(Limit),
    /// More than all memory at once (ENOMEM).
    Overcommit,
    /// No memory for a structure (ENOMEM).
    OutOfMemory,
}

/// Why nothing was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapError {
    /// An address is not a multiple of the page size (EINVAL).
    Misaligned,
    /// The new length is zero, the ranges overlap, or the flags contradict each other (EINVAL).
    Invalid,
    /// The old range is not inside one area (EFAULT).
    NoArea(VirtAddr),
    /// The area, or what is mapped at the new place, is sealed (EPERM).
    Sealed(VirtAddr),
    /// The new range does not end below the end of user addresses (EINVAL).
    OutOfRange,
    /// The new range begins below the lowest address (EPERM).
    TooLow,
    /// It does not fit where it is and must not move, or there is no room (ENOMEM).
    NoRoom,
    /// A limit forbids it (ENOMEM; EAGAIN for [`Limit::Locked`]).
    OverLimit(Limit),
    /// More than all memory at once (ENOMEM).
    Overcommit,
    /// No memory for a structure (ENOMEM).
    OutOfMemory,
}

/// Why advice was not followed to the end. What lies below the address was advised, as on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdviseError {
    /// The address is not a multiple of the page size, or the range wraps around (EINVAL).
    Misaligned,
    /// Nothing is mapped here; the rest of the range was still advised (ENOMEM).
    Hole(VirtAddr),
    /// The advice does not apply to this area (EINVAL).
    NotApplicable(VirtAddr),
    /// The area does not grant the right that the advice needs (EACCES).
    Denied(VirtAddr),
    /// The area is sealed, and its contents would go (EPERM).
    Sealed(VirtAddr),
    /// A page could not be populated (EFAULT; ENOMEM when out of memory).
    Fault(FaultError),
    /// A watcher must resolve a fault first; then the same advice may be given again.
    Watched(Awaited),
    /// A limit forbids it (ENOMEM).
    OverLimit(Limit),
    /// A page is in use in a way that passes: the call may be repeated (EAGAIN).
    Busy(VirtAddr),
    /// No memory for a structure (EAGAIN).
    OutOfMemory,
}

/// A fault of which a watcher is to be told before an operation can go on: it is repeated once the watcher has resolved
/// the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The page.
    pub at: VirtAddr,
    /// The access that the operation stands for.
    pub access: Access,
    /// What the watcher is told.
    pub fault: WatchedFault,
}

/// Where populating stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) at: VirtAddr,
    pub(crate) access: Access,
    pub(crate) error: FaultError,
}

impl Stopped {
    /// The watcher that must be told before it can go on.
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

/// What stands between a call that makes memory resident and the next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PopulateError {
    /// A watcher must resolve a fault first.
    Watched(Awaited),
    /// No frame is free, or no memory for a structure.
    OutOfMemory,
}

/// Why nothing was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealError {
    /// The address is not a multiple of the page size, or the range wraps around, or cuts a huge page (EINVAL).
    Invalid,
    /// Nothing is mapped here (ENOMEM).
    Hole(VirtAddr),
    /// A limit forbids it (ENOMEM). Areas below have been sealed.
    OverLimit(Limit),
    /// No memory for a structure (ENOMEM). Areas below have been sealed.
    OutOfMemory,
}

/// Why memory was not locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockError {
    /// The range wraps around (EINVAL).
    OutOfRange,
    /// Nothing is mapped here (ENOMEM).
    Hole(VirtAddr),
    /// A limit forbids it (ENOMEM; EPERM when the limit is zero).
    OverLimit(Limit),
    /// A page could not be populated (ENOMEM, or EAGAIN).
    Fault(FaultError),
    /// A watcher must resolve a fault first; the areas are locked, and the call may be repeated.
    Watched(Awaited),
    /// No memory for a structure (ENOMEM).
    OutOfMemory,
}

/// Why memory was not written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncError {
    /// The address is not a multiple of the page size (EINVAL).
    Misaligned,
    /// The range wraps around (ENOMEM).
    OutOfRange,
    /// Nothing is mapped here; the rest was still written back (ENOMEM).
    Hole(VirtAddr),
    /// Invalidation was asked for locked memory (EBUSY).
    Locked(VirtAddr),
    /// The object could not write (EIO).
    Object(ObjectError),
}

/// Why a child could not be made. Nothing of it remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkError {
    /// No memory for the child's tables or areas (ENOMEM).
    OutOfMemory,
    /// The child's memory exceeds all memory (ENOMEM).
    Overcommit,
}

/// Why an access cannot be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// Nothing is mapped here (SIGSEGV, `SEGV_MAPERR`).
    NoArea,
    /// The area does not grant the right (SIGSEGV, `SEGV_ACCERR`).
    Denied,
    /// This CPU refuses such accesses to pages with this protection key (SIGSEGV, `SEGV_PKUERR`).
    Key(u8),
    /// A guard marker stands here (SIGSEGV, `SEGV_MAPERR`).
    Guard,
    /// A poison marker stands here (SIGBUS, `BUS_ADRERR`).
    Poison,
    /// The object ends before this page, or may have no more pages (SIGBUS, `BUS_ADRERR`).
    BeyondObject,
    /// The object could not be read (SIGBUS, `BUS_ADRERR`).
    Io,
    /// The stack may not grow to here (SIGSEGV, `SEGV_MAPERR`).
    StackLimit,
    /// The pool of huge pages has none left (SIGBUS, `BUS_ADRERR`).
    NoHugePage,
    /// No frame is free: the personality chooses a victim and retries.
    OutOfMemory,
    /// The object is busy: the caller waits with no lock held, then retries.
    WouldBlock,
    /// A userfaultfd is to resolve it: the caller tells it, waits, and retries.
    Watched(WatchedFault),
}

impl FaultError {
    /// Whether the VMA permits the access, and its page cannot be had: Linux counts such a fault in `pgfault`, others
    /// that it refuses nowhere (Linux 7.3 `mm/memory.c`, `mm_account_fault`).
    pub(crate) const fn is_failure(self) -> bool {
        match self {
            Self::Guard | Self::Poison | Self::BeyondObject | Self::Io | Self::NoHugePage => true,
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

/// Why memory was not watched, or not protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchError {
    /// Nothing is mapped there, the range is no range of pages, or its memory cannot be watched so (EINVAL).
    Invalid,
    /// An area there may never be written (EPERM).
    NotWritable,
    /// Another descriptor watches memory there (EBUSY).
    Busy,
    /// Memory there is not watched by the descriptor in this way (ENOENT).
    NotWatched,
    /// A limit forbids it (ENOMEM).
    OverLimit(Limit),
    /// No memory for a structure (ENOMEM).
    OutOfMemory,
}

impl From<CutError> for WatchError {
    fn from(error: CutError) -> Self {
        match error {
            CutError::OverLimit(limit) => Self::OverLimit(limit),
            CutError::OutOfMemory => Self::OutOfMemory,
        }
    }
}

/// Why a page was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveError {
    /// Pages do not go from one such area to another (EINVAL).
    Invalid,
    /// Nothing is mapped where the target begins (ENOENT).
    NotWatched,
    /// There is no page (ENOENT).
    NotThere,
    /// A guard, poison or a protection stands where the page would be (EFAULT).
    Marked,
    /// There is one at the target (EEXIST).
    Exists,
    /// Somebody else can reach the page (EBUSY).
    Busy,
    /// No memory (ENOMEM).
    OutOfMemory,
}

/// Why a page was not filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillError {
    /// The page is not in user memory, or cannot be filled so (EINVAL).
    Invalid,
    /// The page is not watched by the descriptor (ENOENT).
    NotWatched,
    /// Something is there already (EEXIST).
    Exists,
    /// The object does not have the page (EFAULT).
    NotThere,
    /// Somebody else is filling it: the caller retries.
    Busy,
    /// No memory (ENOMEM).
    OutOfMemory,
}

/// Why an object has no frame for an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectError {
    /// The object ends before the index.
    BeyondEnd,
    /// No frame is free.
    OutOfMemory,
    /// The object may have no more pages: the [`Room`](crate::object::Room) that it shares is full.
    NoRoom,
    /// The backing store failed.
    Io,
    /// The page is being read or written back: wait, then retry.
    WouldBlock,
    /// The page is in swap: [`bring_in`](crate::object::Object::bring_in) has it read, then retry.
    InSwap,
}

impl From<ObjectError> for FaultError {
    fn from(error: ObjectError) -> Self {
        match error {
            // It has no such page, and gets none.
            ObjectError::BeyondEnd | ObjectError::NoRoom => Self::BeyondObject,
            ObjectError::OutOfMemory => Self::OutOfMemory,
            ObjectError::Io => Self::Io,
            // It comes back by another fault, or by the next.
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
