//! The scan that lets pages with equal contents share frames, in the background (Linux 7.2 `mm/ksm.c`, `ksmd`).
//!
//! As with huge pages it is a deadline, not a thread: it gets on however busy the CPUs are. Nothing is scheduled while
//! it is off, or no program has said that its memory may be merged.

use crate::{
    abi::MILLISECOND,
    errno::Errno,
    kernel::Kernel,
    time::{Expiry, NextLook},
};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What the scan does (`/sys/kernel/mm/ksm/run`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Run {
    /// It stands still; what is merged stays so.
    Stop = 0,
    /// It goes round.
    Merge = 1,
    /// It stands still, and nothing is merged.
    Unmerge = 2,
}

impl Run {
    /// That with this number.
    #[must_use]
    pub const fn of(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Stop),
            1 => Some(Self::Merge),
            2 => Some(Self::Unmerge),
            _ => None,
        }
    }
}

/// Whether the scan goes on, and when.
pub struct MergeScan {
    own: Weak<Self>,
    /// A [`Run`].
    run: AtomicU8,
    /// When frames that nobody shows are looked for again.
    prune: AtomicU64,
    next: NextLook,
}

impl MergeScan {
    /// A scan that stands still.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            own: own.clone(),
            run: AtomicU8::new(Run::Stop as u8),
            prune: AtomicU64::new(0),
            next: NextLook::none(),
        })
    }

    /// What it does, as a number.
    pub fn state(&self) -> u8 {
        self.run.load(Ordering::Relaxed)
    }

    /// Lets it go on, or stops it (`run_store`).
    ///
    /// # Errors
    /// `ENOMEM` if there are no frames for pages that are to be apart: it stands still then.
    pub fn set(&self, kernel: &Kernel, run: Run) -> Result<(), Errno> {
        let before = self.run.swap(run as u8, Ordering::SeqCst);
        self.wake(kernel);
        if run == Run::Unmerge && before != run as u8 {
            kernel.memory.unmerge_all().map_err(|_| {
                self.run.store(Run::Stop as u8, Ordering::SeqCst);
                Errno::ENOMEM
            })?;
        }
        Ok(())
    }

    /// Some memory may be merged from now on.
    pub fn want(&self, kernel: &Kernel) {
        if !self.next.is_set() {
            self.wake(kernel);
        }
    }

    /// A setting changed: the next look is as far away as it says now.
    pub fn wake(&self, kernel: &Kernel) {
        let merging = kernel.memory.merging();
        self.next.set(kernel, &self.own, || {
            let goes_on = self.state() == Run::Merge as u8 && merging.is_wanted();
            let sleep = merging.settings().sleep.load(Ordering::Relaxed);
            goes_on.then_some(u64::from(sleep.max(1)) * MILLISECOND)
        });
    }

    /// Looks at as many pages as the settings say.
    fn look(&self, kernel: &Kernel) {
        let memory = &kernel.memory;
        let merging = memory.merging();
        memory.merge_pages(merging.settings().pages.load(Ordering::Relaxed).into());
        let now = kernel.host.now();
        if now >= self.prune.load(Ordering::Relaxed) {
            merging.shed(memory);
            let wait = u64::from(merging.settings().prune.load(Ordering::Relaxed));
            let next = now.saturating_add(wait * MILLISECOND);
            self.prune.store(next, Ordering::Relaxed);
        }
    }
}

impl Expiry for MergeScan {
    fn expire(self: Arc<Self>, kernel: &Kernel) {
        if self.state() == Run::Merge as u8 {
            self.look(kernel);
        }
        self.wake(kernel);
    }
}
