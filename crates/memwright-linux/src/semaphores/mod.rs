//! Sets of semaphores (Linux 7.2 `ipc/sem.c`).
//!
//! A caller that has to wait leaves its operations with the set. A caller that changes a value then does what has become
//! possible, in the order of arrival, and wakes those whose operations are done. It does so in parts: between two of them the set
//! is unlocked and other threads may run.

mod attempt;

use crate::{
    errno::Errno,
    fs::permission::{Permission, Subject, permitted},
    kernel::Kernel,
    ordered::Ordered,
    sync::{LockGuard, PausePoints, lock_with_room, pause_point},
    wait::WaitQueue,
};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_table::{
    OutOfMemory, TryPush,
    sync::{Lock, Rank},
};

pub use attempt::{MOST_VALUE, Operation, Refusal, attempt};

/// Most semaphores of a set (`SEMMSL`).
pub const MOST_IN_SET: usize = 32000;
/// Most sets (`SEMMNI`).
pub const MOST_SETS: usize = 32000;

/// Who may do what with a set, and when what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Owner.
    pub owner: Subject,
    /// Permissions: nine bits, as of a file.
    pub mode: u32,
    /// Seconds since 1970: last operation, last change.
    pub operated: i64,
    /// Last change.
    pub changed: i64,
}

/// A list of operations that waits.
pub struct Pending {
    /// Who waits for it.
    pub queue: WaitQueue,
    operations: Vec<Operation>,
    process: u32,
    /// Its number in the queue, once it is there.
    number: AtomicU64,
    /// What the call returns, once it is over.
    outcome: AtomicU64,
    /// The next whose call is over as well.
    next: Lock<Option<Arc<Pending>>>,
}

/// Not over: no call returns this.
const WAITING: u64 = u64::MAX / 2;

impl Pending {
    /// How it ended, if it did.
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

/// A list of operations in the queue of its set.
struct Waiting {
    pending: Arc<Pending>,
    /// The place of the operation that has to wait.
    place: usize,
}

/// Lists of operations that wait, in the order of arrival.
#[derive(Default)]
struct Queue {
    lists: Ordered<u64, Waiting>,
    /// How many of them are no [single decrements](is_decrement).
    others: usize,
    /// The number of the next that arrives.
    arrivals: u64,
}

impl Queue {
    /// Adds a list at the end.
    ///
    /// # Errors
    /// [`OutOfMemory`], but not where there is room.
    fn push(&mut self, place: usize, pending: Arc<Pending>) -> Result<(), OutOfMemory> {
        let number = self.arrivals;
        pending.number.store(number, Ordering::Relaxed);
        let is_other = !is_decrement(&pending.operations);
        self.lists.insert(number, Waiting { pending, place })?;
        self.arrivals += 1;
        self.others += usize::from(is_other);
        Ok(())
    }

    /// Takes a list out, if it still waits.
    fn remove(&mut self, number: u64) {
        if let Some(removed) = self.lists.remove(&number) {
            self.others -= usize::from(!is_decrement(&removed.pending.operations));
        }
    }
}

/// What the end of a process adds to each value.
struct Undo {
    adds: Vec<i32>,
    /// The [`State::epoch`] of which it is: one of an earlier epoch undoes nothing.
    epoch: u64,
}

impl Undo {
    /// What is added in this epoch, and how many values had to be cleared for it.
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

/// Values of an undo list that are cleared in the time of one attempt, about.
const CLEARED: usize = 64;

/// Lists of operations that are tried between two scheduling points.
const TOGETHER: u32 = 256;

/// What changes of a set.
struct State {
    values: Vec<i32>,
    /// Process that operated last, for each.
    processes: Vec<u32>,
    /// By process.
    undo: Ordered<u32, Undo>,
    /// How often all values were set: nothing that was done before is undone.
    epoch: u64,
    /// What waits.
    pending: Queue,
    standing: Standing,
    removed: bool,
}

/// A set of semaphores.
pub struct Set {
    /// Its number.
    pub id: u32,
    /// Its key; 0 is private.
    pub key: u32,
    /// Who made it.
    pub maker: Subject,
    state: Lock<State>,
}

/// What came of a list of operations.
pub enum Operated {
    /// It is done.
    Done,
    /// It waits.
    Waits(Arc<Pending>),
}

/// All sets.
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
    /// Adds a set of `count` semaphores, all 0; returns its number.
    ///
    /// # Errors
    /// `EEXIST` if there is one with its key by now, `ENOSPC` for too many; `ENOMEM`.
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

    /// The set with this key.
    pub fn with_key(&self, key: u32) -> Option<Arc<Set>> {
        let all = self.all.lock();
        all.iter().find(|set| set.key == key).cloned()
    }

    /// The set with this number.
    pub fn find(&self, id: u32) -> Option<Arc<Set>> {
        let all = self.all.lock();
        all.iter().find(|set| set.id == id).cloned()
    }

    /// How many sets there are, and how many semaphores.
    pub fn totals(&self) -> (usize, usize) {
        let all = self.all.lock();
        (all.len(), all.iter().map(|set| set.count()).sum())
    }

    /// Removes a set: who waits is told so.
    pub fn remove(&self, kernel: &Kernel, id: u32) {
        let removed = {
            let mut all = self.all.lock();
            let place = all.iter().position(|set| set.id == id);
            place.map(|place| all.remove(place))
        };
        if let Some(set) = removed {
            set.end(kernel);
        }
    }

    /// Undoes what a process that ends did with operations that say so.
    pub fn undo(&self, kernel: &Kernel, process: u32) {
        let mut first = 0;
        let mut points = PausePoints::every(TOGETHER);
        // Numbers rise along the list, and a set is never given another.
        while let Some(set) = self.from(first) {
            points.round();
            set.undo(kernel, process);
            first = set.id + 1;
        }
    }

    /// The set with the lowest number from this one on.
    fn from(&self, id: u32) -> Option<Arc<Set>> {
        let all = self.all.lock();
        let place = all.partition_point(|set| set.id < id);
        all.get(place).cloned()
    }

    /// Forgets all.
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
    /// How many semaphores.
    pub fn count(&self) -> usize {
        self.state.lock().values.len()
    }

    /// Who may do what with it, and when what was done.
    pub fn standing(&self) -> Standing {
        self.state.lock().standing
    }

    /// Gives it another owner and other permissions.
    pub fn set_owner(&self, owner: Subject, mode: u32, now: i64) {
        let standing = &mut self.state.lock().standing;
        (standing.owner, standing.mode, standing.changed) = (owner, mode, now);
    }

    /// Whether somebody may access it in these ways (`ipcperms`).
    #[must_use]
    pub fn permits(&self, subject: Subject, wanted: Permission) -> bool {
        let standing = self.standing();
        let owner = if subject.user == self.maker.user {
            self.maker
        } else {
            standing.owner
        };
        permitted(subject, standing.mode, owner, false, wanted)
    }

    /// Whether somebody may change or remove it.
    #[must_use]
    pub fn is_owned_by(&self, subject: Subject) -> bool {
        let owners = [self.standing().owner.user, self.maker.user];
        subject.overrides || owners.contains(&subject.user)
    }

    /// Does the operations for a process, or lets them wait.
    ///
    /// # Errors
    /// `EIDRM` if the set was removed, `EAGAIN` if one has to wait and says that it never does, `ERANGE`, `ENOMEM`.
    pub fn operate(
        &self,
        kernel: &Kernel,
        process: u32,
        operations: Vec<Operation>,
        now: i64,
    ) -> Result<Operated, Errno> {
        if operations.iter().any(|one| one.undone) {
            self.make_undo(process)?;
        }
        let state = self.state.lock();
        if let Ok(done) = self.do_now(kernel, state, process, &operations, now)? {
            return Ok(done);
        }
        // Memory is found while the set is unlocked; meanwhile the operations may have become possible.
        let pending = Arc::new(Pending {
            queue: WaitQueue::named("a semaphore"),
            operations,
            process,
            number: AtomicU64::new(0),
            outcome: AtomicU64::new(WAITING),
            next: Lock::new(Rank::Leaf, None),
        });
        let state = lock_with_room(&self.state, |state| &mut state.pending.lists)?;
        match self.do_now(kernel, state, process, &pending.operations, now)? {
            Ok(done) => Ok(done),
            Err((mut state, place)) => {
                state.pending.push(place, pending.clone())?;
                Ok(Operated::Waits(pending))
            }
        }
    }

    /// Makes the undo list of a process, if it has none.
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
        // Another thread of the process may have made it meanwhile.
        if state.undo.get_mut(&process).is_none() {
            state.undo.insert(process, made)?;
        }
        Ok(())
    }

    /// Does the operations, or returns the place of the one that has to wait.
    fn do_now<'a>(
        &'a self,
        kernel: &Kernel,
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
                self.serve(kernel, state, now);
                Ok(Ok(Operated::Done))
            }
            Err(place) if operations[place].never_waits => Err(Errno::EAGAIN),
            Err(place) => Ok(Err((state, place))),
        }
    }

    /// Takes back operations that wait. Returns how they ended, if they did before.
    pub fn give_up(&self, pending: &Arc<Pending>) -> Option<Result<(), Errno>> {
        let number = pending.number.load(Ordering::Relaxed);
        self.state.lock().pending.remove(number);
        pending.outcome()
    }

    /// The value of a semaphore, and the process that operated on it last.
    pub fn value(&self, number: usize) -> Option<(i32, u32)> {
        let state = self.state.lock();
        Some((*state.values.get(number)?, state.processes[number]))
    }

    /// The values of all.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn values(&self) -> Result<Vec<i32>, Errno> {
        let mut copy = zeroes(self.count())?;
        copy.copy_from_slice(&self.state.lock().values);
        Ok(copy)
    }

    /// How many wait until the value of a semaphore is `zero`, or larger.
    pub fn waiting(&self, number: usize, zero: bool) -> usize {
        let state = self.state.lock();
        let concerns = |waiting: &&Waiting| {
            let operation = waiting.pending.operations[waiting.place];
            usize::from(operation.number) == number && (operation.add == 0) == zero
        };
        state.pending.lists.values().filter(concerns).count()
    }

    /// Sets the values of the semaphores from `first` on; nothing of them is to be undone any more. `process` operated on
    /// them last. The caller has seen that there are as many.
    pub fn set(&self, kernel: &Kernel, first: usize, values: &[i32], process: u32, now: i64) {
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
        self.serve(kernel, state, now);
    }

    fn undo(&self, kernel: &Kernel, process: u32) {
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
        self.serve(kernel, state, now);
    }

    /// Does the operations of waiting lists that have become possible, and wakes their callers. What another CPU changes
    /// between two parts it serves itself, from the first list on.
    fn serve<'a>(&'a self, kernel: &Kernel, mut state: LockGuard<'a, State>, now: i64) {
        let mut from = 0;
        loop {
            let (woken, next) = state.serve(now, from);
            drop(state);
            woken.wake(kernel);
            let Some(next) = next else { return };
            from = next;
            pause_point();
            state = self.state.lock();
        }
    }

    fn end(&self, kernel: &Kernel) {
        let mut state = self.state.lock();
        state.removed = true;
        let mut waiting = core::mem::take(&mut state.pending).lists;
        drop(state);
        let mut points = PausePoints::every(TOGETHER);
        while let Some((_, Waiting { pending, .. })) = waiting.pop_first() {
            pending.end(Err(Errno::EIDRM));
            pending.queue.wake_all(kernel);
            points.round();
        }
    }
}

impl State {
    /// Does the operations, or says the place of the one that has to wait. Where they are to be undone, the process has an
    /// undo list.
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

    /// Tries the lists that wait, from number `from` on, and again from the first on after one was done that may have made
    /// earlier ones possible. Returns those whose calls are over and, after [`TOGETHER`] attempts, where to go on.
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
                // A single decrement leaves less for the others, but for those that wait for 0 or for several things
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

/// What came of an attempt.
struct Attempted {
    /// Done, or the place of the operation that has to wait.
    outcome: Result<(), usize>,
    /// How many values of an undo list were cleared for it.
    cleared: usize,
}

/// Whether a list is one operation that makes a value smaller.
fn is_decrement(operations: &[Operation]) -> bool {
    matches!(operations, [one] if one.add < 0)
}

/// Those whose calls are over, in order: a chain through themselves, which needs no memory.
#[derive(Default)]
struct Woken {
    first: Option<Arc<Pending>>,
    last: Option<Arc<Pending>>,
}

impl Woken {
    /// Adds one, which was taken out of what waits and so stands in no other chain.
    fn push(&mut self, pending: Arc<Pending>) {
        match self.last.replace(pending.clone()) {
            Some(last) => *last.next.lock() = Some(pending),
            None => self.first = Some(pending),
        }
    }

    /// Wakes all. No lock is held.
    fn wake(self, kernel: &Kernel) {
        drop(self.last);
        let mut next = self.first;
        while let Some(pending) = next {
            next = pending.next.lock().take();
            pending.queue.wake_all(kernel);
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
            owner: Subject::ROOT,
            mode: 0o600,
            operated: 0,
            changed: 0,
        };
        assert_eq!(sets.add(7, 1, standing), Ok(0));
        // Somebody else found none of this key before there was one.
        assert_eq!(sets.add(7, 1, standing), Err(Errno::EEXIST));
        assert_eq!(sets.add(8, 1, standing), Ok(1));
        for private in [2, 3] {
            assert_eq!(sets.add(0, 1, standing), Ok(private));
        }
    }
}
