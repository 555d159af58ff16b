//! Limits on epolls that watch epolls (`ep_loop_check` and `reverse_path_check` of Linux 6.18, `fs/eventpoll.c`).
//!
//! Epolls and the entries between them form a graph, which programs control. The number of paths can grow exponentially
//! with the length of the paths, so neither check follows each path. The search for loops proceeds level by level and
//! visits an epoll once per level. The path count visits each epoll once and adds up the counts of the epolls above it.

use crate::fs::{
    epoll::Epoll,
    open_file::OpenFile,
    watch::{marks::LONGEST, ready::ENTRIES, watches::Watches},
};
use alloc::{sync::Arc, vec::Vec};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::{Lock, LockGuard, PausePoints, Rank};
use memwright_table::TryPush;

/// Maximum number of paths to one file, by the number of links between epolls in the path (`path_limits`). The number
/// of paths without such a link is not limited.
const PATHS: [u32; LONGEST + 1] = [u32::MAX, 500, 100, 50, 10];

/// Serialises changes of the graph of epolls (`epnested_mutex`). The value is the number of the last pass, which marks
/// the visited epolls and files.
static ORDER: Lock<u64> = Lock::new(Rank::Links, 0);

/// Returns whether `counts`, the number of paths to a file by length, exceeds a limit.
fn exceeds(counts: &[u32; LONGEST + 1]) -> bool {
    counts
        .iter()
        .zip(&PATHS)
        .any(|(count, limit)| count > limit)
}

/// Initial capacity of a list of epolls.
const LEAST_ROOM: usize = 8;

/// The direction of a search: which neighbours of an epoll the search visits.
#[derive(Clone, Copy)]
enum Direction {
    /// The epolls that this epoll watches.
    Down,
    /// The epolls that watch this epoll.
    Up,
}

/// A change of the graph of epolls, which holds the lock that serialises changes.
///
/// Until the lock is released, the change keeps a reference to every visited epoll and file, because dropping the last
/// reference to an open file closes the file, which takes locks.
pub(in crate::fs) struct Nesting {
    order: LockGuard<'static, u64>,
    epolls: Vec<Arc<Epoll>>,
    files: Vec<Arc<OpenFile>>,
}

impl Nesting {
    /// Begins a change if the addition of a file to `outer` must be checked, else returns `None`. The addition must be
    /// checked if the file is an epoll (`inner`), or if other epolls watch `outer`.
    pub(in crate::fs) fn begin(outer: &Epoll, inner: Option<&Arc<Epoll>>) -> Option<Self> {
        (inner.is_some() || outer.watched.is_watched()).then(|| Self {
            order: ORDER.lock(),
            epolls: Vec::new(),
            files: Vec::new(),
        })
    }

    /// Checks that `outer` can watch `inner`: there must be no loop, and the longest chain must not be too long.
    ///
    /// # Errors
    /// `ELOOP` if `inner` is `outer` or watches it directly or indirectly, or if the chain would be too long; `ENOMEM`.
    pub(in crate::fs) fn check_loop(
        &mut self,
        outer: &Arc<Epoll>,
        inner: &Arc<Epoll>,
    ) -> Result<(), Errno> {
        let below = self.depth(inner, Direction::Down, Some(outer))?;
        let above = self.depth(outer, Direction::Up, None)?;
        if above + 1 + below > LONGEST {
            return Err(Errno::ELOOP);
        }
        Ok(())
    }

    /// Checks, after `open` was added to an epoll, that not too many paths lead to a file. `inner` is the epoll of
    /// `open` if `open` is an epoll.
    ///
    /// # Errors
    /// `EINVAL` if a file has too many paths, `ENOMEM`.
    pub(in crate::fs) fn check_paths(
        &mut self,
        open: &Arc<OpenFile>,
        inner: Option<&Arc<Epoll>>,
    ) -> Result<(), Errno> {
        match inner {
            Some(inner) => self.collect_files(inner)?,
            None => push(&mut self.files, open.clone())?,
        }
        let pass = self.pass();
        self.count_paths(pass)?;
        let mut points = PausePoints::every(ENTRIES);
        for file in &self.files {
            points.round();
            let counts = core::array::from_fn(|length| file.watches.paths(length, pass));
            if exceeds(&counts) {
                return Err(Errno::EINVAL);
            }
        }
        Ok(())
    }

    /// Begins a new pass and returns its number. No epoll or file is marked with this number yet.
    fn pass(&mut self) -> u64 {
        *self.order += 1;
        *self.order
    }

    /// Returns the number of links in the longest chain of epolls that starts at `from` and leads in `direction`.
    ///
    /// # Errors
    /// `ELOOP` if a chain reaches `forbidden` or has more than [`LONGEST`] links, `ENOMEM`.
    fn depth(
        &mut self,
        from: &Arc<Epoll>,
        direction: Direction,
        forbidden: Option<&Arc<Epoll>>,
    ) -> Result<usize, Errno> {
        let is_forbidden =
            |epoll: &Arc<Epoll>| forbidden.is_some_and(|forbidden| Arc::ptr_eq(forbidden, epoll));
        if is_forbidden(from) {
            return Err(Errno::ELOOP);
        }
        let mut level = self.epolls.len();
        push(&mut self.epolls, from.clone())?;
        for depth in 0..=LONGEST {
            let (pass, end) = (self.pass(), self.epolls.len());
            for index in level..end {
                let epoll = self.epolls[index].clone();
                match direction {
                    Direction::Down => epoll.visit_inner(pass, &mut self.epolls)?,
                    Direction::Up => epoll.watched.visit(pass, &mut self.epolls)?,
                }
            }
            if self.epolls[end..].iter().any(is_forbidden) {
                return Err(Errno::ELOOP);
            }
            if self.epolls.len() == end {
                return Ok(depth);
            }
            level = end;
        }
        Err(Errno::ELOOP)
    }

    /// Collects the files, other than epolls, that `inner` watches directly or indirectly.
    fn collect_files(&mut self, inner: &Arc<Epoll>) -> Result<(), Errno> {
        let pass = self.pass();
        let mut next = self.epolls.len();
        inner.watched.mark.visit(pass);
        push(&mut self.epolls, inner.clone())?;
        while let Some(epoll) = self.epolls.get(next).cloned() {
            next += 1;
            epoll.visit_inner(pass, &mut self.epolls)?;
            epoll.visit_files(pass, &mut self.files)?;
        }
        Ok(())
    }

    /// Collects the epolls that watch the collected files directly or indirectly. Counts the paths that lead up from
    /// each of these epolls.
    fn count_paths(&mut self, pass: u64) -> Result<(), Errno> {
        let start = self.epolls.len();
        let mut points = PausePoints::every(ENTRIES);
        for file in &self.files {
            points.round();
            file.watches.visit(pass, &mut self.epolls)?;
        }
        let mut next = start;
        while let Some(epoll) = self.epolls.get(next).cloned() {
            next += 1;
            epoll.watched.visit(pass, &mut self.epolls)?;
        }
        let above = &self.epolls[start..];
        for epoll in above {
            let is_top = !epoll.watched.is_watched();
            epoll.paths.set(0, u32::from(is_top));
        }
        for length in 1..=LONGEST {
            for epoll in above {
                let count = epoll.watched.paths(length - 1, pass);
                epoll.paths.set(length, count);
            }
        }
        Ok(())
    }
}

/// Appends to a list whose length the program controls. Returns `ENOMEM` if the list cannot grow.
fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), Errno> {
    Ok(list.try_push(item)?)
}

impl Epoll {
    /// Appends to `found` the epolls that this epoll watches and that are not marked with `pass`. Marks them.
    fn visit_inner(&self, pass: u64, found: &mut Vec<Arc<Epoll>>) -> Result<(), Errno> {
        self.each_item(|item| {
            found.try_make_room(1)?;
            // Dropping a duplicate does not drop the last reference to an epoll, because `found` has another one.
            #[expect(clippy::disallowed_methods, reason = "there is room for it")]
            found.extend(item.inner().filter(|inner| inner.watched.mark.visit(pass)));
            Ok(())
        })
    }

    /// Appends to `found` the watched files, other than epolls, that are not marked with `pass`. Marks them.
    fn visit_files(&self, pass: u64, found: &mut Vec<Arc<OpenFile>>) -> Result<(), Errno> {
        self.each_item(|item| {
            if item.is_nested() {
                return Ok(());
            }
            found.try_make_room(1)?;
            #[expect(clippy::disallowed_methods, reason = "there is room for it")]
            found.extend(item.open().filter(|open| open.watches.mark.visit(pass)));
            Ok(())
        })
    }
}

impl Watches<OpenFile> {
    /// Appends to `found` the watching epolls that are not marked with `pass`. Marks them.
    fn visit(&self, pass: u64, found: &mut Vec<Arc<Epoll>>) -> Result<(), Errno> {
        // No memory may be allocated under the lock of the entries, so `found` grows while that lock is not held.
        while let Some(epoll) = self.visit_in_room(pass, found) {
            found.try_make_room(found.len().max(LEAST_ROOM))?;
            if epoll.watched.mark.visit(pass) {
                push(found, epoll)?;
            }
        }
        Ok(())
    }

    /// Appends to `found`, up to its capacity, the watching epolls that are not marked with `pass`, and marks them.
    /// Returns the first epoll that does not fit, which is not marked.
    fn visit_in_room(&self, pass: u64, found: &mut Vec<Arc<Epoll>>) -> Option<Arc<Epoll>> {
        let items = self.items.lock();
        // Dropping an epoll that is marked does not drop its last reference, because `found` has another one.
        let watching = items.iter().filter_map(|item| item.upgrade()?.epoll());
        for epoll in watching.filter(|epoll| !epoll.watched.mark.is(pass)) {
            if found.len() == found.capacity() {
                return Some(epoll);
            }
            epoll.watched.mark.visit(pass);
            #[expect(clippy::disallowed_methods, reason = "there is room for it")]
            found.push(epoll);
        }
        None
    }

    /// Returns the number of paths with `length` links that start at a watching epoll that is marked with `pass`, and
    /// lead up.
    fn paths(&self, length: usize, pass: u64) -> u32 {
        let items = self.items.lock();
        let epolls = items.iter().filter_map(|item| item.upgrade()?.epoll());
        epolls
            .filter(|epoll| epoll.watched.mark.is(pass))
            .fold(0, |sum, epoll| sum.saturating_add(epoll.paths.get(length)))
    }
}

#[cfg(test)]
mod tests {
    use super::exceeds;

    #[test]
    fn paths_between_epolls_are_limited_by_length() {
        for (counts, too_many) in [
            ([0, 0, 0, 0, 0], false),
            ([1_000_000, 500, 100, 50, 10], false),
            ([0, 501, 0, 0, 0], true),
            ([0, 0, 101, 0, 0], true),
            ([0, 0, 0, 51, 0], true),
            ([0, 0, 0, 0, 11], true),
        ] {
            assert_eq!(exceeds(&counts), too_many, "{counts:?}");
        }
    }
}
