//! Uprobes: breakpoints in the code of files, which count how often a thread executes an instruction (Linux 7.2
//! `kernel/events/uprobes.c`).
//!
//! A probe belongs to an offset in a file. Wherever the process of the probe's thread maps that offset as private code,
//! the first byte of the instruction is replaced by a breakpoint, in a private page of the process (`install`). A
//! thread that hits the breakpoint single-steps a copy of the instruction at another address and continues after the
//! breakpoint. The breakpoint is not removed for the step, so another thread that executes the instruction meanwhile
//! hits it as well.

mod install;
mod instruction;

use crate::process::Thread;
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub use install::place_of;
pub use instruction::Refused;
use instruction::{LONGEST, steppable_length};
use memwright::object::{Object, ObjectIdentity};
use memwright_linux_base::sync::{Lock, Rank, lock_with_room};
use memwright_linux_vfs::fs::open_file::OpenFile;
use memwright_table::{OutOfMemory, TryPush};

/// The first byte of a breakpoint, INT3.
const BREAKPOINT: u8 = 0xcc;

/// An offset in a file, and the thread whose executions of the instruction there are counted.
pub struct Probe {
    file: Arc<OpenFile>,
    offset: u64,
    /// The instruction that the breakpoint replaces, in its first [`length`](Self::length) bytes.
    pub instruction: [u8; LONGEST],
    /// The length of the instruction in bytes.
    pub length: usize,
    /// The id of the thread whose executions of the instruction are counted.
    pub thread: u32,
    /// The id of the process whose memory contains the breakpoint.
    pub process: u32,
    /// The number of times that the thread executed the instruction while counting was enabled.
    pub hits: AtomicU64,
    /// Whether executions are counted.
    pub enabled: AtomicBool,
}

impl Probe {
    /// Creates a probe at `offset` of a file. `code` has the bytes at that offset.
    ///
    /// # Errors
    /// One of `Refused`: the instruction is invalid or cannot be executed at another address.
    pub fn new(
        file: Arc<OpenFile>,
        offset: u64,
        code: &[u8],
        thread: &Thread,
        enabled: bool,
    ) -> Result<Self, Refused> {
        let length = steppable_length(code)?;
        let mut instruction = [0; LONGEST];
        instruction[..length].copy_from_slice(&code[..length]);
        Ok(Self {
            file,
            offset,
            instruction,
            length,
            thread: thread.id(),
            process: thread.process.id,
            hits: AtomicU64::new(0),
            enabled: AtomicBool::new(enabled),
        })
    }

    fn identity(&self) -> ObjectIdentity {
        Object::identity(&*self.file)
    }

    fn stands_at(&self, place: Place) -> bool {
        self.identity() == place.file && self.offset == place.offset
    }

    /// Returns the number of counted executions since the last [`reset`](Self::reset).
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Resets the counter to zero.
    pub fn reset(&self) {
        self.hits.store(0, Ordering::Relaxed);
    }

    /// Starts or stops counting.
    pub fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }
}

/// An offset in a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// The device and inode numbers of the file.
    pub file: ObjectIdentity,
    /// The offset in bytes.
    pub offset: u64,
}

/// The list of all probes of the machine.
pub struct Probes {
    count: AtomicUsize,
    list: Lock<Vec<Arc<Probe>>>,
}

impl Default for Probes {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            list: Lock::new(Rank::Lists, Vec::new()),
        }
    }
}

impl Probes {
    /// Returns whether any probe exists. Every mapping operation calls this first, and skips the work for probes if
    /// none exists.
    #[inline]
    pub fn exist(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    fn enter(&self, probe: &Arc<Probe>) -> Result<(), OutOfMemory> {
        lock_with_room(&self.list, |list| list)?.try_push(probe.clone())?;
        self.count.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn leave(&self, probe: &Arc<Probe>) {
        self.list.lock().retain(|other| !Arc::ptr_eq(other, probe));
        self.count.fetch_sub(1, Ordering::Release);
    }

    /// Returns the first probe of a process that follows `before` in the list. Without `before`, or if `before` is no
    /// longer in the list, returns the first probe of the process.
    fn next_of_process(&self, process: u32, before: Option<&Arc<Probe>>) -> Option<Arc<Probe>> {
        let list = self.list.lock();
        let place = before.and_then(|before| list.iter().position(|one| Arc::ptr_eq(one, before)));
        let mut rest = list.iter().skip(place.map_or(0, |place| place + 1));
        rest.find(|probe| probe.process == process).cloned()
    }

    /// Returns the first probe at `place`.
    pub fn first_at(&self, place: Place) -> Option<Arc<Probe>> {
        let list = self.list.lock();
        list.iter().find(|probe| probe.stands_at(place)).cloned()
    }

    /// Calls `act` for each probe at `place`, under the lock of the list.
    pub fn each_at(&self, place: Place, act: impl FnMut(&Arc<Probe>)) {
        let list = self.list.lock();
        list.iter()
            .filter(|probe| probe.stands_at(place))
            .for_each(act);
    }
}
