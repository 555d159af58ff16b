//! `mount`: mounts a file system, or changes the options of a mounted one.

use crate::fs::{
    attributes::Moment,
    dentry::Dentry,
    file_system::FileSystemKind,
    inode::{Body, Inode},
    mounted::{Files, Mounted},
    mounts::{MOST_MOUNTS, Mount, covering},
    node::mounts::Mounts,
    tmpfs::MountFlags,
};
use alloc::sync::Arc;
use memwright_linux_abi::errno::Errno;

impl Mounts<Dentry> {
    /// Mounts the file system `mounted` on the directory `at`.
    ///
    /// # Errors
    /// `ENOTDIR`; `EINVAL` for a directory of `/proc` or `/sys`, because its entry is created by each lookup; `EBUSY`
    /// for the root of the tree; `ENOENT` if the directory was removed or its file system detached; `ENOSPC` if there
    /// are too many mounts (`fs.mount-max`).
    pub fn mount_files(
        &self,
        at: &Arc<Dentry>,
        mounted: Mounted,
        now: Moment,
    ) -> Result<(), Errno> {
        if !at.inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let Body::Directory(_) = &at.inode.body else {
            return Err(Errno::EINVAL);
        };
        if Arc::ptr_eq(at, &self.root) {
            return Err(Errno::EBUSY);
        }
        let kind = match &mounted.files {
            Files::Tmpfs(_) => FileSystemKind::Tmpfs,
            Files::Hugetlbfs(_) => FileSystemKind::Hugetlb,
        };
        let (permissions, owner) = mounted.root();
        let file_system = self.next_file_system(kind);
        let file_system = Arc::new(file_system.with_mounted(mounted).with_idle(&self.idle));
        let inode = Inode::new(&file_system, Body::directory(), permissions, owner, now);
        let root = covering(at, inode);
        self.names.cover(at, &root, |covered| {
            let mut mounts = self.mounts.lock();
            let number = covered.inode.file_system.mount;
            if !mounts.mounts.contains_key(&number) {
                return Err(Errno::ENOENT);
            }
            if mounts.mounts.len() >= MOST_MOUNTS {
                return Err(Errno::ENOSPC);
            }
            let mount = Mount {
                root: root.clone(),
                at: Some(covered.clone()),
            };
            mounts.insert(file_system.mount, mount);
            Ok(())
        })
    }

    /// Changes the options of the file system whose root is `root` (Linux 7.2 `fs/namespace.c`, `do_remount`).
    ///
    /// # Errors
    /// `EINVAL` for invalid options, or if `root` is not the root of a mounted file system; `EBUSY` for a file system
    /// that the kernel mounted.
    pub fn remount(
        &self,
        root: &Arc<Dentry>,
        text: &[u8],
        decode: impl FnOnce(MountFlags) -> Result<MountFlags, Errno>,
    ) -> Result<(), Errno> {
        let _guard = self.names.keep();
        self.place_of(root)?;
        let file_system = &root.inode.file_system;
        let mounted = file_system.mounted.as_ref().ok_or(Errno::EBUSY)?;
        let flags = decode(mounted.flags())?;
        let nodes = mounted.change(&self.memory, text, file_system.nodes_used())?;
        file_system.set_most_nodes(nodes);
        mounted.set_flags(flags);
        Ok(())
    }

    /// Returns the directory on which the file system with the root `root` is mounted; `None` for the root of the tree.
    ///
    /// # Errors
    /// `EINVAL` if `root` is not the root of a mounted file system.
    pub(super) fn place_of(&self, root: &Arc<Dentry>) -> Result<Option<Arc<Dentry>>, Errno> {
        let mounts = self.mounts.lock();
        let found = mounts.mounts.get(&root.inode.file_system.mount);
        let found = found.filter(|mount| Arc::ptr_eq(&mount.root, root));
        Ok(found.ok_or(Errno::EINVAL)?.at.clone())
    }
}
