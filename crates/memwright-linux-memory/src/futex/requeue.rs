//! `FUTEX_REQUEUE` and `FUTEX_CMP_REQUEUE`.

use super::{
    Futexes, Held, Left, TOGETHER, Wanted,
    key::{self, Found},
    queue::{Choice, Queue, Waiter},
    wake::ANY,
};
use alloc::sync::Arc;
use memwright_linux_abi::{Space, errno::Errno};
use memwright_linux_base::sync::Grows;
use memwright_linux_tasks::process::Scope;
use memwright_table::OutOfMemory;

/// The arguments of a requeue operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequeueRequest {
    /// The address of the word whose waiters are woken or moved.
    pub from: u64,
    /// The address of the word to which waiters are moved.
    pub to: u64,
    /// The scope of both words: private or shared.
    pub scope: Scope,
    /// The number of waiters to wake.
    pub wake: u32,
    /// The number of waiters to move after the wakeups.
    pub requeue: u32,
    /// The value that the word at `from` must have; `None` if the value is not checked.
    pub value: Option<u32>,
}

impl Futexes {
    /// Wakes the first waiters of the word `from` and moves the next ones to the word `to`. Returns the number of
    /// waiters woken or moved (`futex_requeue` of Linux 7.2, `kernel/futex/requeue.c`).
    ///
    /// # Errors
    /// `EAGAIN` if the word `from` does not have the expected value, `EINVAL` for negative counts, `EFAULT`, `ENOMEM`.
    pub fn requeue(&self, space: &Arc<Space>, request: &RequeueRequest) -> Result<u64, Errno> {
        if (request.wake as i32) < 0 || (request.requeue as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let find = |address| key::find(space, address, request.scope, false);
        loop {
            let (from, to) = (find(request.from)?, find(request.to)?);
            let mut left = Left::default();
            let mut wanted = Wanted::new(from.key, ANY, request.wake);
            let mut moving = Moving::new(&from, &to, request.requeue);
            let (mut queue, mut other) =
                self.lock_two(key::bucket_of(from.key), key::bucket_of(to.key));
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
            let mut seen = wanted.take(&mut queue, &mut left);
            moving.begin(&queue);
            if wanted.stay == 0 {
                seen += moving.advance(&mut queue, other.as_deref_mut(), &mut left);
            }
            drop((queue, other));
            left.wake();
            seen += self.wake_later(&mut wanted, &mut left);
            while moving.stay > 0 {
                match self.move_later(&mut moving, &mut left) {
                    Ok(moved) => seen += moved,
                    Err(error) if seen == 0 => return Err(error.into()),
                    Err(OutOfMemory) => break,
                }
            }
            return Ok(seen.into());
        }
    }

    /// Makes room, and moves the waiters that remained in their bucket because there was no room. Returns the number of
    /// moved waiters.
    #[cold]
    fn move_later(&self, moving: &mut Moving<'_>, left: &mut Left) -> Result<u32, OutOfMemory> {
        let (old, new) = (
            key::bucket_of(moving.choice.key),
            key::bucket_of(moving.to.key),
        );
        if moving.to.object.is_some() {
            left.make_room(moving.stay);
        }
        if old != new {
            drop(self.lock_with_room(new)?);
        }
        let moved = {
            let (mut queue, mut other) = self.lock_two(old, new);
            moving.advance(&mut queue, other.as_deref_mut(), left)
        };
        left.wake();
        Ok(moved)
    }
}

/// The waiters of one word that a call has not yet moved to the word `to`.
struct Moving<'a> {
    /// Selects the waiters that were in the bucket when the call began.
    choice: Choice,
    to: &'a Found,
    /// The maximum number of waiters that the call may still move.
    most: u32,
    /// The lowest number of a waiter that the call may still move. If both words are the same, a waiter keeps its
    /// number when it is moved, and without this bound it could be moved twice.
    from: u64,
    /// The number of waiters that remain in their bucket until there is room, counted up to a limit.
    stay: u32,
}

impl<'a> Moving<'a> {
    fn new(from: &Found, to: &'a Found, most: u32) -> Self {
        let choice = Choice {
            key: from.key,
            bits: ANY,
            until: u64::MAX,
        };
        Self {
            choice,
            to,
            most,
            from: 0,
            stay: 0,
        }
    }

    /// Selects the waiters that are in the bucket now. If the call moves any waiters, sets `stay` to 1, so that
    /// `move_later` calls `advance`.
    fn begin(&mut self, queue: &Queue) {
        self.choice.until = queue.next();
        self.stay = self.most.min(1);
    }

    /// Moves waiters in order of arrival, while there is room for them in the other bucket and for their references in
    /// `left`. `other` is `None` if both words have the same bucket. Returns the number of moved waiters.
    fn advance(
        &mut self,
        queue: &mut Queue,
        mut other: Option<&mut Queue>,
        left: &mut Left,
    ) -> u32 {
        self.stay = 0;
        let mut moved = 0;
        while moved < self.most {
            let Some((number, waiter)) = queue.first(&self.choice, self.from) else {
                break;
            };
            let full = other
                .as_deref_mut()
                .is_some_and(|other| !other.list().has_room(1));
            if full || waiter.object.is_some() && !left.has_room() {
                let most = TOGETHER.min(self.most - moved);
                self.stay = queue.count(&self.choice, number, most);
                break;
            }
            self.transfer(number, queue, other.as_deref_mut(), left);
            self.from = number + 1;
            moved += 1;
        }
        self.most -= moved;
        moved
    }

    /// Moves the waiter with the number `number`. In the same bucket, the waiter keeps its place in the order of
    /// arrival. The caller has checked that there is room.
    fn transfer(&self, number: u64, queue: &mut Queue, other: Option<&mut Queue>, left: &mut Left) {
        let Some((bits, waiter)) = queue.remove((self.choice.key, number)) else {
            return;
        };
        let Waiter { thread, object } = waiter;
        if let Some(object) = object {
            left.add(Held {
                thread: None,
                object: Some(object),
            });
        }
        let moved = Waiter {
            thread: thread.clone(),
            object: self.to.object.clone(),
        };
        let key = self.to.key;
        let position = match other {
            Some(other) => other.push(key, bits, moved),
            None => queue.insert((key, number), bits, moved),
        };
        debug_assert!(position.is_ok(), "there was room");
        if let Ok(position) = position {
            thread.futex.enter(key::bucket_of(key), position);
        }
    }
}
