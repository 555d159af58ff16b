//! The extended attributes of one inode.

use alloc::{boxed::Box, vec::Vec};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::{
    ordered::Ordered,
    sync::{Lock, LockGuard, Rank, lock_with_room},
};
use memwright_table::{Shared, TryPush};

/// Longest name in bytes, without its NUL (`XATTR_NAME_MAX`).
pub const NAME_MAX: usize = 255;
/// Maximum size of a value in bytes (`XATTR_SIZE_MAX`).
pub const VALUE_MAX: usize = 65_536;
/// Maximum length of a list of names in bytes (`XATTR_LIST_MAX`).
pub const LIST_MAX: usize = 65_536;

/// The prefix of the names that only privileged processes see.
pub const TRUSTED: &[u8] = b"trusted.";

/// Whether `setxattr` accepts an attribute that exists, and whether it accepts one that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepts {
    /// Whether the attribute is allowed to exist: `XATTR_CREATE` is not set.
    pub existing: bool,
    /// Whether the attribute is allowed not to exist: `XATTR_REPLACE` is not set.
    pub absent: bool,
}

impl Accepts {
    /// Checks that `setxattr` can set an attribute. `exists` is true if the attribute exists now (Linux 6.18
    /// `fs/xattr.c`, `simple_xattr_set`).
    ///
    /// # Errors
    /// `EEXIST` if the attribute exists and `existing` is false, `ENODATA` if it does not exist and `absent` is false.
    pub fn check(self, exists: bool) -> Result<(), Errno> {
        match (exists, self.existing, self.absent) {
            (true, false, _) => Err(Errno::EEXIST),
            (false, _, false) => Err(Errno::ENODATA),
            (true, true, _) | (false, _, true) => Ok(()),
        }
    }
}

/// The value of an attribute. It is shared with its readers, which copy it without a lock.
pub type Value = Shared<Vec<u8>>;

/// The attributes of an inode that has had at least one.
struct Store {
    values: Ordered<Vec<u8>, Value>,
    /// Length in bytes of the list of all names, including their NULs.
    listed: usize,
    /// Length in bytes of the names that only privileged processes see, including their NULs.
    hidden: usize,
    /// Inode space in bytes that the attributes use, which counts against the limit on inodes.
    space: u64,
}

/// The extended attributes of an inode; `None` until the first one is set.
pub struct Xattrs(Lock<Option<Box<Store>>>);

/// Returns the inode space in bytes that an attribute uses (`simple_xattr_space` of Linux 6.18).
#[must_use]
pub fn space_of(name: &[u8], value: &[u8]) -> u64 {
    40 + name.len() as u64 + value.len() as u64
}

impl Store {
    const fn new() -> Self {
        Self {
            values: Ordered::new(),
            listed: 0,
            hidden: 0,
            space: 0,
        }
    }

    /// Adds an attribute to the lengths and the inode space.
    fn count(&mut self, name: &[u8], value: &[u8]) {
        self.listed += name.len() + 1;
        if name.starts_with(TRUSTED) {
            self.hidden += name.len() + 1;
        }
        self.space += space_of(name, value);
    }

    /// Subtracts an attribute from the lengths and the inode space.
    fn uncount(&mut self, name: &[u8], value: &[u8]) {
        self.listed -= name.len() + 1;
        if name.starts_with(TRUSTED) {
            self.hidden -= name.len() + 1;
        }
        self.space -= space_of(name, value);
    }

    /// Returns the length in bytes of the list of the names that a process sees. `privileged` is true if it also sees
    /// the names with the prefix [`TRUSTED`].
    const fn list_length(&self, privileged: bool) -> usize {
        if privileged {
            self.listed
        } else {
            self.listed - self.hidden
        }
    }
}

impl Default for Xattrs {
    fn default() -> Self {
        Self(Lock::new(Rank::File, None))
    }
}

impl Xattrs {
    /// Installs the store `new` if there is none, otherwise returns `new`.
    fn install(&self, new: Box<Store>) -> Option<Box<Store>> {
        let mut store = self.0.lock();
        if store.is_some() {
            return Some(new);
        }
        *store = Some(new);
        None
    }

    /// Locks the attributes, after creating the store if there is none and reserving room for one more attribute.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn lock_with_room(&self) -> Result<LockGuard<'_, Option<Box<Store>>>, Errno> {
        if self.0.lock().is_none() {
            let new = Box::new(Store::new());
            // If another thread has installed a store in the meantime, drop this one after the lock is released.
            let _other = self.install(new);
        }
        Ok(lock_with_room(&self.0, |store| {
            &mut store.as_mut().expect("made above").values
        })?)
    }

    /// Sets an attribute. Returns the previous value, or `None` if the attribute did not exist.
    ///
    /// # Errors
    /// The errors of [`Accepts::check`], and `ENOMEM`.
    pub fn set(
        &self,
        name: Vec<u8>,
        value: Value,
        accepts: Accepts,
    ) -> Result<Option<Value>, Errno> {
        let mut locked = self.lock_with_room()?;
        let store = locked.as_mut().ok_or(Errno::ENOMEM)?;
        let old = store.values.get(&name).cloned();
        accepts.check(old.is_some())?;
        if let Some(old) = &old {
            store.uncount(&name, old);
        }
        store.count(&name, &value);
        // The store has room. The map keeps `name` only if the attribute is new.
        match store.values.get_mut(&name) {
            Some(place) => *place = value,
            None => drop(store.values.insert(name, value)?),
        }
        Ok(old)
    }

    /// Removes an attribute and returns its value.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub fn remove(&self, name: &Vec<u8>) -> Result<Value, Errno> {
        let mut locked = self.0.lock();
        let store = locked.as_mut().ok_or(Errno::ENODATA)?;
        let old = store.values.remove(name).ok_or(Errno::ENODATA)?;
        store.uncount(name, &old);
        Ok(old)
    }

    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub fn get(&self, name: &Vec<u8>) -> Result<Value, Errno> {
        let locked = self.0.lock();
        let store = locked.as_ref().ok_or(Errno::ENODATA)?;
        store.values.get(name).cloned().ok_or(Errno::ENODATA)
    }

    /// Returns the length in bytes of the list of the names that a process sees.
    #[must_use]
    pub fn list_length(&self, privileged: bool) -> usize {
        let locked = self.0.lock();
        locked
            .as_ref()
            .map_or(0, |store| store.list_length(privileged))
    }

    /// Returns the names that a process sees, in order, each followed by a NUL.
    ///
    /// # Errors
    /// `ERANGE` if the list is longer than `most` bytes, `ENOMEM`.
    pub fn list(&self, privileged: bool, most: usize) -> Result<Vec<u8>, Errno> {
        let mut list = Vec::new();
        // The names are listed in three parts: those before, with and after the prefix `trusted.`. Each element of
        // `parts` is the name at which a part starts. The second part is listed for privileged processes only.
        let mut parts: [Vec<u8>; 3] = Default::default();
        parts[1].try_push_all(TRUSTED).map_err(|_| Errno::ENOMEM)?;
        parts[2]
            .try_push_all(b"trusted/")
            .map_err(|_| Errno::ENOMEM)?;
        loop {
            let wanted = self.list_length(privileged);
            if wanted > most {
                return Err(Errno::ERANGE);
            }
            list.try_make_room(wanted).map_err(|_| Errno::ENOMEM)?;
            let locked = self.0.lock();
            let Some(store) = locked.as_ref() else {
                return Ok(list);
            };
            if store.list_length(privileged) > list.capacity() {
                continue;
            }
            for (number, from) in parts.iter().enumerate() {
                if number == 1 && !privileged {
                    continue;
                }
                let until = parts.get(number + 1);
                let names = store.values.iter_from(from).map(|(name, _)| name);
                for name in names.take_while(|name| until.is_none_or(|until| *name < until)) {
                    list.try_push_all(name).map_err(|_| Errno::ENOMEM)?;
                    list.try_push(0).map_err(|_| Errno::ENOMEM)?;
                }
            }
            return Ok(list);
        }
    }

    /// Returns the inode space in bytes that all attributes use.
    pub fn space(&mut self) -> u64 {
        self.0.get_mut().as_ref().map_or(0, |store| store.space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Accepts = Accepts {
        existing: true,
        absent: true,
    };

    fn set(xattrs: &Xattrs, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let value = Value::try_new(value.to_vec()).expect("memory");
        let old = xattrs.set(name.to_vec(), value, ANY).expect("memory");
        old.map(|old| old.to_vec())
    }

    #[test]
    fn flags_say_what_may_be_there() {
        for (existing, absent, exists, expected) in [
            (true, true, true, Ok(())),
            (true, true, false, Ok(())),
            (false, true, true, Err(Errno::EEXIST)),
            (false, true, false, Ok(())),
            (true, false, true, Ok(())),
            (true, false, false, Err(Errno::ENODATA)),
            (false, false, true, Err(Errno::EEXIST)),
            (false, false, false, Err(Errno::ENODATA)),
        ] {
            let accepts = Accepts { existing, absent };
            assert_eq!(accepts.check(exists), expected, "{accepts:?} {exists}");
        }
    }

    #[test]
    fn names_are_listed_in_order_and_trusted_ones_only_to_some() {
        let mut xattrs = Xattrs::default();
        assert_eq!(xattrs.list(true, 0), Ok(Vec::new()));
        assert_eq!(set(&xattrs, b"user.b", b"12"), None);
        assert_eq!(set(&xattrs, b"user.a", b""), None);
        assert_eq!(set(&xattrs, b"trusted.t", b"x"), None);
        assert_eq!(set(&xattrs, b"security.s", b"x"), None);
        let all = b"security.s\0trusted.t\0user.a\0user.b\0";
        let some = b"security.s\0user.a\0user.b\0";
        assert_eq!(xattrs.list(true, 100).as_deref(), Ok(&all[..]));
        assert_eq!(xattrs.list(false, some.len()).as_deref(), Ok(&some[..]));
        assert_eq!(xattrs.list(false, some.len() - 1), Err(Errno::ERANGE));
        assert_eq!(xattrs.list_length(true), all.len());
        assert_eq!(set(&xattrs, b"user.b", b"3"), Some(b"12".to_vec()));
        assert_eq!(xattrs.space(), 4 * 40 + 6 + 6 + 9 + 10 + 3);
        for name in ["user.b", "user.a", "trusted.t", "security.s"] {
            assert!(xattrs.remove(&name.as_bytes().to_vec()).is_ok());
        }
        assert_eq!(xattrs.space(), 0);
        assert_eq!(xattrs.list_length(true), 0);
        assert_eq!(xattrs.get(&b"user.a".to_vec()).err(), Some(Errno::ENODATA));
    }
}
