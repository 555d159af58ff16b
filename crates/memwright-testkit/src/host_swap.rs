//! A swap device that stores pages on the heap and fails on request.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use memwright::{DeviceError, Direction, Submission, SwapDevice, Ticket, Transfer};
use memwright_table::sync::{assert_none_held, relax};
use memwright_table::{Frame, Frames, Machine, PAGE_SIZE};
use spin::Mutex;

type Hook = Box<dyn Fn() + Send>;

/// The largest number of transfers that can be under way.
const MOST_UNDER_WAY: usize = 64;

/// A transfer that was submitted, until the caller fetches its result.
enum UnderWay {
    Asked(Transfer),
    /// A caller of `complete` is carrying the transfer out.
    Moving,
    Over(Result<(), DeviceError>),
}

/// A swap device in memory outside of the machine.
#[derive(Default)]
pub struct HostSwap {
    slots: u32,
    pages: Mutex<BTreeMap<u32, Vec<u8>>>,
    /// The number `n` such that every n-th transfer fails; 0 if none fails.
    fails_each: AtomicU64,
    asked: AtomicU64,
    before_write: Mutex<Option<Hook>>,
    after_read: Mutex<Option<Hook>>,
    while_reading: Mutex<Option<Hook>>,
    /// The maximum number of transfers under way; 0 if each transfer completes when it is submitted.
    depth: AtomicUsize,
    under_way: Mutex<BTreeMap<u32, UnderWay>>,
    tickets: AtomicU32,
}

impl HostSwap {
    /// Creates a device with `slots` slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            slots,
            ..Self::default()
        }
    }

    /// Makes every `each`-th transfer fail from now on, or none if `each` is 0.
    pub fn fail_each(&self, each: u64) {
        self.asked.store(0, Ordering::Relaxed);
        self.fails_each.store(each, Ordering::Relaxed);
    }

    /// Makes transfers asynchronous from now on, with at most `depth` under way. A caller that waits for one transfer
    /// completes all of them, in reverse order of submission.
    ///
    /// # Panics
    /// If `depth` is larger than 64.
    pub fn defer(&self, depth: usize) {
        assert!(depth <= MOST_UNDER_WAY, "too many transfers under way");
        self.depth.store(depth, Ordering::Relaxed);
    }

    /// Calls `hook` before every write of a page, to simulate an action of another CPU at that moment.
    pub fn before_write(&self, hook: impl Fn() + Send + 'static) {
        *self.before_write.lock() = Some(Box::new(hook));
    }

    /// Calls `hook` once, after the next read of a page, to simulate an action of another CPU at that moment.
    pub fn after_read(&self, hook: impl Fn() + Send + 'static) {
        *self.after_read.lock() = Some(Box::new(hook));
    }

    /// Calls `hook` once, when a caller next waits for a deferred read, before that read completes. A caller can wait
    /// for any length of time, because it holds no lock.
    pub fn while_reading(&self, hook: impl Fn() + Send + 'static) {
        *self.while_reading.lock() = Some(Box::new(hook));
    }

    /// If the transfer with this ticket is a read that no caller carries out yet, checks that the caller holds no lock,
    /// and calls the hook of `while_reading`.
    fn wait<M: Machine>(&self, ticket: &Ticket) {
        let asked = match self.under_way.lock().get(&ticket.0) {
            Some(UnderWay::Asked(transfer)) => transfer.direction,
            Some(UnderWay::Moving | UnderWay::Over(_)) | None => return,
        };
        if asked == Direction::In {
            assert_none_held::<M::Threads>();
            relax::<M::Threads>();
            let hook = self.while_reading.lock().take();
            if let Some(hook) = hook {
                hook();
            }
        }
    }

    /// Returns the number of pages stored on the device.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.pages.lock().len()
    }

    fn fails(&self) -> bool {
        let each = self.fails_each.load(Ordering::Relaxed);
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        each != 0 && asked % each == 0
    }
}

impl HostSwap {
    fn carry_out<M: Machine>(
        &self,
        frames: &Frames<M>,
        transfer: Transfer,
    ) -> Result<(), DeviceError> {
        match transfer.direction {
            Direction::Out => self.write(frames, transfer.slot, transfer.frame),
            Direction::In => self.read(frames, transfer.slot, transfer.frame),
        }
    }

    fn write<M: Machine>(
        &self,
        frames: &Frames<M>,
        slot: u32,
        frame: Frame,
    ) -> Result<(), DeviceError> {
        if let Some(hook) = &*self.before_write.lock() {
            hook();
        }
        if self.fails() {
            self.pages.lock().remove(&slot);
            return Err(DeviceError::Io);
        }
        let mut page = vec![0; PAGE_SIZE];
        frames.read(frame, 0, &mut page);
        self.pages.lock().insert(slot, page);
        Ok(())
    }

    fn read<M: Machine>(
        &self,
        frames: &Frames<M>,
        slot: u32,
        frame: Frame,
    ) -> Result<(), DeviceError> {
        let page = self.pages.lock().get(&slot).cloned();
        let Some(page) = page.filter(|_| !self.fails()) else {
            return Err(DeviceError::Io);
        };
        frames.write(frame, 0, &page);
        let hook = self.after_read.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        Ok(())
    }
}

impl<M: Machine> SwapDevice<M> for HostSwap {
    fn slots(&self) -> u32 {
        self.slots
    }

    fn most_pending(&self) -> usize {
        MOST_UNDER_WAY
    }

    fn submit(&self, frames: &Frames<M>, transfer: Transfer) -> Submission {
        let depth = self.depth.load(Ordering::Relaxed);
        if depth == 0 {
            return Submission::Done(self.carry_out(frames, transfer));
        }
        let mut under_way = self.under_way.lock();
        if under_way.len() >= depth {
            return Submission::Busy;
        }
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        under_way.insert(ticket, UnderWay::Asked(transfer));
        Submission::Pending(Ticket(ticket))
    }

    fn complete(&self, frames: &Frames<M>, ticket: Ticket) -> Result<(), DeviceError> {
        self.wait::<M>(&ticket);
        let mut asked = Vec::new();
        for (number, state) in self.under_way.lock().iter_mut() {
            if let UnderWay::Asked(transfer) = *state {
                *state = UnderWay::Moving;
                asked.push((*number, transfer));
            }
        }
        // Complete the transfers in reverse order of submission, to detect callers that rely on that order.
        for (number, transfer) in asked.into_iter().rev() {
            let over = UnderWay::Over(self.carry_out(frames, transfer));
            self.under_way.lock().insert(number, over);
        }
        loop {
            let state = self.under_way.lock().remove(&ticket.0);
            match state {
                Some(UnderWay::Over(result)) => return result,
                // Another caller carries the transfer out.
                Some(UnderWay::Moving) => {
                    self.under_way.lock().insert(ticket.0, UnderWay::Moving);
                    relax::<M::Threads>();
                }
                Some(UnderWay::Asked(_)) | None => panic!("{ticket:?} is of no transfer"),
            }
        }
    }

    fn discard(&self, _frames: &Frames<M>, slot: u32) {
        self.pages.lock().remove(&slot);
    }

    fn stored(&self) -> u64 {
        (self.kept() * PAGE_SIZE) as u64
    }
}
