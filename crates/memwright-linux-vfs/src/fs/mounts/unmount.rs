//! `umount`: removes an unused file system, or detaches a file system in use, which is freed after its last use.

use crate::fs::{dentry::Dentry, inode::Body, node::mounts::Mounts, socket::Registry};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::lock_with_room_for;
use memwright_table::{OutOfMemory, TryPush};

/// Number of references to the root of an unused file system: those of the mount table, the directory on which it is
/// mounted, and the caller.
const KNOWN: usize = 3;

impl Mounts<Dentry> {
    /// Unmounts the file system whose root is `root`, and frees its files.
    ///
    /// # Errors
    /// `EINVAL` if `root` is not the root of a mount; `EBUSY` if the file system is in use or the kernel mounted it.
    pub fn unmount(&self, sockets: &Registry, root: Arc<Dentry>) -> Result<(), Errno> {
        let at = self.place_of_mounted(&root)?;
        let has_socket = || is_bound(sockets, &root);
        let guard = self.names.uncover(&at, &root, KNOWN, has_socket)?;
        let listed = self.mounts.lock().remove(root.inode.file_system.mount);
        drop(guard);
        drop(listed);
        take_down(&root);
        drop(root);
        Ok(())
    }

    /// Detaches the file system whose root is `root`, and the file systems mounted below it, from the tree, even if
    /// they are in use. Each is freed after its last use (Linux 7.2 `fs/namespace.c`, `umount_tree`).
    ///
    /// # Errors
    /// `EINVAL` if `root` is not the root of a mount; `EBUSY` if the kernel mounted the file system; `ENOMEM`.
    pub fn detach(&self, sockets: &Registry, root: Arc<Dentry>) -> Result<(), Errno> {
        self.place_of_mounted(&root)?;
        let guard = self.names.keep();
        let numbers = self.with_those_within(root.inode.file_system.mount)?;
        drop(lock_with_room_for(&self.detached, numbers.len(), |list| {
            list
        })?);
        for number in numbers {
            let Some(mount) = self.mounts.lock().remove(number) else {
                continue;
            };
            drop(mount.at.and_then(|at| at.unmount()));
            mount.root.detach();
            mount.root.inode.file_system.detach();
            #[expect(clippy::disallowed_methods, reason = "there is room while names stay")]
            self.detached.lock().push(mount.root);
        }
        self.idle.store(true, Ordering::SeqCst);
        drop(guard);
        drop(root);
        self.reap(sockets);
        Ok(())
    }

    /// Returns the id of a mount and the ids of all mounts below it, parents before children.
    fn with_those_within(&self, mount: u64) -> Result<Vec<u64>, OutOfMemory> {
        let mut numbers = Vec::new();
        numbers.try_push(mount)?;
        let mounts = self.mounts.lock();
        let mut next = 0;
        while let Some(&number) = numbers.get(next) {
            next += 1;
            for number in mounts.within(number) {
                numbers.try_push(number)?;
            }
        }
        Ok(numbers)
    }

    /// Frees the detached file systems that have no users. Called after a file or directory was released. Does nothing
    /// unless `idle` is set, because only then can a detached file system have lost its last user since the last call.
    pub fn reap(&self, sockets: &Registry) {
        if !self.idle.load(Ordering::Relaxed) || !self.idle.swap(false, Ordering::SeqCst) {
            return;
        }
        let mut place = 0;
        while let Some(root) = self.next_abandoned(sockets, &mut place) {
            take_down(&root);
        }
    }

    /// Finds the first unused file system at or after index `place` in the list of detached roots. Removes its root
    /// from the list and returns it.
    fn next_abandoned(&self, sockets: &Registry, place: &mut usize) -> Option<Arc<Dentry>> {
        let guard = self.names.keep();
        let mut detached = self.detached.lock();
        let goes = |root: &Arc<Dentry>| {
            if root.inode.file_system.is_used() {
                return false;
            }
            let goes = !is_bound(sockets, root) && self.names.is_abandoned(&guard, root);
            if !goes {
                // A path walk or a bound socket still uses the file system. The end of that use does not set `idle`, so
                // set it for the next call.
                self.idle.store(true, Ordering::SeqCst);
            }
            goes
        };
        let found = detached.iter().skip(*place).position(goes)?;
        *place += found;
        Some(detached.remove(*place))
    }

    fn place_of_mounted(&self, root: &Arc<Dentry>) -> Result<Arc<Dentry>, Errno> {
        let place = self.place_of(root)?;
        let at = place.filter(|_| root.inode.file_system.mounted.is_some());
        at.ok_or(Errno::EBUSY)
    }
}

/// Returns whether a socket is bound to an inode of the file system whose root is `root`.
fn is_bound(sockets: &Registry, root: &Dentry) -> bool {
    let device = root.inode.file_system.device;
    sockets.has_node_of(device.encode())
}

/// Removes all entries in and below the directory `root`. This breaks the reference cycles between entries and their
/// directories. The walk descends into the first remaining entry and ascends to the parent, so that it needs no memory
/// that grows with the tree.
pub(super) fn take_down(root: &Arc<Dentry>) {
    let mut here = root.clone();
    loop {
        here.unmount();
        let below = match &here.inode.body {
            Body::Directory(entries) => entries.lock().take_first(),
            Body::Regular(_)
            | Body::Symlink(_)
            | Body::Character(_)
            | Body::Block(_)
            | Body::Fifo(_)
            | Body::Console(_)
            | Body::Socket
            | Body::Anonymous
            | Body::Generated(_) => None,
        };
        here = match below {
            Some(below) => below,
            None if Arc::ptr_eq(&here, root) => return,
            None => here.parent(),
        };
    }
}
