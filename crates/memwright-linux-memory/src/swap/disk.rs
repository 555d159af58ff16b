//! A disk, which can be used as a swap device. While it is used as swap, programs cannot write to it.

use super::{backing::Backing, faults::Faults, header};
use alloc::sync::Arc;
use memwright::{DeviceError, Direction, Submission, SwapDevice, Ticket, Transfer};
use memwright_linux_abi::{M, Memory, errno::Errno};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_vfs::manifest::SwapKind;
use memwright_table::{Frames, PAGE_SIZE};

/// The use of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// The disk is not swap, so programs may read and write it.
    Free,
    /// A thread is turning the disk on or off as swap.
    Changing,
    /// The disk is the swap device with the contained number.
    Swap(usize),
}

/// A disk. If it is used as swap, its first page is a header in the format of `mkswap`.
pub struct Disk {
    minor: u32,
    pages: u32,
    backing: Backing,
    /// The errors of swap transfers that are injected for tests.
    faults: Faults,
    used: Lock<Use>,
}

/// The pages of a disk after its header, as swap slots.
struct Slots {
    disk: Arc<Disk>,
    slots: u32,
}

impl Disk {
    /// Creates a disk of `pages` pages. About one in `errors` swap transfers fails; none fails if `errors` is 0.
    pub const fn new(backing: Backing, minor: u32, pages: u32, errors: u32) -> Self {
        Self {
            minor,
            pages,
            backing,
            faults: Faults::new(errors),
            used: Lock::new(Rank::Leaf, Use::Free),
        }
    }

    /// Returns the number of the disk among the disks of its kind (the minor device number).
    pub(super) const fn minor(&self) -> u32 {
        self.minor
    }

    /// Returns the kind of the storage behind the disk.
    #[must_use]
    pub fn kind(&self) -> SwapKind {
        self.backing.kind()
    }

    /// Returns the size of the disk in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.pages as u64 * PAGE_SIZE as u64
    }

    /// Returns the number of bytes of memory that the contents of the disk occupy.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.backing.stored()
    }

    /// Returns whether the disk is the swap device with the number `number`.
    #[must_use]
    pub fn is_swap(&self, number: usize) -> bool {
        *self.used.lock() == Use::Swap(number)
    }

    /// Returns whether the disk is used as swap, or is being turned on or off.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        *self.used.lock() != Use::Free
    }

    /// Writes a swap header that covers all pages of the disk.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn format(&self, frames: &Frames<M>) -> Result<(), Errno> {
        let mut page = [0; PAGE_SIZE];
        header::write(&mut page, self.pages);
        self.backing.put(frames, 0, 0, &page)
    }

    /// Reads bytes at `offset` in a page.
    ///
    /// # Errors
    /// `EIO` if the device reports an error.
    pub fn get(
        &self,
        frames: &Frames<M>,
        page: u32,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), Errno> {
        self.backing.get(frames, page, offset, bytes)
    }

    /// Writes bytes at `offset` in a page.
    ///
    /// # Errors
    /// `ETXTBSY` while the disk is used as swap, `ENOSPC` if there is no memory for the contents.
    pub fn put(
        &self,
        frames: &Frames<M>,
        page: u32,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        if self.is_in_use() {
            return Err(Errno::ETXTBSY);
        }
        self.backing.put(frames, page, offset, bytes)
    }

    /// Discards the data that programs wrote to the disk, which frees the memory of the data, and writes a new header.
    /// Does nothing while the disk is used as swap.
    pub(super) fn clear(&self, frames: &Frames<M>) {
        if !self.is_in_use() && self.stored() > 0 {
            for page in 0..self.pages {
                self.backing.discard(frames, page);
            }
            // The header was also discarded, so write it again.
            let formatted = self.format(frames);
            debug_assert_eq!(formatted, Ok(()));
        }
    }

    /// Starts using the disk as swap. The number of pages is that in the header of the disk.
    ///
    /// # Errors
    /// `EBUSY` if the disk is in use as swap already, `EINVAL` if it has no valid header, `EPERM` if there are too many
    /// swap devices, `ENOMEM`.
    pub fn swap_on(self: &Arc<Self>, memory: &Memory, priority: i32) -> Result<(), Errno> {
        {
            let mut used = self.used.lock();
            if *used != Use::Free {
                return Err(Errno::EBUSY);
            }
            *used = Use::Changing;
        }
        let added = self.add(memory, priority);
        *self.used.lock() = added.map_or(Use::Free, Use::Swap);
        added.map(|_| ())
    }

    fn add(self: &Arc<Self>, memory: &Memory, priority: i32) -> Result<usize, Errno> {
        let mut page = [0; PAGE_SIZE];
        self.get(memory.frames(), 0, 0, &mut page)?;
        let slots = header::read(&page, self.pages)?;
        let disk = self.clone();
        let slots: Arc<dyn SwapDevice<M>> = Arc::new(Slots { disk, slots });
        let added = memory.add_swap(slots, priority);
        added.map_err(|_| Errno::ENOMEM)?.ok_or(Errno::EPERM)
    }

    /// Begins to turn the swap device off. Returns the number of the device, which the caller needs to remove it from
    /// the swap devices. The disk cannot be used until the caller reports the result by `end_off`.
    ///
    /// # Errors
    /// `EINVAL` if the disk is not used as swap.
    pub(super) fn begin_off(&self) -> Result<usize, Errno> {
        let mut used = self.used.lock();
        match *used {
            Use::Swap(number) => {
                *used = Use::Changing;
                Ok(number)
            }
            Use::Free | Use::Changing => Err(Errno::EINVAL),
        }
    }

    /// Records the result of turning the disk off. `number` is `None` if the disk is no longer swap, or the number of
    /// the swap device if turning it off failed.
    pub(super) fn end_off(&self, number: Option<usize>) {
        *self.used.lock() = number.map_or(Use::Free, Use::Swap);
    }
}

impl SwapDevice<M> for Slots {
    fn slots(&self) -> u32 {
        self.slots
    }

    fn most_pending(&self) -> usize {
        self.disk.backing.most_pending()
    }

    fn submit(&self, frames: &Frames<M>, transfer: Transfer) -> Submission {
        let backing = &self.disk.backing;
        let transfer = Transfer {
            slot: transfer.slot + 1,
            ..transfer
        };
        if self.disk.faults.next_fails() {
            if transfer.direction == Direction::Out {
                backing.discard(frames, transfer.slot);
            }
            return Submission::Done(Err(DeviceError::Io));
        }
        backing.submit(frames, transfer)
    }

    fn complete(&self, _frames: &Frames<M>, ticket: Ticket) -> Result<(), DeviceError> {
        self.disk.backing.complete(ticket)
    }

    fn discard(&self, frames: &Frames<M>, slot: u32) {
        self.disk.backing.discard(frames, slot + 1);
    }

    fn stored(&self) -> u64 {
        self.disk.stored()
    }
}
