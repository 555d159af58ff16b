//! Directory entries. Each entry is a name in the directory tree and refers to an inode.

use crate::fs::{file_name::FileName, file_system::FileSystem, inode::Inode};
use alloc::{sync::Arc, vec::Vec};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::{OutOfMemory, TryPush};

/// Initial capacity in bytes of a path, so that most paths need one allocation.
const USUAL_PATH: usize = 64;

/// The position of an entry in the directory tree.
struct Place {
    /// The parent directory; `None` for a root, and for an entry that is not in the tree.
    parent: Option<Arc<Dentry>>,
    name: FileName,
    /// Whether the name was removed while the entry was in use.
    removed: bool,
}

/// A directory entry: a name in the directory tree, and the inode to which it refers.
///
/// A directory has a reference to each of its entries, and each entry has one to its directory. The removal of a name
/// breaks this reference cycle. [`Mounts::clear`](crate::fs::node::mounts::Mounts::clear) breaks all cycles of the
/// tree.
pub struct Dentry {
    /// The inode of the entry.
    pub inode: Arc<Inode>,
    place: Lock<Place>,
    /// The root of the file system that is mounted on this directory; `None` if there is none.
    mounted: Lock<Option<Arc<Dentry>>>,
}

impl Dentry {
    /// Creates an entry below `parent`.
    #[inline]
    #[must_use]
    pub fn new(parent: &Arc<Self>, name: &[u8], inode: Arc<Inode>) -> Self {
        Self::placed(Some(parent.clone()), name, inode)
    }

    /// Creates an entry without a parent: the root, whose name is empty, or the entry of a pipe, socket or anonymous
    /// inode, whose name is the text that `/proc/PID/fd` shows.
    #[must_use]
    pub fn detached(name: &[u8], inode: Arc<Inode>) -> Self {
        Self::placed(None, name, inode)
    }

    #[inline]
    fn placed(parent: Option<Arc<Self>>, name: &[u8], inode: Arc<Inode>) -> Self {
        let place = Place {
            parent,
            name: FileName::new(name),
            removed: false,
        };
        Self {
            inode,
            place: Lock::new(Rank::File, place),
            mounted: Lock::new(Rank::Mount, None),
        }
    }

    /// Returns the parent directory. An entry without a parent is its own parent.
    #[must_use]
    pub fn parent(self: &Arc<Self>) -> Arc<Self> {
        self.place
            .lock()
            .parent
            .clone()
            .unwrap_or_else(|| self.clone())
    }

    /// Returns the entry's name in its parent.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        self.place.lock().name.to_vec()
    }

    /// Returns whether the name of the entry was removed from its directory.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.place.lock().removed
    }

    /// Records that the name of the entry was removed from its directory.
    pub fn mark_removed(&self) {
        self.place.lock().removed = true;
    }

    /// Records that the entry was renamed to `name` in `parent`.
    pub fn move_to(&self, parent: &Arc<Self>, name: &[u8]) {
        // Drop the old parent after the lock is released, because this reference can be the last one.
        let old = {
            let mut place = self.place.lock();
            place.name = FileName::new(name);
            place.parent.replace(parent.clone())
        };
        drop(old);
    }

    /// Mounts the file system with root `root` on this directory.
    pub fn mount(&self, root: Arc<Self>) {
        *self.mounted.lock() = Some(root);
    }

    /// Unmounts the file system that is mounted on this directory, if any, and returns its root.
    pub fn unmount(&self) -> Option<Arc<Self>> {
        self.mounted.lock().take()
    }

    /// Unmounts the file system that is mounted on this directory, unless `keeps` returns `true` for its root, and
    /// returns that root. The lock is held while `keeps` runs, so that no path walk enters the mounted file system
    /// meanwhile.
    pub fn unmount_unless(&self, keeps: impl FnOnce(&Arc<Self>) -> bool) -> Option<Arc<Self>> {
        let mut mounted = self.mounted.lock();
        if mounted.as_ref().is_none_or(keeps) {
            return None;
        }
        mounted.take()
    }

    /// Detaches the root of an unmounted file system from the tree. It then has no parent, and its name is empty.
    pub fn detach(&self) {
        let above = {
            let mut place = self.place.lock();
            place.name = FileName::default();
            place.parent.take()
        };
        drop(above);
    }

    /// Crosses mounts: returns the root of the topmost file system that is mounted on this directory, or the entry
    /// itself if there is none.
    #[must_use]
    pub fn crossed(self: Arc<Self>) -> Arc<Self> {
        let mut here = self;
        loop {
            let root = here.mounted.lock().clone();
            // Another file system can be mounted on `root`.
            match root {
                Some(root) => here = root,
                None => return here,
            }
        }
    }

    /// Returns whether a file system is mounted on this directory.
    #[must_use]
    pub fn is_covered(&self) -> bool {
        self.mounted.lock().is_some()
    }

    /// Returns whether the entry is `other` or below it.
    #[must_use]
    pub fn is_within(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let mut here = self.clone();
        loop {
            if Arc::ptr_eq(&here, other) {
                return true;
            }
            let above = here.parent();
            if Arc::ptr_eq(&above, &here) {
                return false;
            }
            here = above;
        }
    }

    /// Returns the path from `root`, and whether the entry is `root` or below it. The path can be longer than
    /// `PATH_MAX`.
    ///
    /// For an entry that is not below `root`, returns the path from the root of the tree and `false`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn path_from(self: &Arc<Self>, root: &Arc<Self>) -> Result<(Vec<u8>, bool), OutOfMemory> {
        // The path is built from its end, with the bytes of each name reversed. Finally, the bytes of the whole path
        // are reversed.
        let mut path = Vec::new();
        path.try_make_room(USUAL_PATH)?;
        let mut here = self.clone();
        let mut reached = true;
        while !Arc::ptr_eq(&here, root) {
            let start = path.len();
            let above = {
                let place = here.place.lock();
                path.try_push_all(&place.name)?;
                place.parent.clone()
            };
            let Some(above) = above else {
                reached = false;
                if path.len() > start {
                    // The topmost entry is not in the tree and has a name. The path is this name.
                    path.drain(..start);
                    return Ok((path, false));
                }
                break;
            };
            path[start..].reverse();
            path.try_push(b'/')?;
            here = above;
        }
        if path.is_empty() {
            path.try_push(b'/')?;
        }
        path.reverse();
        Ok((path, reached))
    }

    /// Returns the topmost ancestor: the root of the tree, or of a detached file system. Returns the entry itself if it
    /// has no parent.
    #[must_use]
    pub fn top(self: &Arc<Self>) -> Arc<Self> {
        let mut here = self.clone();
        loop {
            let above = here.parent();
            if Arc::ptr_eq(&above, &here) {
                return here;
            }
            here = above;
        }
    }

    /// Returns the path from `root` as `/proc` prints it, with the suffix ` (deleted)` if the name was removed. For an
    /// entry that is not in the tree, returns its name instead of a path.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn shown_path(self: &Arc<Self>, root: &Arc<Self>) -> Result<Vec<u8>, OutOfMemory> {
        let own_name = self.name();
        let detached = Arc::ptr_eq(&self.parent(), self) && !own_name.is_empty();
        let mut path = if detached {
            own_name
        } else {
            self.path_from(root)?.0
        };
        if self.is_removed() {
            path.try_push_all(b" (deleted)")?;
        }
        Ok(path)
    }
}

impl AsRef<FileSystem> for Dentry {
    fn as_ref(&self) -> &FileSystem {
        &self.inode.file_system
    }
}

impl Drop for Dentry {
    /// Drops the ancestors iteratively. A program controls the depth of the tree, so a recursive drop of parents could
    /// overflow the kernel stack. This function does not consider mounts, because a file system is unmounted before its
    /// directory is dropped.
    fn drop(&mut self) {
        let mut above = self.place.get_mut().parent.take();
        while let Some(mut directory) = above.and_then(Arc::into_inner) {
            above = directory.place.get_mut().parent.take();
        }
    }
}
