//! The nodes of `/proc` and `/sys` in the file system.

use crate::procfs::{
    fixed,
    node::ProcNode,
    node::view::{Parts, View},
};
use alloc::{boxed::Box, sync::Arc};
use core::any::Any;
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::fs::{
    caller::Caller,
    dentry::Dentry,
    generated::{Emit, GeneratedNode},
    initrd::{CgroupNodes, GeneratedRoots},
    inode::{Inode, Link},
    kind::Kind,
    open_file::File,
};

/// A node of `/proc` or `/sys`, and the parts of the kernel whose state its text reports.
pub struct ProcEntry {
    /// The kind of node: a file, a directory or a link.
    pub node: ProcNode,
    parts: &'static dyn Parts,
}

impl ProcEntry {
    /// Creates the entry of a node.
    #[must_use]
    pub fn new(node: ProcNode, parts: &'static dyn Parts) -> Self {
        Self { node, parts }
    }

    /// Returns the node of `/proc` or `/sys` to which an inode refers; `None` for an inode of another file system.
    #[must_use]
    pub fn node_of(inode: &Inode) -> Option<&ProcNode> {
        let generated = inode.generated()? as &dyn Any;
        generated.downcast_ref::<Self>().map(|entry| &entry.node)
    }
}

/// Returns the roots of `/proc`, `/sys` and the cgroup file system.
#[must_use]
pub fn roots(parts: &'static dyn Parts) -> GeneratedRoots {
    let entry = |node| -> Box<dyn GeneratedNode> { Box::new(ProcEntry::new(node, parts)) };
    GeneratedRoots {
        proc: entry(ProcNode::Root),
        sys: entry(ProcNode::Fixed(&fixed::SYS)),
        cgroups: CgroupNodes {
            above: entry(ProcNode::Fixed(&fixed::FILE_SYSTEMS)),
            mount_point: entry(ProcNode::Cgroups),
            root: entry(ProcNode::Cgroups),
        },
    }
}

impl GeneratedNode for ProcEntry {
    fn kind(&self) -> Kind {
        self.node.kind()
    }

    fn links(&self) -> u32 {
        self.node.links(|| self.parts.cgroups())
    }

    fn size(&self, caller: Option<&dyn Caller>) -> u64 {
        let view = caller.map(|caller| View::new(self.parts, caller));
        self.node.size(view.as_ref())
    }

    /// A process always has access to its own descriptors (`proc_fd_permission` in `fs/proc/fd.c` of Linux 7.3).
    fn admits(&self, caller: &dyn Caller) -> bool {
        matches!(self.node, ProcNode::Descriptors(id) if id == caller.ids().process)
    }

    fn link(&self, caller: &dyn Caller) -> Result<Link, Errno> {
        self.node.link(&View::new(self.parts, caller))
    }

    fn open(&self, caller: &dyn Caller) -> Result<Box<dyn File>, Errno> {
        self.node.open(&View::new(self.parts, caller))
    }

    fn lookup(
        &self,
        caller: &dyn Caller,
        directory: &Arc<Dentry>,
        name: &[u8],
    ) -> Result<Arc<Dentry>, Errno> {
        let view = View::new(self.parts, caller);
        self.node.lookup(&view, directory, name)
    }

    fn entries(
        &self,
        caller: &dyn Caller,
        position: &mut u64,
        emit: Emit<'_>,
    ) -> Result<(), Errno> {
        let view = View::new(self.parts, caller);
        self.node.entries(&view, position, emit)
    }
}
