//! The entries of one directory: names to targets, in an order that survives changes.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// Cookie of the first entry: `.` and `..` take the positions below.
pub const FIRST_COOKIE: u64 = 2;

/// The map of a directory.
///
/// Each entry keeps the cookie it was given when it was made; cookies only grow. So `getdents64`
/// may go on from a cookie after entries came and went, and neither skips nor repeats one that was
/// there throughout (Linux 7.2: the "stable offsets" of `fs/libfs.c`).
#[derive(Debug)]
pub struct Entries<V> {
    by_name: BTreeMap<Box<[u8]>, (u64, V)>,
    by_cookie: BTreeMap<u64, Box<[u8]>>,
    next_cookie: u64,
    /// The directory was removed: nothing can be made in it any more.
    dead: bool,
}

impl<V> Default for Entries<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> Entries<V> {
    /// An empty directory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            by_name: BTreeMap::new(),
            by_cookie: BTreeMap::new(),
            next_cookie: FIRST_COOKIE,
            dead: false,
        }
    }

    /// Number of entries, `.` and `..` not among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether the directory may be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether the directory was removed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Refuses new entries from now on.
    pub fn kill(&mut self) {
        self.dead = true;
    }

    /// What `name` leads to.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&V> {
        self.by_name.get(name).map(|(_, value)| value)
    }

    /// Sets what `name` leads to. A replaced entry keeps its place in the order and is returned.
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

    /// What the names lead to.
    pub fn all(&self) -> impl Iterator<Item = &V> {
        self.by_name.values().map(|(_, value)| value)
    }

    /// Removes `name` and returns what it led to.
    pub fn remove(&mut self, name: &[u8]) -> Option<V> {
        let (cookie, value) = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie);
        Some(value)
    }

    /// Takes the first entry out, for tearing the tree down.
    pub fn take_first(&mut self) -> Option<V> {
        let (_, (cookie, value)) = self.by_name.pop_first()?;
        self.by_cookie.remove(&cookie);
        Some(value)
    }

    /// The first entry whose cookie is at least `cookie`.
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
