//! A name in the tree, and the node it leads to.

use super::inode::Inode;
use crate::sync::{Lock, Rank};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use memwright_table::{OutOfMemory, TryPush};

/// Where a name stands.
struct Place {
    /// The directory above; none for the root and for what has no path.
    parent: Option<Arc<Dentry>>,
    name: Box<[u8]>,
    /// The name was removed while somebody still used it.
    removed: bool,
}

/// A name in the tree.
///
/// A directory holds its entries, and each entry its directory: the ring is cut when a name is
/// removed, and for all at once by [`Mounts::clear`](super::mounts::Mounts::clear).
pub struct Dentry {
    /// The node.
    pub inode: Arc<Inode>,
    place: Lock<Place>,
    /// The root of the file system that covers this directory.
    mounted: Lock<Option<Arc<Dentry>>>,
}

impl Dentry {
    /// A name below `parent`.
    #[must_use]
    pub fn new(parent: &Arc<Self>, name: &[u8], inode: Arc<Inode>) -> Self {
        Self::placed(Some(parent.clone()), name, inode)
    }

    /// A name without a directory: the root with an empty name; pipes and their like with the
    /// text that `/proc/PID/fd` shows.
    #[must_use]
    pub fn detached(name: &[u8], inode: Arc<Inode>) -> Self {
        Self::placed(None, name, inode)
    }

    fn placed(parent: Option<Arc<Self>>, name: &[u8], inode: Arc<Inode>) -> Self {
        let place = Place {
            parent,
            name: name.into(),
            removed: false,
        };
        Self {
            inode,
            place: Lock::new(Rank::File, place),
            mounted: Lock::new(Rank::Mount, None),
        }
    }

    /// The directory above; the root is above itself.
    #[must_use]
    pub fn parent(self: &Arc<Self>) -> Arc<Self> {
        self.place
            .lock()
            .parent
            .clone()
            .unwrap_or_else(|| self.clone())
    }

    /// Its name in the directory above.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        self.place.lock().name.to_vec()
    }

    /// Whether the name was removed.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.place.lock().removed
    }

    /// Records that the name was removed.
    pub fn mark_removed(&self) {
        self.place.lock().removed = true;
    }

    /// Records that the name moved.
    pub fn move_to(&self, parent: &Arc<Self>, name: &[u8]) {
        // The old parent is dropped behind the lock: it may be the last to know it.
        let old = {
            let mut place = self.place.lock();
            place.name = name.into();
            place.parent.replace(parent.clone())
        };
        drop(old);
    }

    /// Covers this directory by the root of another file system, which takes its place.
    pub fn mount(&self, root: Arc<Self>) {
        *self.mounted.lock() = Some(root);
    }

    /// Uncovers it.
    pub fn unmount(&self) -> Option<Arc<Self>> {
        self.mounted.lock().take()
    }

    /// Uncovers it unless `keeps` says of the root that covers it that it stays: nobody enters meanwhile.
    pub fn unmount_unless(&self, keeps: impl FnOnce(&Arc<Self>) -> bool) -> Option<Arc<Self>> {
        let mut mounted = self.mounted.lock();
        if mounted.as_ref().is_none_or(keeps) {
            return None;
        }
        mounted.take()
    }

    /// Takes the root of a file system, which is no more in its place, out of the tree: nothing is above it.
    pub fn detach(&self) {
        let above = {
            let mut place = self.place.lock();
            place.name = Box::default();
            place.parent.take()
        };
        drop(above);
    }

    /// What stands here: the root of the file system that was mounted last, or the name itself.
    #[must_use]
    pub fn crossed(self: Arc<Self>) -> Arc<Self> {
        let mut here = self;
        loop {
            let root = here.mounted.lock().clone();
            // Another may cover the root in turn.
            match root {
                Some(root) => here = root,
                None => return here,
            }
        }
    }

    /// Whether a file system covers this directory.
    #[must_use]
    pub fn is_covered(&self) -> bool {
        self.mounted.lock().is_some()
    }

    /// Whether it is `other`, or lies below it.
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

    /// The path from `root`, and whether it leads there. Directories may lie in each other as deep as a program likes.
    ///
    /// A name outside of `root` gives the path from the real root and `false`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn path_from(self: &Arc<Self>, root: &Arc<Self>) -> Result<(Vec<u8>, bool), OutOfMemory> {
        // From its end to its beginning, each byte: turned round in the end.
        let mut path = Vec::new();
        let mut here = self.clone();
        let mut reached = true;
        while !Arc::ptr_eq(&here, root) {
            let above = here.parent();
            let is_top = Arc::ptr_eq(&above, &here);
            let start = path.len();
            path.try_push_all(&here.place.lock().name)?;
            if is_top {
                reached = false;
                if path.len() > start {
                    // It has a name, but no place in the tree.
                    path.drain(..start);
                    return Ok((path, false));
                }
                break;
            }
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

    /// The highest directory above it: the root of the tree, or itself if it has no path.
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

    /// The path as `/proc` shows it, with a mark if the name was removed.
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

impl Drop for Dentry {
    /// Gives up the directories above one after another: a program decides how deep they lie in each other, so that none
    /// may be dropped within the drop of another. What covers a directory is taken off before the directory goes.
    fn drop(&mut self) {
        let mut above = self.place.get_mut().parent.take();
        while let Some(mut directory) = above.and_then(Arc::into_inner) {
            above = directory.place.get_mut().parent.take();
        }
    }
}
