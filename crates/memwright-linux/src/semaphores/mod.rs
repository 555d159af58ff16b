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
    sync::{LockGuard, PausePoints, pause_point},
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
    /// Its number in the queue.
    number: u64,
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
    /// Adds the list that `make` makes of its number.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn push(
        &mut self,
        place: usize,
        make: impl FnOnce(u64) -> Pending,
    ) -> Result<Arc<Pending>, OutOfMemory> {
        let number = self.arrivals;
        let pending = Arc::new(make(number));
        let waiting = Waiting {
            pending: pending.clone(),
            place,
        };
        self.lists.insert(number, waiting)?;
        self.arrivals += 1;
        self.others += usize::from(!is_decrement(&pending.operations));
        Ok(pending)
    }

    /// Takes a list out, if it still waits.
    fn remove(&mut self, number: u64) {
        if let Some(removed) = self.lists.remove(&number) {
            self.others -= usize::from(!is_decrement(&removed.pending.operations));
        }
    }
}

/// Values of an undo list that are cleared in the time of one attempt, about.
const CLEARED: usize = 64;

/// Lists of operations that are tried, or undo lists that are freed, between two scheduling points.
const TOGETHER: u32 = 256;

/// What changes of a set.
struct State {
    values: Vec<i32>,
    /// Process that operated last, for each.
    processes: Vec<u32>,
    /// What the end of a process adds to each.
    undo: Vec<(u32, Vec<i32>)>,
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
            undo: Vec::new(),
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
        let mut state = self.state.lock();
        if state.removed {
            return Err(Errno::EIDRM);
        }
        match state.attempt(process, &operations)? {
            Ok(()) => {
                state.standing.operated = now;
                self.serve(kernel, state, now);
                Ok(Operated::Done)
            }
            Err(place) if operations[place].never_waits => Err(Errno::EAGAIN),
            Err(place) => {
                let pending = state.pending.push(place, |number| Pending {
                    queue: WaitQueue::named("a semaphore"),
                    operations,
                    process,
                    number,
                    outcome: AtomicU64::new(WAITING),
                    next: Lock::new(Rank::Leaf, None),
                })?;
                Ok(Operated::Waits(pending))
            }
        }
    }

    /// Takes back operations that wait. Returns how they ended, if they did before.
    pub fn give_up(&self, pending: &Arc<Pending>) -> Option<Result<(), Errno>> {
        self.state.lock().pending.remove(pending.number);
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
        // With all values set, nothing is left to undo.
        let undo = if values.len() == state.values.len() {
            core::mem::take(&mut state.undo)
        } else {
            for (_, undo) in &mut state.undo {
                undo[first..first + values.len()].fill(0);
            }
            Vec::new()
        };
        state.standing.changed = now;
        self.serve(kernel, state, now);
        let mut points = PausePoints::every(TOGETHER);
        for list in undo {
            drop(list);
            points.round();
        }
    }

    fn undo(&self, kernel: &Kernel, process: u32) {
        let mut state = self.state.lock();
        let place = state.undo.iter().position(|(owner, _)| *owner == process);
        let Some(place) = place else { return };
        let (_, undo) = state.undo.remove(place);
        for (number, add) in undo.into_iter().enumerate() {
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
    /// Does the operations, or says the place of the one that has to wait.
    fn attempt(
        &mut self,
        process: u32,
        operations: &[Operation],
    ) -> Result<Result<(), usize>, Errno> {
        let mut none = [];
        let undone = operations.iter().any(|one| one.undone);
        let place = if undone {
            Some(self.place_of_undo(process)?)
        } else {
            None
        };
        let undo = match place {
            Some(place) => &mut self.undo[place].1[..],
            None => &mut none,
        };
        match attempt(&mut self.values, undo, operations) {
            Ok(()) => {
                for one in operations {
                    self.processes[usize::from(one.number)] = process;
                }
                Ok(Ok(()))
            }
            Err(Refusal::Waits(place)) => Ok(Err(place)),
            Err(Refusal::OutOfRange) => Err(Errno::ERANGE),
        }
    }

    /// Where the list is of what the end of the process undoes, which is made if there is none.
    fn place_of_undo(&mut self, process: u32) -> Result<usize, Errno> {
        let known = self.undo.iter().position(|(owner, _)| *owner == process);
        if let Some(place) = known {
            return Ok(place);
        }
        let zeroes = zeroes(self.values.len())?;
        self.undo.try_push((process, zeroes))?;
        Ok(self.undo.len() - 1)
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
            let undo_lists = self.undo.len();
            let attempted = self.attempt(pending.process, &pending.operations);
            // To make an undo list takes as long as many attempts.
            let made = (self.undo.len() - undo_lists) * self.values.len();
            left = left.saturating_sub(1 + (made / CLEARED) as u32);
            let outcome = match attempted {
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
