//! Looks up names in the directories of `/proc` and `/sys`.

use crate::procfs::{
    ProcEntry, ProcNode, fixed,
    node::view::View,
    node::{Child, decimal, open_file},
    process,
    system::{cgroup, nodes, processors},
};
use alloc::{boxed::Box, sync::Arc};
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::fs::{
    dentry::Dentry,
    inode::{Body, Inode},
    permission::Owner,
};

impl ProcNode {
    /// Looks up `name` in this directory of `/proc` or `/sys`, and creates its directory entry.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`.
    pub fn lookup(
        &self,
        view: &View<'_>,
        directory: &Arc<Dentry>,
        name: &[u8],
    ) -> Result<Arc<Dentry>, Errno> {
        view.caller.check_heap()?;
        let child = self.child(view, name)?;
        if let Some(kind) = child.node.covered_by() {
            return view.parts.vfs().mounts.root_of(kind).ok_or(Errno::ENOENT);
        }
        let file_system = &directory.inode.file_system;
        let now = view.parts.vfs().now();
        let inode = Inode::numbered(
            file_system,
            child.number,
            Body::Generated(Box::new(ProcEntry::new(child.node, view.parts))),
            child.permissions,
            Owner::ROOT,
            now,
        );
        Ok(Arc::new(Dentry::new(directory, name, Arc::new(inode))))
    }

    /// Returns the node and inode number of the entry `name` of this directory.
    fn child(&self, view: &View<'_>, name: &[u8]) -> Result<Child, Errno> {
        match *self {
            Self::Fixed(directory) => directory.child(name).ok_or(Errno::ENOENT),
            Self::Processors => processors::child(view.parts.all_cpus(), name).ok_or(Errno::ENOENT),
            Self::Nodes => nodes::child(view.parts.memory(), name).ok_or(Errno::ENOENT),
            Self::Cgroups => cgroup::child(view.parts.cgroups(), 0, name),
            Self::Cgroup(id) => cgroup::child(view.parts.cgroups(), id, name),
            Self::Processor(number, directory) => {
                directory.child(number, name).ok_or(Errno::ENOENT)
            }
            Self::Root => {
                if let Some(child) = fixed::ROOT.child(name) {
                    return Ok(child);
                }
                let id = decimal(name).ok_or(Errno::ENOENT)?;
                let tasks = view.parts.tasks();
                if tasks.process(id).is_some() {
                    return Ok(Child::process(id));
                }
                // A lookup also finds the IDs of threads, although the directory does not list them
                // (`proc_pid_lookup`).
                let thread = tasks.thread(id).ok_or(Errno::ENOENT)?;
                Ok(Child::task(thread.process.id, id))
            }
            Self::Process(id) => {
                let child = process::PROCESS.child_of(id, None, name);
                child.ok_or(Errno::ENOENT)
            }
            Self::Task(id, thread) => {
                let child = process::TASK.child_of(id, Some(thread), name);
                child.ok_or(Errno::ENOENT)
            }
            Self::Tasks(id) => {
                let thread = decimal(name).ok_or(Errno::ENOENT)?;
                let found = view.parts.tasks().thread(thread).ok_or(Errno::ENOENT)?;
                if found.process.id != id {
                    return Err(Errno::ENOENT);
                }
                Ok(Child::task(id, thread))
            }
            Self::Descriptors(id) | Self::DescriptorInfos(id) => {
                let number = decimal(name).ok_or(Errno::ENOENT)?;
                let number = i32::try_from(number).map_err(|_| Errno::ENOENT)?;
                let open = open_file(view.parts.tasks(), id, number)?;
                Ok(match self {
                    Self::Descriptors(_) => Child::descriptor(id, number, &open),
                    _ => Child::descriptor_info(id, number),
                })
            }
            Self::SelfLink
            | Self::ThreadSelfLink
            | Self::PathLink(_)
            | Self::Place(..)
            | Self::Descriptor(..)
            | Self::DescriptorInfo(..)
            | Self::SystemText(_)
            | Self::SystemEvents(..)
            | Self::ProcessorText(..)
            | Self::SystemControl(_)
            | Self::ProcessText(..)
            | Self::Memory(_)
            | Self::Pagemap(_)
            | Self::Frames(_)
            | Self::CgroupText(..) => Err(Errno::ENOTDIR),
        }
    }
}
