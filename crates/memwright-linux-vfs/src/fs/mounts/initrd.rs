//! Populates the tree at boot with the files of the initrd and the files that every guest has.

use crate::{
    cpio::{CpioArchive, CpioEntry},
    fs::{
        attributes::Moment,
        dentry::Dentry,
        device::Device,
        disk_node::DiskNode,
        file_system::FileSystemKind,
        generated::GeneratedNode,
        inode::{Body, Inode},
        node::mounts::Mounts,
        permission::{Owner, Subject},
        tree::{Change, Removal},
        vfs::Vfs,
        walk::{Last, LastLink},
    },
    manifest::CONTROL_FOLDER,
};
use alloc::boxed::Box;
use alloc::{collections::BTreeMap, sync::Arc};
use linux_raw_sys::general as raw;
use memwright_linux_abi::errno::Errno;

/// Directories that every guest has, with their permissions.
const DIRECTORIES: &[(&[u8], u32)] = &[
    (b"/bin", 0o755),
    (b"/dev", 0o755),
    (b"/etc", 0o755),
    (b"/proc", 0o555),
    (b"/root", 0o700),
    (b"/sys", 0o555),
    (b"/tmp", 0o1777),
    (b"/usr", 0o755),
    (b"/usr/bin", 0o755),
    (b"/var", 0o755),
    (b"/var/tmp", 0o1777),
];

/// Files that every guest has, unless the archive contains files with these names.
const FILES: &[(&[u8], &[u8])] = &[
    (
        b"/etc/passwd",
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    (b"/etc/group", b"root:x:0:\nnogroup:x:65534:\n"),
    (b"/etc/hostname", b"memwright\n"),
    (b"/etc/hosts", b"127.0.0.1\tlocalhost memwright\n"),
    (b"/etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files\n"),
];

/// Device nodes in `/dev`, with their permissions.
const DEVICES: &[(&[u8], Device, u32)] = &[
    (b"null", Device::Null, 0o666),
    (b"zero", Device::Zero, 0o666),
    (b"full", Device::Full, 0o666),
    (b"random", Device::Random, 0o666),
    (b"urandom", Device::Urandom, 0o666),
    (b"userfaultfd", Device::Userfaultfd, 0o600),
    (b"console", Device::Console, 0o600),
    (b"tty", Device::Terminal, 0o666),
];

/// Symbolic links in `/dev`.
const DEVICE_LINKS: &[(&[u8], &[u8])] = &[
    (b"fd", b"/proc/self/fd"),
    (b"stdin", b"/proc/self/fd/0"),
    (b"stdout", b"/proc/self/fd/1"),
    (b"stderr", b"/proc/self/fd/2"),
];

/// Returns whether the archive has a symbolic link at the absolute path `path`.
fn brings_link(mut archive: CpioArchive<'_>, path: &[u8]) -> bool {
    archive.any(|entry| {
        let name = entry.name.strip_prefix(b"./").unwrap_or(entry.name);
        entry.mode & raw::S_IFMT == raw::S_IFLNK && path.strip_prefix(b"/") == Some(name)
    })
}

/// The directories of `/sys` above the cgroup file system, and the root of the cgroup file system.
pub struct CgroupNodes {
    /// The node of `/sys/fs`.
    pub above: Box<dyn GeneratedNode>,
    /// The node of `/sys/fs/cgroup`, on which the cgroup file system is mounted.
    pub mount_point: Box<dyn GeneratedNode>,
    /// The node of the root of the cgroup file system.
    pub root: Box<dyn GeneratedNode>,
}

/// The nodes of the file systems whose contents are generated.
pub struct GeneratedRoots {
    /// The root of `/proc`.
    pub proc: Box<dyn GeneratedNode>,
    /// The root of `/sys`.
    pub sys: Box<dyn GeneratedNode>,
    /// The nodes of the cgroup file system.
    pub cgroups: CgroupNodes,
}

/// Populates an empty tree. If the archive has several entries with the same name, the last one replaces the others.
///
/// # Errors
/// `ENOSPC` if the files do not fit into memory.
pub fn fill(
    mounts: &Mounts<Dentry>,
    vfs: &Vfs,
    archive: CpioArchive<'_>,
    disks: &[Arc<dyn DiskNode>],
    generated: GeneratedRoots,
) -> Result<(), Errno> {
    let now = Moment {
        seconds: vfs.epoch as i64,
        nanoseconds: 0,
    };
    let filler = Filler {
        vfs,
        mounts,
        change: Change {
            subject: Subject::ROOT,
            now,
        },
    };
    for &(path, permissions) in DIRECTORIES {
        // The archive can have a symbolic link at this path, for example if `/usr` is merged. Then no directory is
        // created.
        if !brings_link(archive, path) {
            filler.directory(path, permissions)?;
        }
    }
    filler.archive(archive)?;
    for &(path, text) in FILES {
        if mounts
            .boot_walker()
            .resolve(&mounts.root, path, LastLink::Follow)
            .is_err()
        {
            filler.file(path, 0o644, now, text)?;
        }
    }
    filler.devices(disks)?;
    let mount = |path: &[u8], kind, node| -> Result<Arc<Dentry>, Errno> {
        let at = mounts
            .boot_walker()
            .resolve(&mounts.root, path, LastLink::Follow)?;
        Ok(mounts.mount(&at, kind, Body::Generated(node), 0o555, now))
    };
    mount(b"/proc", FileSystemKind::Proc, generated.proc)?;
    let system = mount(b"/sys", FileSystemKind::Sysfs, generated.sys)?;
    mount_cgroups(mounts, &system, generated.cgroups, now);
    Ok(())
}

/// Mounts the cgroup file system on `/sys/fs/cgroup`. Other entries of `/sys` are created when they are looked up, but
/// `/sys/fs` and `/sys/fs/cgroup` are permanent.
fn mount_cgroups(mounts: &Mounts<Dentry>, system: &Arc<Dentry>, nodes: CgroupNodes, now: Moment) {
    let place = |above: &Arc<Dentry>, name: &[u8], node| {
        let file_system = &system.inode.file_system;
        let inode = Inode::new(file_system, Body::Generated(node), 0o755, Owner::ROOT, now);
        Arc::new(Dentry::new(above, name, Arc::new(inode)))
    };
    let above = place(system, b"fs", nodes.above);
    let at = place(&above, b"cgroup", nodes.mount_point);
    let kind = FileSystemKind::Cgroup;
    mounts.mount(&at, kind, Body::Generated(nodes.root), 0o755, now);
}

struct Filler<'a> {
    vfs: &'a Vfs,
    mounts: &'a Mounts<Dentry>,
    change: Change,
}

impl Filler<'_> {
    fn node(&self, body: Body, permissions: u32, now: Moment) -> Inode {
        Inode::new(&self.mounts.root_files, body, permissions, Owner::ROOT, now)
    }

    /// Returns the directory at `path` and sets its permissions to `permissions`. Creates it and its parents if they do
    /// not exist.
    fn directory(&self, path: &[u8], permissions: u32) -> Result<Arc<Dentry>, Errno> {
        let mut here = self.mounts.root.clone();
        for name in path
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
        {
            let walked = self
                .mounts
                .boot_walker()
                .walk(&here, name, LastLink::Follow)?;
            here = match walked.entry {
                Some(entry) => entry,
                None => {
                    let node = self.node(Body::directory(), 0o755, self.change.now);
                    self.mounts
                        .names
                        .create(&self.change, &walked.parent, name, node)?
                }
            };
        }
        here.inode
            .change(|metadata| metadata.permissions = permissions);
        Ok(here)
    }

    /// Adds `node` to the tree at `path`. An existing entry at that path is replaced.
    fn place(&self, path: &[u8], node: Inode) -> Result<Arc<Dentry>, Errno> {
        let parent = match path.iter().rposition(|&byte| byte == b'/') {
            Some(end) => self.parent(&path[..end])?,
            None => self.mounts.root.clone(),
        };
        let walked = self
            .mounts
            .boot_walker()
            .walk(&parent, last(path), LastLink::Keep)?;
        let Last::Name(name) = &walked.last else {
            return Err(Errno::EINVAL);
        };
        if walked.entry.is_some() {
            self.mounts
                .names
                .remove(&self.change, &parent, name, Removal::Other)?;
        }
        self.mounts.names.create(&self.change, &parent, name, node)
    }

    /// Returns the directory at `path`, for the creation of a file in it. Creates the directory if it does not exist.
    /// An existing directory keeps its permissions.
    fn parent(&self, path: &[u8]) -> Result<Arc<Dentry>, Errno> {
        let absolute: alloc::vec::Vec<u8> = [b"/", path].concat();
        match self
            .mounts
            .boot_walker()
            .resolve(&self.mounts.root, &absolute, LastLink::Follow)
        {
            Ok(found) => Ok(found),
            Err(_) => self.directory(path, 0o755),
        }
    }

    fn file(
        &self,
        path: &[u8],
        permissions: u32,
        now: Moment,
        data: &[u8],
    ) -> Result<Arc<Dentry>, Errno> {
        let node = self.mounts.new_system_file(permissions, now)?;
        if let Body::Regular(regular) = &node.body
            && regular.write_at(self.vfs, 0, data)? < data.len()
        {
            return Err(Errno::ENOSPC);
        }
        self.place(path, node)
    }

    fn archive(&self, archive: CpioArchive<'_>) -> Result<(), Errno> {
        // The first entry of each file with several hard links, by the inode number in the archive.
        let mut shared = BTreeMap::new();
        for entry in archive {
            let name = entry.name.strip_prefix(b"./").unwrap_or(entry.name);
            let name = name.strip_prefix(b"/").unwrap_or(name);
            let control = name.strip_prefix(CONTROL_FOLDER);
            if name.is_empty()
                || name == b"."
                || control.is_some_and(|rest| rest.first().is_none_or(|&byte| byte == b'/'))
            {
                continue;
            }
            self.entry(name, &entry, &mut shared)?;
        }
        Ok(())
    }

    fn entry(
        &self,
        name: &[u8],
        entry: &CpioEntry<'_>,
        shared: &mut BTreeMap<u32, Arc<Dentry>>,
    ) -> Result<(), Errno> {
        let now = Moment {
            seconds: i64::from(entry.modified),
            nanoseconds: 0,
        };
        let permissions = entry.mode & 0o7777;
        match entry.mode & raw::S_IFMT {
            raw::S_IFDIR => {
                let made = self.directory(name, permissions)?;
                made.inode.touch_modified(now);
            }
            raw::S_IFLNK => {
                let node = self.node(Body::Symlink(entry.data.into()), 0o777, now);
                self.place(name, node)?;
            }
            raw::S_IFREG => {
                let first = shared.get(&entry.inode).filter(|_| entry.links > 1);
                if let Some(first) = first {
                    self.second_name(name, first, entry.data)?;
                    return Ok(());
                }
                let made = self.file(name, permissions, now, entry.data)?;
                if entry.links > 1 {
                    shared.insert(entry.inode, made);
                }
            }
            raw::S_IFIFO => {
                let pipe = crate::fs::pipe::Pipe::new(&self.mounts.memory);
                self.place(
                    name,
                    self.node(Body::Fifo(Arc::new(pipe)), permissions, now),
                )?;
            }
            // Ignore device nodes and sockets in the archive. The kernel creates its own device nodes.
            _ => {}
        }
        Ok(())
    }

    /// Adds the hard link `name` to the file of the entry `first`. `data` is empty unless this is the last link of the
    /// file, because a cpio archive stores the contents with the last link only.
    fn second_name(&self, name: &[u8], first: &Arc<Dentry>, data: &[u8]) -> Result<(), Errno> {
        if let Body::Regular(regular) = &first.inode.body
            && !data.is_empty()
            && regular.write_at(self.vfs, 0, data)? < data.len()
        {
            return Err(Errno::ENOSPC);
        }
        let parent = match name.iter().rposition(|&byte| byte == b'/') {
            Some(end) => self.parent(&name[..end])?,
            None => self.mounts.root.clone(),
        };
        self.mounts
            .names
            .link(&self.change, &first.inode, false, &parent, last(name))?;
        Ok(())
    }

    fn devices(&self, disks: &[Arc<dyn DiskNode>]) -> Result<(), Errno> {
        let at = self.directory(b"/dev", 0o755)?;
        let kind = FileSystemKind::Devtmpfs;
        let root = self
            .mounts
            .mount(&at, kind, Body::directory(), 0o755, self.change.now);
        let now = self.change.now;
        let make = |name: &[u8], body, permissions| {
            let node = Inode::new(&root.inode.file_system, body, permissions, Owner::ROOT, now);
            self.mounts.names.create(&self.change, &root, name, node)
        };
        for &(name, device, permissions) in DEVICES {
            let body = match self.mounts.terminal() {
                // `/dev/console` is the terminal of the standard streams if there is one, else the kernel log.
                Some(terminal) if device == Device::Console => Body::Console(terminal),
                Some(_) | None => Body::Character(device),
            };
            make(name, body, permissions)?;
        }
        for disk in disks {
            make(disk.name().as_bytes(), Body::Block(disk.clone()), 0o660)?;
        }
        for &(name, target) in DEVICE_LINKS {
            make(name, Body::Symlink(target.into()), 0o777)?;
        }
        make(b"shm", Body::directory(), 0o1777)?;
        Ok(())
    }
}

/// Returns the last component of a path that has no trailing slashes.
fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}
