//! System V semaphore sets (Linux 7.2 `ipc/sem.c`).
//!
//! A caller that must wait leaves its list of operations pending in the set. A caller that changes a value then
//! performs the pending lists that have become possible, in order of arrival, and wakes the callers of these lists. It
//! performs the lists in batches. Between two batches, the set is unlocked and other threads can run.

mod attempt;

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::{
    ordered::Ordered,
    sync::{Lock, LockGuard, PausePoints, Rank, lock_with_room, pause_point},
};
use memwright_linux_sched::wait::WaitQueue;
use memwright_linux_vfs::fs::permission::{Owner, Permission, Subject, permitted_object};
use memwright_table::{OutOfMemory, TryPush};

pub use attempt::{MOST_VALUE, Operation, Refusal, attempt};

/// The maximum number of semaphores in a set (`SEMMSL`).
pub const MOST_IN_SET: usize = 32000;
/// The maximum number of sets (`SEMMNI`).
pub const MOST_SETS: usize = 32000;

/// The permissions and timestamps of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Owner.
    pub owner: Owner,
    /// Permissions: nine bits, as for a file.
    pub mode: u32,
    /// The time of the last operation, in seconds since 1970.
    pub operated: i64,
    /// The time of the last change, in seconds since 1970.
    pub changed: i64,
}

/// A list of operations that is pending.
pub struct Pending {
    /// The queue on which the caller of the list waits.
    pub queue: WaitQueue,
    operations: Vec<Operation>,
    process: u32,
    /// The position of the list in the set's order of arrival, once the list is queued.
    number: AtomicU64,
    /// The result of the call, once it is complete.
    outcome: AtomicU64,
    /// The next list in the chain of completed lists.
    next: Lock<Option<Arc<Pending>>>,
}

/// The value of `outcome` while the call is not complete. No complete call has this result.
const WAITING: u64 = u64::MAX / 2;

impl Pending {
    /// Returns the result of the call, if it is complete.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), Errno>> {
        match self.outcome.load(Ordering::Acquire) {
            WAITING => None,
            result => Some(Errno::from_result(result).map_or(Ok(()), Err)),
        }
    }

    fn end(&self, outcome: Result<(), Errno>) {
        let result = outcome.map_or_else(Errno::as_result, |()| 0);
        self.outcome.store(result, Ordering::Release);
    }
}

/// A list of operations in the queue of a set.
struct Waiting {
    pending: Arc<Pending>,
    /// The index of the operation that must wait.
    place: usize,
}

/// The pending lists of operations, in order of arrival.
#[derive(Default)]
struct Queue {
    lists: Ordered<u64, Waiting>,
    /// The number of pending lists that are not [single decrements](is_decrement).
    others: usize,
    /// The number that the next list will get.
    arrivals: u64,
}

impl Queue {
    /// Adds a list at the end.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the queue is full and cannot grow.
    fn push(&mut self, place: usize, pending: Arc<Pending>) -> Result<(), OutOfMemory> {
        let number = self.arrivals;
        pending.number.store(number, Ordering::Relaxed);
        let is_other = !is_decrement(&pending.operations);
        self.lists.insert(number, Waiting { pending, place })?;
        self.arrivals += 1;
        self.others += usize::from(is_other);
        Ok(())
    }

    /// Removes the list with the number `number`, if it is still pending.
    fn remove(&mut self, number: u64) {
        if let Some(removed) = self.lists.remove(&number) {
            self.others -= usize::from(!is_decrement(&removed.pending.operations));
        }
    }
}

/// An undo list, which contains the amount by which the exit of a process adjusts the value of each semaphore.
struct Undo {
    adds: Vec<i32>,
    /// The [`State::epoch`] to which the adjustments belong. Adjustments of an earlier epoch are discarded.
    epoch: u64,
}

impl Undo {
    /// Returns the adjustments for the epoch `epoch`, and the number of adjustments that were cleared. If the
    /// adjustments belong to an earlier epoch, first clears all of them.
    fn of_epoch(&mut self, epoch: u64) -> (&mut [i32], usize) {
        let cleared = if self.epoch == epoch {
            0
        } else {
            self.adds.fill(0);
            self.epoch = epoch;
            self.adds.len()
        };
        (&mut self.adds, cleared)
    }
}

/// The number of adjustments that can be cleared in about the time of one attempt.
const CLEARED: usize = 64;

/// The maximum number of attempts between two scheduling points.
const TOGETHER: u32 = 256;

/// The mutable state of a set.
struct State {
    values: Vec<i32>,
    /// The ID of the process that made the last operation on each semaphore (`GETPID`).
    processes: Vec<u32>,
    /// The undo lists (`SEM_UNDO`), by process ID.
    undo: Ordered<u32, Undo>,
    /// The number of times that all values were set at once (`SETALL`). Each time, a new epoch begins, and the undo
    /// adjustments of earlier epochs are discarded.
    epoch: u64,
    /// The pending lists.
    pending: Queue,
    standing: Standing,
    removed: bool,
}

/// A set of semaphores.
pub struct Set {
    /// The ID of the set.
    pub id: u32,
    /// The key of the set; 0 for a private set.
    pub key: u32,
    /// The creator of the set.
    pub maker: Owner,
    state: Lock<State>,
}

/// The result of a list of operations.
pub enum Operated {
    /// The operations are complete.
    Done,
    /// The operations are pending.
    Waits(Arc<Pending>),
}

/// The registry of all semaphore sets.
pub struct Sets {
    all: Lock<Vec<Arc<Set>>>,
    next: AtomicU64,
}

impl Default for Sets {
    fn default() -> Self {
        Self {
            all: Lock::new(Rank::File, Vec::new()),
            next: AtomicU64::new(0),
        }
    }
}

impl Sets {
    /// Adds a set of `count` semaphores whose values are 0. Returns the ID of the set.
    ///
    /// # Errors
    /// `EEXIST` if another thread has created a set with the key since the caller checked, `ENOSPC` if there are too
    /// many sets, `ENOMEM`.
    pub fn add(&self, key: u32, count: usize, standing: Standing) -> Result<u32, Errno> {
        let state = State {
            values: zeroes(count)?,
            processes: zeroes(count)?,
            undo: Ordered::new(),
            epoch: 0,
            pending: Queue::default(),
            standing,
            removed: false,
        };
        let mut all = self.all.lock();
        if key != 0 && all.iter().any(|set| set.key == key) {
            return Err(Errno::EEXIST);
        }
        if all.len() >= MOST_SETS {
            return Err(Errno::ENOSPC);
        }
        all.try_make_room(1)?;
        let id = (self.next.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff) as u32;
        all.try_push(Arc::new(Set {
            id,
            key,
            maker: standing.owner,
            state: Lock::new(Rank::Leaf, state),
        }))?;
        Ok(id)
    }

    /// Returns the set with the key `key`.
    pub fn with_key(&self, key: u32) -> Option<Arc<Set>> {
        let all = self.all.lock();
        all.iter().find(|set| set.key == key).cloned()
    }

    /// Returns the set with the ID `id`.
    pub fn find(&self, id: u32) -> Option<Arc<Set>> {
        let all = self.all.lock();
        all.iter().find(|set| set.id == id).cloned()
    }

    /// Returns the highest ID of a set; 0 if there is none.
    pub fn largest_id(&self) -> u32 {
        let all = self.all.lock();
        all.iter().map(|set| set.id).max().unwrap_or(0)
    }

    /// Returns the number of sets and the total number of semaphores.
    pub fn totals(&self) -> (usize, usize) {
        let all = self.all.lock();
        (all.len(), all.iter().map(|set| set.count()).sum())
    }

    /// Removes the set with the ID `id`, and wakes the callers that wait in it.
    pub fn remove(&self, id: u32) {
        let removed = {
            let mut all = self.all.lock();
            let place = all.iter().position(|set| set.id == id);
            place.map(|place| all.remove(place))
        };
        if let Some(set) = removed {
            set.end();
        }
    }

    /// Adjusts the semaphores of all sets for a process that exits (`SEM_UNDO`).
    pub fn undo(&self, process: u32) {
        let mut first = 0;
        let mut points = PausePoints::every(TOGETHER);
        // Continue by ID, because the list is unlocked while a set is adjusted. The list is sorted by ID, and IDs never
        // change.
        while let Some(set) = self.from(first) {
            points.round();
            set.undo(process);
            first = set.id + 1;
        }
    }

    /// Returns the set with the lowest ID that is at least `id`.
    fn from(&self, id: u32) -> Option<Arc<Set>> {
        let all = self.all.lock();
        let place = all.partition_point(|set| set.id < id);
        all.get(place).cloned()
    }

    /// Removes all sets.
    pub fn clear(&self) {
        let all = core::mem::take(&mut *self.all.lock());
        drop(all);
    }
}

fn zeroes<T: Copy + Default>(count: usize) -> Result<Vec<T>, Errno> {
    let mut values = Vec::new();
    values.try_fill(count, T::default())?;
    Ok(values)
}

impl Set {
    /// Returns the number of semaphores in the set.
    pub fn count(&self) -> usize {
        self.state.lock().values.len()
    }

    /// Returns the permissions and timestamps of the set.
    pub fn standing(&self) -> Standing {
        self.state.lock().standing
    }

    /// Changes the owner and the permissions of the set.
    pub fn set_owner(&self, owner: Owner, mode: u32, now: i64) {
        let standing = &mut self.state.lock().standing;
        (standing.owner, standing.mode, standing.changed) = (owner, mode, now);
    }

    /// Returns whether `subject` has the permissions `wanted` for the set (`ipcperms`).
    #[must_use]
    pub fn permits(&self, subject: &Subject, wanted: Permission) -> bool {
        let standing = self.standing();
        let owners = (self.maker, standing.owner);
        permitted_object(subject, standing.mode, owners, wanted)
    }

    /// Returns whether `subject` is allowed to change or remove the set.
    #[must_use]
    pub fn is_owned_by(&self, subject: &Subject) -> bool {
        let owners = [self.standing().owner.user, self.maker.user];
        subject.overrides || owners.contains(&subject.user)
    }

    /// Performs the operations for a process, or adds them to the pending lists.
    ///
    /// # Errors
    /// `EIDRM` if the set was removed, `EAGAIN` if an operation with `IPC_NOWAIT` would have to wait, `ERANGE` if a
    /// value or an adjustment would leave its range, `ENOMEM`.
    pub fn operate(
        &self,
        process: u32,
        operations: Vec<Operation>,
        now: i64,
    ) -> Result<Operated, Errno> {
        if operations.iter().any(|one| one.undone) {
            self.make_undo(process)?;
        }
        let state = self.state.lock();
        if let Ok(done) = self.do_now(state, process, &operations, now)? {
            return Ok(done);
        }
        // Allocate memory while the set is unlocked. The operations may become possible in the meantime, so try them
        // again afterwards.
        let pending = Arc::new(Pending {
            queue: WaitQueue::named("a semaphore"),
            operations,
            process,
            number: AtomicU64::new(0),
            outcome: AtomicU64::new(WAITING),
            next: Lock::new(Rank::Leaf, None),
        });
        let state = lock_with_room(&self.state, |state| &mut state.pending.lists)?;
        match self.do_now(state, process, &pending.operations, now)? {
            Ok(done) => Ok(done),
            Err((mut state, place)) => {
                state.pending.push(place, pending.clone())?;
                Ok(Operated::Waits(pending))
            }
        }
    }

    /// Creates the undo list of the process, if it has none.
    fn make_undo(&self, process: u32) -> Result<(), Errno> {
        let (count, epoch) = {
            let mut state = self.state.lock();
            if state.undo.get_mut(&process).is_some() {
                return Ok(());
            }
            (state.values.len(), state.epoch)
        };
        let made = Undo {
            adds: zeroes(count)?,
            epoch,
        };
        let mut state = lock_with_room(&self.state, |state| &mut state.undo)?;
        // Another thread of the process may have created the undo list in the meantime.
        if state.undo.get_mut(&process).is_none() {
            state.undo.insert(process, made)?;
        }
        Ok(())
    }

    /// Performs the operations if they are possible now, and then the pending lists that have become possible. If the
    /// operations are not possible, returns the lock of the set and the index of the operation that must wait.
    fn do_now<'a>(
        &'a self,
        mut state: LockGuard<'a, State>,
        process: u32,
        operations: &[Operation],
        now: i64,
    ) -> Result<Result<Operated, (LockGuard<'a, State>, usize)>, Errno> {
        if state.removed {
            return Err(Errno::EIDRM);
        }
        match state.attempt(process, operations)?.outcome {
            Ok(()) => {
                state.standing.operated = now;
                self.serve(state, now);
                Ok(Ok(Operated::Done))
            }
            Err(place) if operations[place].never_waits => Err(Errno::EAGAIN),
            Err(place) => Ok(Err((state, place))),
        }
    }

    /// Withdraws the pending operations of a caller that stops waiting. Returns their result if another caller has
    /// completed them already.
    pub fn give_up(&self, pending: &Arc<Pending>) -> Option<Result<(), Errno>> {
        let number = pending.number.load(Ordering::Relaxed);
        self.state.lock().pending.remove(number);
        pending.outcome()
    }

    /// Returns the value of a semaphore, and the process that made the last operation on it.
    pub fn value(&self, number: usize) -> Option<(i32, u32)> {
        let state = self.state.lock();
        Some((*state.values.get(number)?, state.processes[number]))
    }

    /// Returns the values of all semaphores.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn values(&self) -> Result<Vec<i32>, Errno> {
        let mut copy = zeroes(self.count())?;
        copy.copy_from_slice(&self.state.lock().values);
        Ok(copy)
    }

    /// Returns the number of calls that wait until the semaphore `number` becomes 0 (if `zero` is set) or increases.
    pub fn waiting(&self, number: usize, zero: bool) -> usize {
        let state = self.state.lock();
        let concerns = |waiting: &&Waiting| {
            let operation = waiting.pending.operations[waiting.place];
            usize::from(operation.number) == number && (operation.add == 0) == zero
        };
        state.pending.lists.values().filter(concerns).count()
    }

    /// Sets the values of consecutive semaphores, beginning with the semaphore `first`, and clears the undo adjustments
    /// of these semaphores in all processes. `process` is recorded as the process that made the last operation on them.
    /// The caller has checked that the set has enough semaphores.
    pub fn set(&self, first: usize, values: &[i32], process: u32, now: i64) {
        let mut state = self.state.lock();
        for (number, value) in (first..).zip(values) {
            state.values[number] = *value;
            state.processes[number] = process;
        }
        if values.len() == state.values.len() {
            state.epoch += 1;
        } else {
            for undo in state.undo.values_mut() {
                undo.adds[first..first + values.len()].fill(0);
            }
        }
        state.standing.changed = now;
        self.serve(state, now);
    }

    fn undo(&self, process: u32) {
        let mut state = self.state.lock();
        let Some(mut undo) = state.undo.remove(&process) else {
            return;
        };
        let epoch = state.epoch;
        let (undo, _) = undo.of_epoch(epoch);
        for (number, &mut add) in undo.iter_mut().enumerate() {
            if add != 0 {
                state.values[number] = (state.values[number] + add).clamp(0, MOST_VALUE);
                state.processes[number] = process;
            }
        }
        let now = state.standing.operated;
        self.serve(state, now);
    }

    /// Performs the pending lists that have become possible, and wakes their callers. If another CPU changes a value
    /// between two batches, that CPU itself tries all pending lists, beginning with the first one.
    fn serve<'a>(&'a self, mut state: LockGuard<'a, State>, now: i64) {
        let mut from = 0;
        loop {
            let (woken, next) = state.serve(now, from);
            drop(state);
            woken.wake();
            let Some(next) = next else { return };
            from = next;
            pause_point();
            state = self.state.lock();
        }
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.removed = true;
        let mut waiting = core::mem::take(&mut state.pending).lists;
        drop(state);
        let mut points = PausePoints::every(TOGETHER);
        while let Some((_, Waiting { pending, .. })) = waiting.pop_first() {
            pending.end(Err(Errno::EIDRM));
            pending.queue.wake_all();
            points.round();
        }
    }
}

impl State {
    /// Performs the operations, or returns the index of the operation that must wait. If any of the operations has
    /// `undone`, the process must have an undo list.
    fn attempt(&mut self, process: u32, operations: &[Operation]) -> Result<Attempted, Errno> {
        let (undo, cleared) = if operations.iter().any(|one| one.undone) {
            let list = self.undo.get_mut(&process).ok_or(Errno::ENOMEM)?;
            list.of_epoch(self.epoch)
        } else {
            (&mut [][..], 0)
        };
        let outcome = match attempt(&mut self.values, undo, operations) {
            Ok(()) => {
                for one in operations {
                    self.processes[usize::from(one.number)] = process;
                }
                Ok(())
            }
            Err(Refusal::Waits(place)) => Err(place),
            Err(Refusal::OutOfRange) => return Err(Errno::ERANGE),
        };
        Ok(Attempted { outcome, cleared })
    }

    /// Tries the pending lists from the number `from` on. After it completes a list that may make earlier lists
    /// possible, it starts again from the first list. Returns the completed lists. If [`TOGETHER`] attempts were not
    /// enough, also returns the number of the list at which to continue.
    fn serve(&mut self, now: i64, from: u64) -> (Woken, Option<u64>) {
        let mut woken = Woken::default();
        let mut next = from;
        let mut left = TOGETHER;
        while let Some((&number, Waiting { pending, .. })) = self.pending.lists.first_from(&next) {
            if left == 0 {
                return (woken, Some(number));
            }
            next = number + 1;
            let pending = pending.clone();
            let attempted = self.attempt(pending.process, &pending.operations);
            let cleared = attempted.as_ref().map_or(0, |attempted| attempted.cleared);
            left = left.saturating_sub(1 + (cleared / CLEARED) as u32);
            let outcome = match attempted.map(|attempted| attempted.outcome) {
                Ok(Ok(())) => Ok(()),
                Ok(Err(place)) if pending.operations[place].never_waits => Err(Errno::EAGAIN),
                Ok(Err(place)) => {
                    if let Some(waiting) = self.pending.lists.get_mut(&number) {
                        waiting.place = place;
                    }
                    continue;
                }
                Err(error) => Err(error),
            };
            self.pending.remove(number);
            if outcome.is_ok() {
                self.standing.operated = now;
                // A single decrement makes only those lists possible that wait for 0 or that have several operations
                // (`check_restart` of Linux 7.2, `ipc/sem.c`).
                if self.pending.others > 0 || !is_decrement(&pending.operations) {
                    next = 0;
                }
            }
            pending.end(outcome);
            woken.push(pending);
        }
        (woken, None)
    }
}

/// The result of an attempt.
struct Attempted {
    /// Success, or the index of the operation that must wait.
    outcome: Result<(), usize>,
    /// The number of adjustments of an undo list that were cleared for the attempt.
    cleared: usize,
}

/// Returns whether a list is one operation that decreases a value.
fn is_decrement(operations: &[Operation]) -> bool {
    matches!(operations, [one] if one.add < 0)
}

/// A chain of completed lists in order, whose callers must still be woken. `Pending::next` links the lists, so the
/// chain needs no further memory.
#[derive(Default)]
struct Woken {
    first: Option<Arc<Pending>>,
    last: Option<Arc<Pending>>,
}

impl Woken {
    /// Adds a list to the chain. The list was removed from the pending lists, so it is in no other chain.
    fn push(&mut self, pending: Arc<Pending>) {
        match self.last.replace(pending.clone()) {
            Some(last) => *last.next.lock() = Some(pending),
            None => self.first = Some(pending),
        }
    }

    /// Wakes the callers of all lists in the chain.
    ///
    /// # Locks
    /// The caller holds no lock.
    fn wake(self) {
        drop(self.last);
        let mut next = self.first;
        while let Some(pending) = next {
            next = pending.next.lock().take();
            pending.queue.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_set_whoever_looked_for_it_before() {
        let sets = Sets::default();
        let standing = Standing {
            owner: Owner::ROOT,
            mode: 0o600,
            operated: 0,
            changed: 0,
        };
        assert_eq!(sets.add(7, 1, standing), Ok(0));
        // Adding another set with the same key fails. A thread gets this error if another thread creates the set after
        // the thread has found no set with the key.
        assert_eq!(sets.add(7, 1, standing), Err(Errno::EEXIST));
        assert_eq!(sets.add(8, 1, standing), Ok(1));
        for private in [2, 3] {
            assert_eq!(sets.add(0, 1, standing), Ok(private));
        }
    }
}
