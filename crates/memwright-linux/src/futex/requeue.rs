//! `FUTEX_REQUEUE` and `FUTEX_CMP_REQUEUE`.

use super::{Left, Scope, Waiter, key};
use crate::{context::Context, errno::Errno};

/// What becomes of the waiters of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequeueRequest {
    /// The word they wait for.
    pub(crate) from: u64,
    /// The word they shall wait for.
    pub(crate) to: u64,
    /// Whose words both are.
    pub(crate) scope: Scope,
    /// How many are woken.
    pub(crate) wake: u32,
    /// How many of the others are moved.
    pub(crate) requeue: u32,
    /// Only if the first word has this value.
    pub(crate) value: Option<u32>,
}

/// What becomes of one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Wake,
    Move,
    Stay,
}

/// What becomes of the next waiter after `seen` others. The numbers are small enough for a sum.
fn fate(seen: u64, wake: u32, requeue: u32) -> Fate {
    if seen >= u64::from(wake) + u64::from(requeue) {
        Fate::Stay
    } else if seen < u64::from(wake) {
        Fate::Wake
    } else {
        Fate::Move
    }
}

/// Wakes the first waiters of a word and lets the next wait for another; returns how many of both
/// (`futex_requeue` of Linux 7.2, `kernel/futex/requeue.c`).
///
/// # Errors
/// `EAGAIN` when the first word has another value, `EINVAL` for negative numbers, `EFAULT`.
pub(crate) fn requeue(context: &Context<'_>, request: &RequeueRequest) -> Result<u64, Errno> {
    if (request.wake as i32) < 0 || (request.requeue as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let kernel = context.kernel;
    loop {
        let find =
            |address| context.with_space(|space| key::find(space, address, request.scope, false));
        let (from, to) = (find(request.from)?, find(request.to)?);
        let (old, new) = (from.key.bucket(), to.key.bucket());
        let mut left = Left::default();
        let (mut queue, mut other) = kernel.futexes.lock_two(old, new);
        if let Some(value) = request.value {
            match kernel.host.user_peek32(request.from) {
                Some(seen) if seen == value => {}
                Some(_) => return Err(Errno::EAGAIN),
                None => {
                    drop((queue, other));
                    kernel
                        .host
                        .user_load32(request.from)
                        .map_err(|_| Errno::EFAULT)?;
                    continue;
                }
            }
        }
        let mut seen = 0;
        queue.retain_mut(|waiter| {
            let fate = if waiter.key == from.key {
                fate(seen, request.wake, request.requeue)
            } else {
                Fate::Stay
            };
            seen += u64::from(fate != Fate::Stay);
            match fate {
                Fate::Stay => true,
                Fate::Wake => {
                    left.take(waiter);
                    false
                }
                Fate::Move => {
                    left.objects.extend(waiter.object.take());
                    match &mut other {
                        None => {
                            waiter.key = to.key;
                            waiter.object.clone_from(&to.object);
                            true
                        }
                        Some(other) => {
                            waiter.thread.futex.enter(new);
                            other.push(Waiter {
                                key: to.key,
                                bits: waiter.bits,
                                thread: waiter.thread.clone(),
                                object: to.object.clone(),
                            });
                            false
                        }
                    }
                }
            }
        });
        drop((queue, other));
        left.wake(kernel);
        return Ok(seen);
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
