//! Path resolution (path walks).

mod caller;

use crate::fs::{
    caller::Caller,
    dentry::Dentry,
    file_name::FileName,
    inode::{Body, Inode, Link},
    kind::Kind,
    lower,
    name::{Component, NAME_MAX, first_component, only_slashes, splice_link},
    namespace::Namespace,
    permission::{Permission, Subject},
};
use alloc::{borrow::Cow, sync::Arc};
use memwright_linux_abi::errno::Errno;

/// Maximum number of symbolic links that one path walk follows (Linux's `MAXSYMLINKS`).
pub const LINKS_MAX: u32 = 40;

/// The context of a path walk: the calling thread, its file system ids and its root directory.
#[derive(Clone)]
pub struct Walker<'a> {
    /// The calling thread, on which the contents of `/proc` depend; `None` while the kernel populates the tree at boot.
    pub caller: Option<&'a (dyn Caller + 'a)>,
    /// The ids for permission checks.
    pub subject: Subject,
    /// The directory where absolute paths start.
    pub root: &'a Arc<Dentry>,
}

/// What a path walk does if the last component is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// Follow it.
    Follow,
    /// Return the link itself, unless a trailing slash follows it.
    Keep,
}

/// The last component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Last {
    /// A name, which need not exist.
    Name(FileName),
    /// `.`, or no component at all, as in `/`.
    Current,
    /// `..`.
    Parent,
    /// A magic link of `/proc`, which was followed. It refers directly to an entry.
    Jumped,
}

/// The result of a path walk.
pub struct Walked {
    /// The directory that contains the last component, or would contain it.
    pub parent: Arc<Dentry>,
    /// The last component.
    pub last: Last,
    /// The entry of the last component, or `None` if it does not exist in `parent`.
    pub entry: Option<Arc<Dentry>>,
    /// Whether the path has a trailing slash.
    pub slash: bool,
}

impl Walked {
    fn directory(here: Arc<Dentry>, last: Last) -> Self {
        Self {
            parent: here.clone(),
            last,
            entry: Some(here),
            slash: true,
        }
    }

    fn named(parent: Arc<Dentry>, name: &[u8], entry: Option<Arc<Dentry>>, slash: bool) -> Self {
        Self {
            parent,
            last: Last::Name(FileName::new(name)),
            entry,
            slash,
        }
    }

    /// Returns the entry.
    ///
    /// # Errors
    /// `ENOENT` if the last component does not exist, `ENOTDIR` if a trailing slash follows it and it is not a
    /// directory.
    pub fn existing(self) -> Result<Arc<Dentry>, Errno> {
        let entry = self.entry.ok_or(Errno::ENOENT)?;
        if self.slash && !entry.inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        Ok(entry)
    }

    /// Returns the last name, for calls that create, remove or rename it.
    ///
    /// # Errors
    /// `unnamed` if the path ends in `.`, `..` or `/`.
    pub fn last_name(&self, unnamed: Errno) -> Result<&[u8], Errno> {
        match &self.last {
            Last::Name(name) => Ok(name),
            Last::Current | Last::Parent | Last::Jumped => Err(unnamed),
        }
    }
}

impl Walker<'_> {
    /// Looks up one name in a directory.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`, `ENAMETOOLONG`, `ENOENT`, `ENOMEM`, and the errors of the host's file system.
    pub fn lookup(&self, directory: &Arc<Dentry>, name: &[u8]) -> Result<Arc<Dentry>, Errno> {
        self.may_pass(&directory.inode)?;
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let found = match &directory.inode.body {
            Body::Directory(entries) => {
                let entries = entries.lock();
                match entries.get(name) {
                    Some(found) => found.clone(),
                    None if entries.is_partial() => {
                        drop(entries);
                        lower::look_up(directory, name)?
                    }
                    None => return Err(Errno::ENOENT),
                }
            }
            Body::Generated(node) => {
                node.lookup(self.caller.ok_or(Errno::ENOENT)?, directory, name)?
            }
            Body::Regular(_)
            | Body::Symlink(_)
            | Body::Character(_)
            | Body::Block(_)
            | Body::Fifo(_)
            | Body::Socket
            | Body::Console(_)
            | Body::Anonymous => return Err(Errno::ENOTDIR),
        };
        Ok(found.crossed())
    }

    fn may_pass(&self, inode: &Inode) -> Result<(), Errno> {
        if !inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        // A subject that overrides permissions can search every directory.
        if self.subject.overrides {
            return Ok(());
        }
        if let (Body::Generated(node), Some(caller)) = (&inode.body, self.caller)
            && node.admits(caller)
        {
            return Ok(());
        }
        inode.check(&self.subject, Permission::EXECUTE)
    }

    fn above(&self, directory: &Arc<Dentry>) -> Arc<Dentry> {
        if Arc::ptr_eq(directory, self.root) {
            return directory.clone();
        }
        // Take the lock of the tree. An unmount holds this lock while it checks, from the top down, whether the file
        // system is in use. A path walk must not ascend meanwhile to a directory that the unmount has already checked.
        let names = self.caller.map(|caller| &caller.vfs().mounts.names);
        let turn = names.map(Namespace::keep);
        let above = directory.parent();
        drop(turn);
        // If a file system has been mounted on the parent directory, continue at its root.
        above.crossed()
    }

    /// Resolves `path` from `start` up to its last component, and looks up the last component.
    ///
    /// Follows symbolic links. A link at the end of the path is followed only if `last_link` is [`LastLink::Follow`] or
    /// a slash follows the link (Linux 7.2, `link_path_walk` and `path_lookupat` in `fs/namei.c`).
    ///
    /// # Errors
    /// `ENOENT` for an empty path, or if a component before the last does not exist, `ENOTDIR`, `EACCES`,
    /// `ENAMETOOLONG`, `ELOOP` for more than 40 links.
    pub fn walk(
        &self,
        start: &Arc<Dentry>,
        path: &[u8],
        last_link: LastLink,
    ) -> Result<Walked, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let mut path = Cow::Borrowed(path);
        let mut at = 0;
        let mut here = if path[0] == b'/' {
            self.root.clone()
        } else {
            start.clone()
        };
        let mut links = 0;
        loop {
            let (component, after) =
                first_component(&path[at..]).unwrap_or((Component::Current, b"/"));
            let is_last = only_slashes(after);
            let slash = is_last && !after.is_empty();
            let name = match component {
                Component::Current | Component::Parent => {
                    self.may_pass(&here.inode)?;
                    let last = if component == Component::Parent {
                        here = self.above(&here);
                        Last::Parent
                    } else {
                        Last::Current
                    };
                    if is_last {
                        return Ok(Walked::directory(here, last));
                    }
                    at = path.len() - after.len();
                    continue;
                }
                Component::Name(name) => name,
            };
            let found = match self.lookup(&here, name) {
                Err(Errno::ENOENT) if is_last => {
                    return Ok(Walked::named(here, name, None, slash));
                }
                result => result?,
            };
            let follow = !is_last || slash || last_link == LastLink::Follow;
            if !follow || found.inode.kind() != Kind::Symlink {
                if is_last {
                    return Ok(Walked::named(here, name, Some(found), slash));
                }
                here = found;
                at = path.len() - after.len();
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::ELOOP);
            }
            match found.inode.link(self.caller)? {
                Link::Path(target) => {
                    if target.first() == Some(&b'/') {
                        here = self.root.clone();
                    }
                    path = splice_link(target, after)?.into();
                    at = 0;
                }
                Link::Entry(entry) if is_last => {
                    let last = Last::Jumped;
                    return Ok(Walked {
                        parent: here,
                        last,
                        entry: Some(entry),
                        slash,
                    });
                }
                Link::Entry(entry) => {
                    here = entry;
                    at = path.len() - after.len();
                }
            }
        }
    }

    /// Resolves `path` to an existing entry.
    ///
    /// # Errors
    /// The errors of [`Self::walk`], and `ENOENT` if the last component does not exist.
    pub fn resolve(
        &self,
        start: &Arc<Dentry>,
        path: &[u8],
        last_link: LastLink,
    ) -> Result<Arc<Dentry>, Errno> {
        self.walk(start, path, last_link)?.existing()
    }
}
