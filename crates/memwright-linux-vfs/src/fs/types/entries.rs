//! The entries of a directory: a map from names to targets that also assigns a stable position to each entry.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, btree_map},
};

/// Cookie of the first entry. Smaller positions are those of `.` and `..`.
pub const FIRST_COOKIE: u64 = 2;

/// The entries of a directory.
///
/// Each entry gets a cookie when it is created, which is its position in the directory. The cookie is larger than all
/// earlier ones and never changes. So a `getdents64` that continues from a cookie neither skips nor repeats an entry,
/// even if other entries were added or removed since the last call (Linux 7.2: the "stable offsets" of `fs/libfs.c`).
///
/// The entries are indexed by the hash of the name, so that a search normally compares integers and one name. Names
/// with equal hashes, which a program can construct, are kept in order, so that a search takes logarithmic time even
/// then.
#[derive(Debug)]
pub struct Entries<V> {
    by_cookie: BTreeMap<u64, Entry<V>>,
    by_hash: BTreeMap<u64, Cookies>,
    next_cookie: u64,
    /// Whether the directory was removed. No entry can be created in a removed directory.
    dead: bool,
    /// Whether the lower tree of the file system can have entries that are not in this map.
    partial: bool,
}

#[derive(Debug)]
struct Entry<V> {
    name: Box<[u8]>,
    value: V,
}

/// The cookies of the entries whose names have the same hash.
#[derive(Debug)]
enum Cookies {
    One(u64),
    Several(BTreeMap<Box<[u8]>, u64>),
}

/// Returns the hash of a name (FNV-1a, by words of up to eight bytes).
fn hash(name: &[u8]) -> u64 {
    name.chunks(8).fold(0xcbf2_9ce4_8422_2325, |hash, part| {
        let word = match part.try_into() {
            Ok(bytes) => u64::from_le_bytes(bytes),
            Err(_) => part
                .iter()
                .fold(0, |word, &byte| word << 8 | u64::from(byte)),
        };
        (hash ^ word).wrapping_mul(0x0100_0000_01b3)
    })
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
            by_cookie: BTreeMap::new(),
            by_hash: BTreeMap::new(),
            next_cookie: FIRST_COOKIE,
            dead: false,
            partial: false,
        }
    }

    /// Creates a directory whose entries are all still in the lower tree of the file system.
    #[must_use]
    pub const fn partial() -> Self {
        let mut entries = Self::new();
        entries.partial = true;
        entries
    }

    /// Returns whether the lower tree of the file system can have entries that are not in this map.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        self.partial
    }

    /// Records that the lower tree has no entries that are not in this map.
    pub const fn set_complete(&mut self) {
        self.partial = false;
    }

    /// Returns the number of entries, without `.` and `..`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_cookie.len()
    }

    /// Returns whether there are no entries. Only then can the directory be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_cookie.is_empty()
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

    /// Returns the cookie of the entry with this name and hash, if it exists.
    fn find(&self, name: &[u8], hash: u64) -> Option<u64> {
        match self.by_hash.get(&hash)? {
            Cookies::One(cookie) => {
                let entry = self.by_cookie.get(cookie)?;
                (*entry.name == *name).then_some(*cookie)
            }
            Cookies::Several(cookies) => cookies.get(name).copied(),
        }
    }

    /// Returns the target of `name`, or `None` if there is no such entry.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&V> {
        let entry = match self.by_hash.get(&hash(name))? {
            Cookies::One(cookie) => self
                .by_cookie
                .get(cookie)
                .filter(|entry| *entry.name == *name),
            Cookies::Several(cookies) => self.by_cookie.get(cookies.get(name)?),
        };
        entry.map(|entry| &entry.value)
    }

    /// Sets the target of `name`, and creates the entry if it does not exist. An existing entry keeps its cookie.
    /// Returns the previous target.
    pub fn insert(&mut self, name: &[u8], value: V) -> Option<V> {
        let hash = hash(name);
        let found = self.find(name, hash);
        if let Some(entry) = found.and_then(|cookie| self.by_cookie.get_mut(&cookie)) {
            return Some(core::mem::replace(&mut entry.value, value));
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        match self.by_hash.entry(hash) {
            btree_map::Entry::Vacant(vacant) => {
                vacant.insert(Cookies::One(cookie));
            }
            btree_map::Entry::Occupied(mut occupied) => {
                let cookies = occupied.get_mut();
                if let Cookies::One(other) = *cookies {
                    let mut several = BTreeMap::new();
                    if let Some(entry) = self.by_cookie.get(&other) {
                        several.insert(entry.name.clone(), other);
                    }
                    *cookies = Cookies::Several(several);
                }
                if let Cookies::Several(cookies) = cookies {
                    cookies.insert(name.into(), cookie);
                }
            }
        }
        let name = name.into();
        self.by_cookie.insert(cookie, Entry { name, value });
        None
    }

    /// Iterates over the targets, in the order in which the entries were created.
    pub fn all(&self) -> impl Iterator<Item = &V> {
        self.by_cookie.values().map(|entry| &entry.value)
    }

    /// Removes the entry `name` and returns its target, or `None` if there is no such entry.
    pub fn remove(&mut self, name: &[u8]) -> Option<V> {
        let hash = hash(name);
        let cookie = self.find(name, hash)?;
        self.forget(name, hash);
        self.by_cookie.remove(&cookie).map(|entry| entry.value)
    }

    /// Removes the cookie of the entry with this name and hash.
    fn forget(&mut self, name: &[u8], hash: u64) {
        if let Some(Cookies::Several(cookies)) = self.by_hash.get_mut(&hash) {
            cookies.remove(name);
            if !cookies.is_empty() {
                return;
            }
        }
        self.by_hash.remove(&hash);
    }

    /// Removes the entry that was created first, and returns its target. Used when the tree is torn down.
    pub fn take_first(&mut self) -> Option<V> {
        let (_, Entry { name, value }) = self.by_cookie.pop_first()?;
        self.forget(&name, hash(&name));
        Some(value)
    }

    /// Returns the cookie, name and target of the first entry whose cookie is at least `cookie`.
    #[must_use]
    pub fn next_from(&self, cookie: u64) -> Option<(u64, &[u8], &V)> {
        let (&cookie, entry) = self.by_cookie.range(cookie..).next()?;
        Some((cookie, &entry.name, &entry.value))
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

    /// Returns two different names with the same hash. The second word of each name compensates for the difference of
    /// the first words.
    fn colliding() -> [Vec<u8>; 2] {
        let state = |first: u64| (0xcbf2_9ce4_8422_2325 ^ first).wrapping_mul(0x0100_0000_01b3);
        let words = [1_u64, 2].map(|first| [first, state(first) ^ 77]);
        words.map(|words| words.into_iter().flat_map(u64::to_le_bytes).collect())
    }

    #[test]
    fn names_with_the_same_hash_are_different_entries() {
        let [one, other] = colliding();
        assert!(one != other && hash(&one) == hash(&other));
        let mut entries = Entries::new();
        assert_eq!(entries.insert(&one, 1), None);
        assert_eq!((entries.get(&one), entries.get(&other)), (Some(&1), None));
        assert_eq!(entries.remove(&other), None);
        assert_eq!(entries.insert(&other, 2), None);
        assert_eq!(
            (entries.get(&one), entries.get(&other)),
            (Some(&1), Some(&2))
        );
        assert_eq!(entries.insert(&one, 3), Some(1));
        assert_eq!(
            (entries.remove(&one), entries.remove(&one)),
            (Some(3), None)
        );
        assert_eq!((entries.get(&one), entries.get(&other)), (None, Some(&2)));
        assert_eq!(entries.insert(&one, 4), None);
        assert_eq!(
            (entries.take_first(), entries.take_first()),
            (Some(2), Some(4))
        );
        assert!(entries.is_empty() && entries.by_hash.is_empty());
    }

    #[test]
    fn all_lengths_of_names_are_found() {
        let mut entries = Entries::new();
        let name = |length: usize| alloc::vec![b'x'; length];
        assert!((1..=255).all(|length| entries.insert(&name(length), length).is_none()));
        assert!((1..=255).all(|length| entries.get(&name(length)) == Some(&length)));
        assert!((1..=255).all(|length| entries.remove(&name(length)) == Some(length)));
        assert!(entries.is_empty() && entries.by_hash.is_empty());
    }
}
