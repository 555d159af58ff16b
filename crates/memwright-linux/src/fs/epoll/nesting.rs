//! Epolls that watch epolls.

use super::Epoll;
use crate::{
    errno::Errno,
    sync::{Lock, LockGuard, Rank},
};
use alloc::{sync::Arc, vec::Vec};

/// The longest chain of epolls that watch one another has this many links (`EP_MAX_NESTS` of Linux
/// 7.2, `fs/eventpoll.c`).
const LONGEST: usize = 4;

/// One at a time lets an epoll watch another: two could close a ring that neither sees.
static ORDER: Lock<()> = Lock::new(Rank::FileSystem, ());

/// Checks that `outer` may watch `inner`, and keeps others from changing that until the guard is
/// dropped.
///
/// # Errors
/// `ELOOP` if `inner` reaches `outer`, or the chain becomes too long.
pub fn check(outer: &Arc<Epoll>, inner: &Arc<Epoll>) -> Result<LockGuard<'static, ()>, Errno> {
    let guard = ORDER.lock();
    let below = depth(inner, Some(outer), LONGEST, &inside)?;
    let above = depth(outer, None, LONGEST, &|epoll| epoll.watched.epolls())?;
    if above + 1 + below > LONGEST {
        return Err(Errno::ELOOP);
    }
    Ok(guard)
}

/// The epolls that one watches.
fn inside(epoll: &Arc<Epoll>) -> Vec<Arc<Epoll>> {
    let items = epoll.items.lock();
    items.values().filter_map(|item| item.inner()).collect()
}

/// Links of the longest chain from an epoll on.
fn depth(
    from: &Arc<Epoll>,
    forbidden: Option<&Arc<Epoll>>,
    room: usize,
    next: &dyn Fn(&Arc<Epoll>) -> Vec<Arc<Epoll>>,
) -> Result<usize, Errno> {
    if forbidden.is_some_and(|forbidden| Arc::ptr_eq(forbidden, from)) {
        return Err(Errno::ELOOP);
    }
    let mut longest = 0;
    for other in next(from) {
        let room = room.checked_sub(1).ok_or(Errno::ELOOP)?;
        longest = longest.max(depth(&other, forbidden, room, next)? + 1);
    }
    Ok(longest)
}
