//! A disk, which is swap or what programs make of it.

use super::{Kind, backing::Backing, faults::Faults, header};
use crate::{
    M, Memory,
    errno::Errno,
    fs::attributes::DeviceNumber,
    sync::{Lock, Rank},
};
use alloc::{string::String, sync::Arc};
use memwright::{DeviceError, Direction, Submission, SwapDevice, Ticket, Transfer};
use memwright_table::{Frames, PAGE_SIZE};

/// The drivers' numbers: of those for local use (`Documentation/admin-guide/devices.txt` of Linux).
const ZRAM_MAJOR: u32 = 252;
const VIRTIO_MAJOR: u32 = 254;

/// What a disk is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Nothing, or what programs write.
    Free,
    /// About to become swap, or to be it no more.
    Changing,
    /// The swap device with this number.
    Swap(usize),
}

/// A disk. As swap its first page is a header, as `mkswap` writes it.
pub struct Disk {
    minor: u32,
    pages: u32,
    backing: Backing,
    /// Of pages that go out or come back.
    faults: Faults,
    used: Lock<Use>,
}

/// The pages of a disk behind its header, as slots.
struct Slots {
    disk: Arc<Disk>,
    slots: u32,
}

impl Disk {
    /// A disk of so many pages, where one in `errors` pages that go out or come back fails; none if that is 0.
    pub const fn new(backing: Backing, minor: u32, pages: u32, errors: u32) -> Self {
        Self {
            minor,
            pages,
            backing,
            faults: Faults::new(errors),
            used: Lock::new(Rank::Leaf, Use::Free),
        }
    }

    /// What keeps its pages.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.backing.kind()
    }

    /// Its name in `/dev`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.kind() {
            #[expect(clippy::disallowed_macros, reason = "a short name")]
            Kind::Zram => alloc::format!("zram{}", self.minor),
            Kind::Disk => String::from("vda"),
        }
    }

    /// Its number.
    #[must_use]
    pub fn device_number(&self) -> DeviceNumber {
        match self.kind() {
            Kind::Zram => DeviceNumber::new(ZRAM_MAJOR, self.minor),
            Kind::Disk => DeviceNumber::new(VIRTIO_MAJOR, self.minor),
        }
    }

    /// Bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.pages as u64 * PAGE_SIZE as u64
    }

    /// Bytes of memory for what it keeps.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.backing.stored()
    }

    /// Whether it is the swap device with this number.
    #[must_use]
    pub fn is_swap(&self, number: usize) -> bool {
        *self.used.lock() == Use::Swap(number)
    }

    /// Whether pages go out to it, or may at any moment.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        *self.used.lock() != Use::Free
    }

    /// Writes a header for all of its pages.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn format(&self, frames: &Frames<M>) -> Result<(), Errno> {
        let mut page = [0; PAGE_SIZE];
        header::write(&mut page, self.pages);
        self.backing.put(frames, 0, 0, &page)
    }

    /// Copies what it keeps at `offset` of a page.
    ///
    /// # Errors
    /// `EIO`.
    pub fn get(
        &self,
        frames: &Frames<M>,
        page: u32,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), Errno> {
        self.backing.get(frames, page, offset, bytes)
    }

    /// Keeps bytes at `offset` of a page.
    ///
    /// # Errors
    /// `ETXTBSY` while it is swap, `ENOSPC` if there is no memory for them.
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

    /// Gives up the memory that what programs wrote takes.
    pub(super) fn clear(&self, frames: &Frames<M>) {
        if !self.is_in_use() && self.stored() > 0 {
            for page in 0..self.pages {
                self.backing.discard(frames, page);
            }
            // The page of the header was given up just now.
            let formatted = self.format(frames);
            debug_assert_eq!(formatted, Ok(()));
        }
    }

    /// Lets pages go out to the disk, as far as its header says.
    ///
    /// # Errors
    /// `EBUSY` if they do, `EINVAL` without a header, `EPERM` if there are too many devices, `ENOMEM`.
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

    /// The swap device that it is, which the caller turns off: it is nothing else until he says how that went.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
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

    /// It is still the swap device with this number, or none any more.
    pub(super) fn end_off(&self, number: Option<usize>) {
        *self.used.lock() = number.map_or(Use::Free, Use::Swap);
    }
}

impl SwapDevice<M> for Slots {
    fn slots(&self) -> u32 {
        self.slots
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
