//! From a path to a name in the tree.

use super::{
    dentry::Dentry,
    inode::{Body, Inode, Link},
    kind::Kind,
    name::{Component, NAME_MAX, first_component, only_slashes, splice_link},
    permission::{Permission, Subject},
    procfs::ProcNode,
    tree::Namespace,
};
use crate::{context::Context, errno::Errno};
use alloc::{borrow::Cow, sync::Arc, vec::Vec};

/// Most symbolic links followed for one path (Linux's `MAXSYMLINKS`).
pub const LINKS_MAX: u32 = 40;

/// Who walks, and where the root is.
#[derive(Clone, Copy)]
pub struct Walker<'a> {
    /// The caller, whose view `/proc` shows; none while the tree is being filled at boot.
    pub context: Option<&'a Context<'a>>,
    /// Whose rights count.
    pub subject: Subject,
    /// Where absolute paths begin.
    pub root: &'a Arc<Dentry>,
}

/// What to do with a symbolic link at the end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// Go where it leads.
    Follow,
    /// Take the link itself, unless a slash follows it.
    Keep,
}

/// The last component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Last {
    /// A name, which may or may not exist.
    Name(Vec<u8>),
    /// `.`, or no component at all, as in `/`.
    Current,
    /// `..`.
    Parent,
    /// A link of `/proc` led straight to a node.
    Jumped,
}

/// Where a path led.
pub struct Walked {
    /// The directory that holds, or would hold, the last name.
    pub parent: Arc<Dentry>,
    /// The last component.
    pub last: Last,
    /// What the path names; none if only the last name is missing.
    pub entry: Option<Arc<Dentry>>,
    /// A slash stands behind the last name.
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
            last: Last::Name(name.to_vec()),
            entry,
            slash,
        }
    }

    /// What the path names.
    ///
    /// # Errors
    /// `ENOENT` if the last name is missing, `ENOTDIR` if a slash follows what is no directory.
    pub fn existing(self) -> Result<Arc<Dentry>, Errno> {
        let entry = self.entry.ok_or(Errno::ENOENT)?;
        if self.slash && !entry.inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        Ok(entry)
    }

    /// The last name, for calls that make, remove or move it.
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
    /// `ENOTDIR`, `EACCES`, `ENAMETOOLONG`, `ENOENT`.
    pub fn lookup(&self, directory: &Arc<Dentry>, name: &[u8]) -> Result<Arc<Dentry>, Errno> {
        self.may_pass(&directory.inode)?;
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let found = match &directory.inode.body {
            Body::Directory(entries) => {
                let entries = entries.lock();
                entries.get(name).cloned().ok_or(Errno::ENOENT)?
            }
            Body::Proc(node) => node.lookup(self.context.ok_or(Errno::ENOENT)?, directory, name)?,
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
        // Who passes over permissions passes everywhere; spare the look at the mode.
        if self.subject.overrides {
            return Ok(());
        }
        // Its own descriptors a process always finds (`proc_fd_permission` in `fs/proc/fd.c` of Linux 7.3).
        if let (Body::Proc(ProcNode::Descriptors(id)), Some(context)) = (&inode.body, self.context)
        {
            if *id == context.process().id {
                return Ok(());
            }
        }
        inode.check(self.subject, Permission::EXECUTE)
    }

    fn above(&self, directory: &Arc<Dentry>) -> Arc<Dentry> {
        if Arc::ptr_eq(directory, self.root) {
            return directory.clone();
        }
        // Who looks whether a file system is in use goes through it from the top: nobody passes him upwards.
        let names = self.context.map(|context| &context.kernel.mounts.names);
        let turn = names.map(Namespace::keep);
        let above = directory.parent();
        drop(turn);
        // What was mounted there since covers it.
        above.crossed()
    }

    /// Walks `path` from `start` up to its last component and looks that one up too.
    ///
    /// Symbolic links on the way are followed, also at the end if `last_link` says so or a slash
    /// follows (Linux 7.2, `link_path_walk` and `path_lookupat` in `fs/namei.c`).
    ///
    /// # Errors
    /// `ENOENT` for an empty path or a missing name before the last, `ENOTDIR`, `EACCES`,
    /// `ENAMETOOLONG`, `ELOOP` beyond forty links.
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
            match found.inode.link(self.context)? {
                Link::Path(target) => {
                    if target.first() == Some(&b'/') {
                        here = self.root.clone();
                    }
                    path = splice_link(&target, after)?.into();
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

    /// What `path` names.
    ///
    /// # Errors
    /// As [`Self::walk`], and `ENOENT` if the last name is missing.
    pub fn resolve(
        &self,
        start: &Arc<Dentry>,
        path: &[u8],
        last_link: LastLink,
    ) -> Result<Arc<Dentry>, Errno> {
        self.walk(start, path, last_link)?.existing()
    }
}
