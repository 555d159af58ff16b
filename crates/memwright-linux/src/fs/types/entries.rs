//! The entries of one directory: a map from names to targets, in which entries have stable positions.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// Cookie of the first entry. The positions before it belong to `.` and `..`.
pub const FIRST_COOKIE: u64 = 2;

/// The entries of a directory.
///
/// Each entry gets a cookie when it is created, which is larger than all earlier cookies, and keeps it. So a
/// `getdents64` that continues from a cookie neither skips nor repeats an entry, even if other entries were added or
/// removed since the last call (Linux 7.2: the "stable offsets" of `fs/libfs.c`).
#[derive(Debug)]
pub struct Entries<V> {
    by_name: BTreeMap<Box<[u8]>, (u64, V)>,
    by_cookie: BTreeMap<u64, Box<[u8]>>,
    next_cookie: u64,
    /// Whether the directory was removed. No entry can be created in a removed directory.
    dead: bool,
}

impl<V> Default for Entries<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> Entries<V> {
    /// Creates an empty directory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            by_name: BTreeMap::new(),
            by_cookie: BTreeMap::new(),
            next_cookie: FIRST_COOKIE,
            dead: false,
        }
    }

    /// Returns the number of entries, without `.` and `..`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether there are no entries. Only then can the directory be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns whether the directory was removed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Marks the directory as removed.
    pub fn kill(&mut self) {
        self.dead = true;
    }

    /// Returns the target of `name`, or `None` if there is no such entry.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&V> {
        self.by_name.get(name).map(|(_, value)| value)
    }

    /// Sets the target of `name`, and creates the entry if it does not exist. An existing entry keeps its cookie.
    /// Returns the previous target.
    pub fn insert(&mut self, name: &[u8], value: V) -> Option<V> {
        if let Some((_, old)) = self.by_name.get_mut(name) {
            return Some(core::mem::replace(old, value));
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.by_cookie.insert(cookie, name.into());
        self.by_name.insert(name.into(), (cookie, value));
        None
    }

    /// Iterates over the targets.
    pub fn all(&self) -> impl Iterator<Item = &V> {
        self.by_name.values().map(|(_, value)| value)
    }

    /// Removes the entry `name` and returns its target, or `None` if there is no such entry.
    pub fn remove(&mut self, name: &[u8]) -> Option<V> {
        let (cookie, value) = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie);
        Some(value)
    }

    /// Removes the first entry by name and returns its target. Used to tear down the tree.
    pub fn take_first(&mut self) -> Option<V> {
        let (_, (cookie, value)) = self.by_name.pop_first()?;
        self.by_cookie.remove(&cookie);
        Some(value)
    }

    /// Returns the cookie, name and target of the first entry whose cookie is at least `cookie`.
    #[must_use]
    pub fn next_from(&self, cookie: u64) -> Option<(u64, &[u8], &V)> {
        let (&cookie, name) = self.by_cookie.range(cookie..).next()?;
        let (_, value) = self.by_name.get(name)?;
        Some((cookie, name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn reading_survives_removal_and_insertion() {
        let mut entries = Entries::new();
        for name in ["d", "a", "c", "b"] {
            assert!(entries.insert(name.as_bytes(), name).is_none());
        }
        let mut seen = Vec::new();
        let mut cookie = 0;
        while let Some((at, name, value)) = entries.next_from(cookie) {
            assert_eq!(name, value.as_bytes());
            seen.push(*value);
            cookie = at + 1;
            let value = *value;
            entries.remove(value.as_bytes());
            if value == "a" {
                entries.insert(b"late", "late");
            }
        }
        assert_eq!(seen, ["d", "a", "c", "b", "late"]);
        assert!(entries.is_empty());
    }

    #[test]
    fn replacing_keeps_the_cookie() {
        let mut entries = Entries::new();
        entries.insert(b"x", 1);
        entries.insert(b"y", 2);
        assert_eq!(entries.insert(b"x", 3), Some(1));
        assert_eq!(entries.len(), 2);
        assert_eq!(entries.next_from(0), Some((FIRST_COOKIE, &b"x"[..], &3)));
        assert_eq!(entries.get(b"x"), Some(&3));
        assert_eq!(entries.remove(b"x"), Some(3));
        assert_eq!(
            entries.next_from(0),
            Some((FIRST_COOKIE + 1, &b"y"[..], &2))
        );
        assert_eq!(entries.take_first(), Some(2));
        assert_eq!(entries.take_first(), None);
        assert_eq!(entries.next_from(0), None);
    }
}
