//! Futex keys, which identify a word of memory.

use super::BUCKETS;
use alloc::sync::Arc;
use memwright::{Rights, object::Object};
use memwright_linux_abi::{M, Space, errno::Errno};
use memwright_linux_tasks::process::{FutexKey, Scope};
use memwright_linux_vfs::user::check_range;
use memwright_table::{PAGE_SIZE, VirtAddr};

/// Returns the number of the bucket that contains the waiters of `key`.
pub(super) fn bucket_of(key: FutexKey) -> u32 {
    let (identity, place) = match key {
        FutexKey::Private { space, address } | FutexKey::Anonymous { space, address } => {
            (space, address)
        }
        FutexKey::Object { object, position } => (object, position),
    };
    // Drop the low bits, which are equal in most keys, because words are aligned to 4 bytes and an identity is the
    // address of a large structure.
    let mixed = (place >> 2) ^ (identity as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let spread = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (spread % BUCKETS as u64) as u32
}

/// The key of a word. For a [`FutexKey::Object`], `object` keeps the object alive. For other keys, it is `None`.
pub(super) struct Found {
    pub(super) key: FutexKey,
    pub(super) object: Option<Arc<dyn Object<M>>>,
}

/// Returns the key of the word at `address` (`get_futex_key` of Linux 7.2, `kernel/futex/core.c`). `write` states
/// whether a call with a shared scope will change the word.
///
/// # Errors
/// `EINVAL` for an address that is not a multiple of 4, `EFAULT` for an address outside user memory.
pub(super) fn find(
    space: &Arc<Space>,
    address: u64,
    scope: Scope,
    write: bool,
) -> Result<Found, Errno> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    check_range(address, 4)?;
    let identity = Arc::as_ptr(space).cast::<()>() as usize;
    match scope {
        Scope::Private => Ok(Found {
            key: FutexKey::Private {
                space: identity,
                address,
            },
            object: None,
        }),
        Scope::Shared => shared(space, identity, address, write),
    }
}

#[cold]
fn shared(space: &Space, identity: usize, address: u64, write: bool) -> Result<Found, Errno> {
    let at = VirtAddr::new(address);
    let found = space.find(at, |area| {
        let page = at.page();
        if page < area.start() || !area.rights().contains(Rights::READ) {
            return None;
        }
        let writable = area.rights().contains(Rights::WRITE);
        if write && !writable {
            return None;
        }
        // A word beyond the end of the object has no key, because there is no page for it.
        let missing = |object: &Arc<dyn Object<M>>| !object.contains(area.offset_of(page));
        if area.object().is_some_and(missing) {
            return None;
        }
        match area.object() {
            // A writable private page is anonymous, or becomes anonymous when it is written.
            Some(object) if area.is_shared() || !writable => {
                let object = object.clone();
                let identity = core::ptr::from_ref(object.mappings()).cast::<()>() as usize;
                let position = area.offset_of(page) * PAGE_SIZE as u64 + at.offset() as u64;
                let key = FutexKey::Object {
                    object: identity,
                    position,
                };
                Some(Found {
                    key,
                    object: Some(object),
                })
            }
            Some(_) => Some(anonymous(identity, address)),
            // As on Linux, a word of anonymous memory in an area that is not writable has no key, because no thread can
            // change the word to end the wait.
            None => writable.then(|| anonymous(identity, address)),
        }
    });
    found.flatten().ok_or(Errno::EFAULT)
}

fn anonymous(space: usize, address: u64) -> Found {
    Found {
        key: FutexKey::Anonymous { space, address },
        object: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, FutexKey, bucket_of};

    #[test]
    fn keys_are_equal_for_the_same_word_only() {
        let (space, address) = (0x1000, 0x7000_0000);
        let private = FutexKey::Private { space, address };
        let anonymous = FutexKey::Anonymous { space, address };
        assert_eq!(private, FutexKey::Private { space, address });
        assert_ne!(private, anonymous);
        assert_ne!(
            private,
            FutexKey::Private {
                space,
                address: address + 4
            }
        );
        assert_ne!(
            private,
            FutexKey::Private {
                space: 0x2000,
                address
            }
        );
    }

    #[test]
    fn neighbouring_words_spread_over_the_buckets() {
        let mut used = [0u32; BUCKETS];
        for word in 0..BUCKETS as u64 {
            let key = FutexKey::Private {
                space: 0xffff_8000_0010_0000,
                address: 0x7fff_0000_0000 + word * 4,
            };
            used[bucket_of(key) as usize] += 1;
        }
        assert!(used.iter().all(|&count| count <= 4));
    }
}
