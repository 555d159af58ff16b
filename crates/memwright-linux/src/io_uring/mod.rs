//! io_uring: rings of submissions and completions (`io_uring/` of Linux 7.2). The thread that calls `io_uring_enter`
//! executes the submissions synchronously and in order.

mod buffers;
pub mod layout;
mod memory;
mod operate;

use crate::current::Current;
use alloc::sync::Arc;
use layout::{
    COMPLETE_ENTRIES, COMPLETE_HEAD, COMPLETE_MASK, COMPLETE_TAIL, COMPLETION_SIZE, COMPLETIONS,
    DROPPED, OVERFLOW, SUBMIT_ENTRIES, SUBMIT_HEAD, SUBMIT_MASK, SUBMIT_TAIL, Sizes,
};
use memory::RingMemory;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_memory::reclaim::Reclaim;
use memwright_linux_sched::wait::{Queues, WaitQueue};
use memwright_linux_vfs::{
    direct_reclaim::Retry,
    fs::{
        abilities::{Polling, Positions},
        caller::Caller,
        open_file::{File, Mapping, OpenFile},
        open_kind::OpenKind,
        readiness::Readiness,
        turn::Turn,
    },
};
use operate::Submission;

pub use buffers::Buffers;

/// The open file behind a descriptor of `io_uring_setup`.
pub struct Ring {
    memory: Arc<RingMemory>,
    buffers: Lock<Option<Arc<Buffers>>>,
    /// A sleeping mutex that serialises the threads that submit, register or unregister.
    turn: Turn,
    /// The wait queue that is woken when submissions have completed.
    completed: WaitQueue,
}

impl Ring {
    /// Creates an empty ring and allocates its memory.
    ///
    /// # Errors
    /// `ENOMEM` if the memory cannot be allocated.
    pub(crate) fn new(
        memory: &Arc<Memory>,
        reclaim: &Reclaim,
        sizes: Sizes,
    ) -> Result<Self, Errno> {
        let shared = RingMemory::new(memory, sizes).map_err(|_| Errno::ENOMEM)?;
        let made = reclaim.retry(|| shared.make());
        made.map_err(|_| Errno::ENOMEM)?;
        for (offset, value) in [
            (SUBMIT_MASK, sizes.submissions - 1),
            (COMPLETE_MASK, sizes.completions - 1),
            (SUBMIT_ENTRIES, sizes.submissions),
            (COMPLETE_ENTRIES, sizes.completions),
        ] {
            shared.set_word(offset, value);
        }
        Ok(Self {
            memory: Arc::new(shared),
            buffers: Lock::new(Rank::File, None),
            turn: Turn::new(),
            completed: WaitQueue::new(),
        })
    }

    /// Executes up to `most` submissions from the submission ring. Returns the number of executed submissions.
    ///
    /// # Errors
    /// `ERESTARTSYS` if a signal arrives while the thread waits for another submitting thread.
    pub fn submit(&self, current: &Current<'_>, most: u32) -> Result<u32, Errno> {
        let sizes = self.memory.sizes();
        let turn = self.turn.take(current)?;
        let mut head = self.memory.word(SUBMIT_HEAD);
        let waiting = self.memory.word(SUBMIT_TAIL).wrapping_sub(head);
        let count = waiting.min(most).min(sizes.submissions);
        for _ in 0..count {
            let slot = head & (sizes.submissions - 1);
            let number = self.memory.word(sizes.array() + slot * 4);
            if number < sizes.submissions {
                let wanted = Submission::new(&self.memory.submission(number));
                // Advance the head: the program is allowed to reuse the entry after the kernel has read it.
                self.memory.set_word(SUBMIT_HEAD, head.wrapping_add(1));
                let result = match self.operate(current, &wanted) {
                    Ok(moved) => moved as i32,
                    Err(error) if error >= Errno::ERESTARTSYS => {
                        -i32::from(Errno::EINTR.number() as i16)
                    }
                    Err(error) => -i32::from(error.number() as i16),
                };
                self.complete(wanted.user_data, result);
            } else {
                self.count(DROPPED);
                self.memory.set_word(SUBMIT_HEAD, head.wrapping_add(1));
            }
            head = head.wrapping_add(1);
        }
        drop(turn);
        if count > 0 {
            self.completed.wake_all();
        }
        Ok(count)
    }

    /// Adds a completion to the completion ring. If the ring is full, drops the completion and counts it in
    /// [`OVERFLOW`].
    fn complete(&self, user_data: u64, result: i32) {
        let sizes = self.memory.sizes();
        if self.completions() >= sizes.completions {
            self.count(OVERFLOW);
            return;
        }
        let tail = self.memory.word(COMPLETE_TAIL);
        let slot = tail & (sizes.completions - 1);
        let mut bytes = [0; COMPLETION_SIZE as usize];
        bytes[..8].copy_from_slice(&user_data.to_le_bytes());
        bytes[8..12].copy_from_slice(&result.to_le_bytes());
        self.memory
            .store(COMPLETIONS + slot * COMPLETION_SIZE, &bytes);
        self.memory.set_word(COMPLETE_TAIL, tail.wrapping_add(1));
    }

    /// Returns the number of completions in the ring that the program has not consumed.
    fn completions(&self) -> u32 {
        let head = self.memory.word(COMPLETE_HEAD);
        self.memory.word(COMPLETE_TAIL).wrapping_sub(head)
    }

    fn count(&self, offset: u32) {
        let now = self.memory.word(offset);
        self.memory.set_word(offset, now.wrapping_add(1));
    }

    /// Waits until at least `least` completions are in the ring.
    ///
    /// # Errors
    /// `EINTR` if a signal arrives first.
    pub fn wait(&self, current: &Current<'_>, least: u32) -> Result<(), Errno> {
        let least = least.min(self.memory.sizes().completions);
        let enough = || (self.completions() >= least).then_some(());
        current
            .wait_until(&[&self.completed], None, enough)
            .map_err(|_| Errno::EINTR)
    }

    /// Registers the buffers that `pin` returns.
    ///
    /// # Errors
    /// `EBUSY` if buffers are already registered, `ERESTARTSYS` if a signal arrives, and the errors of `pin`.
    pub fn register(
        &self,
        current: &Current<'_>,
        pin: impl FnOnce() -> Result<Buffers, Errno>,
    ) -> Result<(), Errno> {
        let _turn = self.turn.take(current)?;
        if self.buffers.lock().is_some() {
            return Err(Errno::EBUSY);
        }
        let buffers = Arc::new(pin()?);
        *self.buffers.lock() = Some(buffers);
        Ok(())
    }

    /// Unregisters the buffers and unpins their pages.
    ///
    /// # Errors
    /// `ENXIO` if no buffers are registered, `ERESTARTSYS` if a signal arrives.
    pub fn unregister(&self, current: &Current<'_>) -> Result<(), Errno> {
        let _turn = self.turn.take(current)?;
        let buffers = self.buffers.lock().take();
        buffers.map(drop).ok_or(Errno::ENXIO)
    }
}

impl File for Ring {
    fn counted_as(&self) -> OpenKind {
        OpenKind::Ring
    }

    fn positions(&self) -> Positions {
        Positions::Refused
    }

    fn mapping(&self, _open: &Arc<OpenFile>) -> Result<Mapping, Errno> {
        Ok(Mapping::Object(self.memory.clone()))
    }

    fn readiness(&self, _caller: &dyn Caller, _open: &OpenFile) -> Readiness {
        let room = self
            .memory
            .word(SUBMIT_TAIL)
            .wrapping_sub(self.memory.word(SUBMIT_HEAD));
        let mut ready = Readiness::empty();
        ready.set(Readiness::READ, self.completions() > 0);
        ready.set(Readiness::WRITE, room < self.memory.sizes().submissions);
        ready
    }

    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn queues<'a>(&'a self, _caller: &'a dyn Caller, wanted: Readiness, queues: &mut Queues<'a>) {
        if wanted.concerns_reading() {
            queues.add(&self.completed);
        }
    }
}
