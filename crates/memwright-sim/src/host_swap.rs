//! A swap device that keeps pages in the memory of the host, and fails when it is told to.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use memwright::{DeviceError, SwapDevice};
use memwright_table::{Frame, Frames, PAGE_SIZE};

use crate::machine::{SimulatedMachine, locked};

type Hook = Box<dyn Fn() + Send>;

/// A device for pages of the simulated machine.
#[derive(Default)]
pub struct HostSwap {
    slots: u32,
    pages: Mutex<BTreeMap<u32, Vec<u8>>>,
    /// Every so many writes and reads fail; 0 for none.
    fails_each: AtomicU64,
    asked: AtomicU64,
    before_write: Mutex<Option<Hook>>,
}

impl HostSwap {
    /// A device with so many slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            slots,
            ..Self::default()
        }
    }

    /// Lets one of `each` requests fail from now on; none if it is 0.
    pub fn fail_each(&self, each: u64) {
        self.asked.store(0, Ordering::Relaxed);
        self.fails_each.store(each, Ordering::Relaxed);
    }

    /// Calls `hook` whenever a page is about to be taken over: what other CPUs do just then.
    pub fn before_write(&self, hook: impl Fn() + Send + 'static) {
        *locked(&self.before_write) = Some(Box::new(hook));
    }

    /// Pages that it keeps.
    #[must_use]
    pub fn kept(&self) -> usize {
        locked(&self.pages).len()
    }

    fn fails(&self) -> bool {
        let each = self.fails_each.load(Ordering::Relaxed);
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        each != 0 && asked % each == 0
    }
}

impl SwapDevice<SimulatedMachine> for HostSwap {
    fn slots(&self) -> u32 {
        self.slots
    }

    fn write(
        &self,
        frames: &Frames<SimulatedMachine>,
        slot: u32,
        frame: Frame,
    ) -> Result<(), DeviceError> {
        if let Some(hook) = &*locked(&self.before_write) {
            hook();
        }
        if self.fails() {
            locked(&self.pages).remove(&slot);
            return Err(DeviceError::Io);
        }
        let mut page = vec![0; PAGE_SIZE];
        frames.read(frame, 0, &mut page);
        locked(&self.pages).insert(slot, page);
        Ok(())
    }

    fn read(
        &self,
        frames: &Frames<SimulatedMachine>,
        slot: u32,
        frame: Frame,
    ) -> Result<(), DeviceError> {
        let pages = locked(&self.pages);
        match pages.get(&slot) {
            Some(page) if !self.fails() => {
                frames.write(frame, 0, page);
                Ok(())
            }
            Some(_) | None => Err(DeviceError::Io),
        }
    }

    fn discard(&self, _frames: &Frames<SimulatedMachine>, slot: u32) {
        locked(&self.pages).remove(&slot);
    }

    fn stored(&self) -> u64 {
        (self.kept() * PAGE_SIZE) as u64
    }
}
