//! The mount tree of the guest, and the file systems that are not mounted, such as those of pipes and sockets.

pub mod initrd;
mod mount;
mod unmount;

use crate::{
    changes::Changes,
    cpio::CpioArchive,
    fs::{
        FileTable, FsContext, Mounts,
        attributes::Moment,
        console::{Console, ConsoleStream},
        dentry::Dentry,
        disk_node::DiskNode,
        entries::Entries,
        file_system::{FileSystem, FileSystemKind},
        initrd::GeneratedRoots,
        inode::{Body, Inode},
        lower_tree::Lower,
        mounted::Files,
        namespace::Namespace,
        node::mounts::{Mount, MountTable},
        open_file::{File, OpenFile},
        permission::{Owner, Subject},
        regular::{Regular, Seals},
        vfs::Vfs,
        walk::{LastLink, Walker},
    },
    manifest::Manifest,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use memwright_linux_abi::{
    Memory,
    errno::Errno,
    host::{Channels, Clock},
};
use memwright_linux_base::{
    batch::Batch,
    short::Short,
    sync::{Lock, Rank},
};
use unmount::take_down;

/// The mount id of the first file system that is mounted on a directory. Smaller ids belong to the root and to file
/// systems that are not in the tree.
const FIRST_MOUNT: u32 = 21;

/// Maximum number of mounts, including the root (`fs.mount-max`, `sysctl_mount_max` of Linux 6.18, `fs/namespace.c`).
const MOST_MOUNTS: usize = 100_000;

impl Mounts<Dentry> {
    /// Creates a mount tree with an empty root directory, and the entries of the standard streams.
    #[must_use]
    pub fn new(
        memory: &Arc<Memory>,
        manifest: &Manifest,
        channels: &'static dyn Channels,
        clock: &'static dyn Clock,
    ) -> Self {
        let now = Moment {
            seconds: manifest.epoch as i64,
            nanoseconds: 0,
        };
        let file_system = |kind, minor| Arc::new(FileSystem::new(kind, minor));
        // An inode uses at most one page in addition to its contents, so this limit lets the inodes of the root file
        // system use at most a quarter of memory.
        let most_nodes = memory.frames().total() / 4;
        let mut root_files = FileSystem::new(FileSystemKind::Tmpfs, 2).with_most_nodes(most_nodes);
        root_files.lower = manifest
            .lower
            .then(|| Lower::new(memory.clone(), channels, clock, now));
        let root_files = Arc::new(root_files);
        let anonymous = file_system(FileSystemKind::Anonymous, 3);
        let pipes = file_system(FileSystemKind::Pipe, 4);
        let memory_files = file_system(FileSystemKind::Memory, 1);
        let body = match root_files.lower {
            Some(_) => Body::Directory(Lock::new(Rank::File, Entries::partial())),
            None => Body::directory(),
        };
        let root = Inode::new(&root_files, body, 0o755, Owner::ROOT, now);
        if let Some(lower) = &root_files.lower {
            // An empty path needs no memory, so recording it cannot fail.
            let _ = lower.note(root.number, Box::default());
        }
        let console = Arc::new(Console::new());
        let streams = core::array::from_fn(|number| {
            let stream = ConsoleStream::new(&console, number, manifest.streams[number]);
            let is_terminal = stream.is_terminal();
            let (home, permissions) = if is_terminal {
                (&root_files, 0o620)
            } else {
                (&pipes, 0o600)
            };
            let inode = Inode::new(home, Body::Console(stream), permissions, Owner::ROOT, now);
            let name = if is_terminal {
                Short::of(format_args!("/dev/console"))
            } else {
                pipe_name(inode.number)
            };
            Arc::new(Dentry::detached(name.as_bytes(), Arc::new(inode)))
        });
        let root = Arc::new(Dentry::detached(b"", Arc::new(root)));
        Self {
            mounts: Lock::new(Rank::File, MountTable::new(&root)),
            next_mount: AtomicU32::new(FIRST_MOUNT),
            changes: Changes::default(),
            detached: Lock::new(Rank::Mount, Vec::new()),
            idle: Arc::new(AtomicBool::new(false)),
            root,
            streams,
            names: Namespace::new(),
            memory: memory.clone(),
            root_files,
            pipes,
            socket_files: file_system(FileSystemKind::Socket, 9),
            memory_files,
            huge_files: file_system(FileSystemKind::Hugetlb, 10),
            anonymous,
        }
    }

    /// Returns a path walker with root's rights and without a caller. The kernel uses it to populate the tree at boot.
    #[must_use]
    pub fn boot_walker(&self) -> Walker<'_> {
        Walker {
            caller: None,
            subject: Subject::ROOT,
            root: &self.root,
        }
    }

    /// Mounts a new file system of type `kind` on the directory `at`. Its root has the contents `body`. Returns the
    /// root.
    pub fn mount(
        &self,
        at: &Arc<Dentry>,
        kind: FileSystemKind,
        body: Body,
        permissions: u32,
        now: Moment,
    ) -> Arc<Dentry> {
        let file_system = Arc::new(self.next_file_system(kind));
        let inode = Inode::new(&file_system, body, permissions, Owner::ROOT, now);
        let root = covering(at, inode);
        at.mount(root.clone());
        let mount = Mount {
            root: root.clone(),
            at: Some(at.clone()),
        };
        self.mounts.lock().insert(file_system.mount, mount);
        root
    }

    /// Creates a file system with the next mount id.
    fn next_file_system(&self, kind: FileSystemKind) -> FileSystem {
        let minor = self.next_mount.fetch_add(1, Ordering::Relaxed);
        FileSystem::new(kind, minor)
    }

    /// Appends to `batch`, until it is full, the root of each mounted file system and the mount id of its parent.
    /// Starts at the mount id `from`, and proceeds in the order of mounting.
    pub fn note(&self, from: u64, batch: &mut Batch<(Arc<Dentry>, u64)>) {
        for mount in self
            .mounts
            .lock()
            .mounts
            .range(from..)
            .map(|(_, mount)| mount)
        {
            if !batch.push((mount.root.clone(), mount.upper())) {
                return;
            }
        }
    }

    /// Returns whether `entry` is the root of a mounted file system.
    #[must_use]
    pub fn is_root(&self, entry: &Arc<Dentry>) -> bool {
        self.place_of(entry).is_ok()
    }

    /// Returns the root of the file system of type `kind` that was mounted first, or `None` if none is mounted.
    #[must_use]
    pub fn root_of(&self, kind: FileSystemKind) -> Option<Arc<Dentry>> {
        let mounts = self.mounts.lock();
        let mut roots = mounts.mounts.values().map(|mount| &mount.root);
        roots
            .find(|root| root.inode.file_system.kind == kind)
            .cloned()
    }

    /// Creates an empty regular file without a name in `file_system`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new_regular(
        &self,
        file_system: &Arc<FileSystem>,
        permissions: u32,
        owner: Owner,
        now: Moment,
    ) -> Result<Inode, Errno> {
        let files = file_system.mounted.as_ref().map(|mounted| &mounted.files);
        let regular = match files {
            Some(Files::Tmpfs(tmpfs)) => Regular::of_mount(&self.memory, tmpfs)?,
            Some(Files::Hugetlbfs(hugetlbfs)) => {
                Regular::huge(&self.memory, Seals::SEAL, hugetlbfs.subpool.clone())
            }
            None => Regular::new(&self.memory, Seals::SEAL)?,
        };
        let body = Body::Regular(regular);
        Ok(Inode::new(file_system, body, permissions, owner, now))
    }

    /// Creates an empty file in the root file system, for a file that is created at boot. Its pages are never swapped
    /// out: on a Linux system, such a file is usually on a disk, and reclaim drops its clean pages without using swap.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new_system_file(&self, permissions: u32, now: Moment) -> Result<Inode, Errno> {
        let body = Body::Regular(Regular::staying(&self.memory)?);
        let (home, owner) = (&self.root_files, Owner::ROOT);
        Ok(Inode::new(home, body, permissions, owner, now))
    }

    /// Creates an open file with an anonymous inode, for `eventfd`, `pidfd_open`, `userfaultfd` and similar calls.
    /// `/proc/PID/fd` shows `anon_inode:` followed by `name`, such as `[eventfd]`.
    #[must_use]
    pub fn open_anonymous(
        &self,
        vfs: &'static Vfs,
        name: &str,
        flags: u32,
        file: Box<dyn File>,
    ) -> Arc<OpenFile> {
        let now = vfs.now();
        let inode = Inode::new(&self.anonymous, Body::Anonymous, 0o600, Owner::ROOT, now);
        let path = Short::of(format_args!("anon_inode:{name}"));
        let entry = Arc::new(Dentry::detached(path.as_bytes(), Arc::new(inode)));
        Arc::new(OpenFile::new(Some(vfs), entry, flags, file))
    }

    /// Populates the tree with the files of the initrd and with the files and mounts that every guest has.
    ///
    /// # Errors
    /// `ENOSPC` if the files do not fit into memory.
    pub fn fill(
        &self,
        vfs: &Vfs,
        archive: CpioArchive<'_>,
        disks: &[Arc<dyn DiskNode>],
        generated: GeneratedRoots,
    ) -> Result<(), Errno> {
        crate::fs::initrd::fill(self, vfs, archive, disks, generated)
    }

    /// Returns the first standard stream that is a terminal, or `None` if none is.
    #[must_use]
    pub fn terminal(&self) -> Option<ConsoleStream> {
        self.streams
            .iter()
            .find_map(|entry| match &entry.inode.body {
                Body::Console(stream) if stream.is_terminal() => Some(stream.clone()),
                _ => None,
            })
    }

    /// Creates the descriptors of the first program (standard input, output and error), and its root and working
    /// directory.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn first_files(
        &self,
        vfs: &'static Vfs,
    ) -> Result<(Arc<FileTable>, Arc<FsContext>), Errno> {
        let table = FileTable::new();
        for entry in &self.streams {
            let Body::Console(stream) = &entry.inode.body else {
                continue;
            };
            let file = Box::new(stream.clone());
            let console = self
                .boot_walker()
                .resolve(&self.root, b"/dev/console", LastLink::Follow);
            // Open a terminal through `/dev/console`, because `ttyname` compares the inode of the descriptor with the
            // inode of that file.
            let entry = match console {
                Ok(console) if stream.is_terminal() => console,
                Ok(_) | Err(_) => entry.clone(),
            };
            let open = OpenFile::new(Some(vfs), entry, stream.flags(), file);
            table.add(0, usize::MAX, Arc::new(open), false)?;
        }
        Ok((Arc::new(table), Arc::new(FsContext::new(&self.root))))
    }

    /// Returns a name and the number of inodes for each file system that is not mounted. Does not count the inodes of
    /// the standard streams. Omits file systems without inodes.
    pub fn nameless_nodes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let home = |entry: &Arc<Dentry>| entry.inode.file_system.device == self.pipes.device;
        let streams = self.streams.iter().filter(|entry| home(entry)).count() as u64;
        [
            ("pipes", self.pipes.nodes() - streams),
            ("socket nodes", self.socket_files.nodes()),
            ("memory files", self.memory_files.nodes()),
            ("memory files of huge pages", self.huge_files.nodes()),
            ("anonymous nodes", self.anonymous.nodes()),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }

    /// Tears down all mounted and detached file systems. This frees the frames of every file that is not open.
    #[expect(clippy::disallowed_methods, reason = "no program runs any more")]
    pub fn clear(&self) {
        let mounts = core::mem::take(&mut *self.mounts.lock());
        let mut pending: Vec<_> = mounts
            .mounts
            .into_values()
            .map(|mount| mount.root)
            .collect();
        pending.append(&mut self.detached.lock());
        pending.push(self.root.clone());
        pending.iter().rev().for_each(take_down);
        self.root_files.lower.iter().for_each(Lower::clear);
    }
}

/// Creates the root entry of a file system that is to be mounted on the directory `at`. The entry has the same name and
/// parent as that directory.
fn covering(at: &Arc<Dentry>, inode: Inode) -> Arc<Dentry> {
    Arc::new(Dentry::new(&at.parent(), &at.name(), Arc::new(inode)))
}

/// Returns the name that the anonymous pipe with inode number `number` has in `/proc/PID/fd`.
#[must_use]
pub fn pipe_name(number: u64) -> Short {
    Short::of(format_args!("pipe:[{number}]"))
}
