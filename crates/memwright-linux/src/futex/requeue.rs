//! `FUTEX_REQUEUE` and `FUTEX_CMP_REQUEUE`.

use super::{
    Futexes, Held, Left, Queue, Waiter,
    key::{self, Found},
    wake::ANY,
};
use crate::{Space, errno::Errno, process::Scope};
use alloc::sync::Arc;
use memwright_table::OutOfMemory;

/// The arguments of a requeue operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequeueRequest {
    /// The address of the word whose waiters are woken or moved.
    pub(crate) from: u64,
    /// The address of the word to which waiters are moved.
    pub(crate) to: u64,
    /// The scope of both words.
    pub(crate) scope: Scope,
    /// The number of waiters to wake.
    pub(crate) wake: u32,
    /// The number of further waiters to move.
    pub(crate) requeue: u32,
    /// The value that the first word must have; `None` if it is not checked.
    pub(crate) value: Option<u32>,
}

/// What the operation does to one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Wake,
    Move,
    Stay,
}

/// Returns what happens to the next waiter after `seen` other waiters. Both counts are small enough for the sum not to
/// overflow.
fn fate(seen: u64, wake: u32, requeue: u32) -> Fate {
    if seen >= u64::from(wake) + u64::from(requeue) {
        Fate::Stay
    } else if seen < u64::from(wake) {
        Fate::Wake
    } else {
        Fate::Move
    }
}

impl Futexes {
    /// Wakes the first waiters of a word and moves the next ones to another word. Returns the number of waiters woken
    /// or moved (`futex_requeue` of Linux 7.2, `kernel/futex/requeue.c`).
    ///
    /// # Errors
    /// `EAGAIN` if the first word does not have the expected value, `EINVAL` for negative counts, `EFAULT`, `ENOMEM`.
    pub(crate) fn requeue(
        &self,
        space: &Arc<Space>,
        request: &RequeueRequest,
    ) -> Result<u64, Errno> {
        if (request.wake as i32) < 0 || (request.requeue as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let find = |address| key::find(space, address, request.scope, false);
        loop {
            let (from, to) = (find(request.from)?, find(request.to)?);
            let (old, new) = (from.key.bucket(), to.key.bucket());
            let mut left = Left::default();
            let (mut queue, mut other) = self.lock_two(old, new);
            if let Some(value) = request.value {
                match self.user.user_peek32(request.from) {
                    Some(seen) if seen == value => {}
                    Some(_) => return Err(Errno::EAGAIN),
                    None => {
                        drop((queue, other));
                        self.user
                            .user_load32(request.from)
                            .map_err(|_| Errno::EFAULT)?;
                        continue;
                    }
                }
            }
            let mut round = Round::new(&from, &to, request.wake, request.requeue);
            round.go_through(&mut queue, other.as_deref_mut(), &mut left);
            drop((queue, other));
            left.wake();
            let mut seen = round.seen;
            if round.wake_later > 0 {
                let most = round.wake_later;
                seen += u64::from(self.wake_later(from.key, ANY, most, &mut left));
            }
            while round.move_later > 0 {
                left.make_room(round.move_later);
                if old != new {
                    let more = (round.move_later as usize).min(TOGETHER);
                    match self.lock_with_room(new, more) {
                        Ok(locked) => drop(locked),
                        Err(error) if seen == 0 => return Err(error.into()),
                        Err(OutOfMemory) => break,
                    }
                }
                round = Round::new(&from, &to, 0, round.move_later);
                let (mut queue, mut other) = self.lock_two(old, new);
                round.go_through(&mut queue, other.as_deref_mut(), &mut left);
                drop((queue, other));
                left.wake();
                seen += round.seen;
            }
            return Ok(seen);
        }
    }
}

/// Most waiters for which room is made in the other bucket at a time.
const TOGETHER: usize = 1024;

/// One pass over a bucket, under its lock and that of the other bucket. Waiters for which there is no room stay for
/// another pass.
struct Round<'a> {
    from: &'a Found,
    to: &'a Found,
    wake: u32,
    requeue: u32,
    /// Number of waiters that were woken or moved.
    seen: u64,
    /// Number of waiters that stayed and are still to be woken. They precede those still to be moved.
    wake_later: u32,
    /// Number of waiters that stayed and are still to be moved.
    move_later: u32,
}

impl<'a> Round<'a> {
    fn new(from: &'a Found, to: &'a Found, wake: u32, requeue: u32) -> Self {
        Self {
            from,
            to,
            wake,
            requeue,
            seen: 0,
            wake_later: 0,
            move_later: 0,
        }
    }

    fn go_through(&mut self, queue: &mut Queue, mut other: Option<&mut Queue>, left: &mut Left) {
        queue.retain_mut(|waiter| {
            if waiter.key != self.from.key {
                return true;
            }
            let met = self.seen + u64::from(self.wake_later) + u64::from(self.move_later);
            match fate(met, self.wake, self.requeue) {
                Fate::Stay => true,
                Fate::Wake if left.has_room() => {
                    left.take(waiter);
                    self.seen += 1;
                    false
                }
                Fate::Wake => {
                    self.wake_later += 1;
                    true
                }
                Fate::Move => self.move_on(waiter, other.as_deref_mut(), left),
            }
        });
    }

    /// Moves a waiter to the second word. Returns whether the waiter stays in its bucket.
    fn move_on(&mut self, waiter: &mut Waiter, other: Option<&mut Queue>, left: &mut Left) -> bool {
        let full = other
            .as_ref()
            .is_some_and(|other| other.len() == other.capacity());
        if full || waiter.object.is_some() && !left.has_room() {
            self.move_later += 1;
            return true;
        }
        self.seen += 1;
        if let Some(object) = waiter.object.take() {
            left.add(Held {
                thread: None,
                object: Some(object),
            });
        }
        waiter.key = self.to.key;
        waiter.object.clone_from(&self.to.object);
        let Some(other) = other else {
            return true;
        };
        waiter.thread.futex.enter(self.to.key.bucket());
        let moved = Waiter {
            key: waiter.key,
            bits: waiter.bits,
            thread: waiter.thread.clone(),
            object: waiter.object.take(),
        };
        #[expect(clippy::disallowed_methods, reason = "there is room")]
        other.push(moved);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, fate};

    #[test]
    fn the_first_are_woken_the_next_moved() {
        for (seen, wake, requeue, expected) in [
            (0, 1, 0, Fate::Wake),
            (1, 1, 0, Fate::Stay),
            (0, 0, 1, Fate::Move),
            (1, 1, 1, Fate::Move),
            (2, 1, 1, Fate::Stay),
            (0, 0, 0, Fate::Stay),
            (5, 1, i32::MAX as u32, Fate::Move),
        ] {
            assert_eq!(
                fate(seen, wake, requeue),
                expected,
                "{seen} {wake} {requeue}"
            );
        }
    }
}
