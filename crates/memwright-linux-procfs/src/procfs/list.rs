//! Lists the directories of `/proc` and `/sys`.

use crate::procfs::{
    fixed,
    node::view::View,
    node::{Child, ProcNode},
    process,
    system::{cgroup, nodes, processors},
};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::short::Short;
use memwright_linux_vfs::fs::{dirents::DirectoryEntry, generated::Emit};

/// The directory position of the first process in `/proc`, after the fixed entries.
const PROCESSES: u64 = 256;

/// Calls `emit` with the entry whose name is `number`. Returns `false` if the entry did not fit.
fn numbered(child: &Child, number: u64, next: u64, emit: Emit<'_>) -> bool {
    let name = Short::of(format_args!("{number}"));
    emit(DirectoryEntry {
        inode: child.number,
        next,
        kind: child.node.kind(),
        name: name.as_bytes(),
    })
}

impl ProcNode {
    /// Calls `emit` with each entry of this directory, beginning at `position`, until an entry does not fit.
    ///
    /// # Errors
    /// `ENOTDIR` if the node is not a directory, `ENOENT` if the process has exited.
    pub fn entries(
        &self,
        view: &View<'_>,
        position: &mut u64,
        emit: Emit<'_>,
    ) -> Result<(), Errno> {
        let tasks = view.parts.tasks();
        match *self {
            Self::Fixed(directory) => {
                directory.list(position, emit);
            }
            Self::Processors => processors::list(view.parts.all_cpus(), position, emit),
            Self::Nodes => nodes::list(view.parts.memory(), position, emit),
            Self::Cgroups => return cgroup::list(view.parts.cgroups(), 0, position, emit),
            Self::Cgroup(id) => return cgroup::list(view.parts.cgroups(), id, position, emit),
            Self::Processor(number, directory) => directory.list(number, position, emit),
            Self::Root => {
                if *position < PROCESSES {
                    if !fixed::ROOT.list(position, emit) {
                        return Ok(());
                    }
                    *position = PROCESSES;
                }
                for id in tasks.processes().map(|process| process.id) {
                    let at = PROCESSES + u64::from(id);
                    if at >= *position {
                        if !numbered(&Child::process(id), id.into(), at + 1, emit) {
                            return Ok(());
                        }
                        *position = at + 1;
                    }
                }
            }
            Self::Process(id) => process::PROCESS.list(id, None, position, emit),
            Self::Task(id, thread) => process::TASK.list(id, Some(thread), position, emit),
            Self::Tasks(id) => {
                let process = tasks.process(id).ok_or(Errno::ENOENT)?;
                let mut last = None;
                while let Some(thread) = process.thread_after(last.as_deref()) {
                    let at = 2 + u64::from(thread.id());
                    if at >= *position {
                        let child = Child::task(id, thread.id());
                        if !numbered(&child, thread.id().into(), at + 1, emit) {
                            return Ok(());
                        }
                        *position = at + 1;
                    }
                    last = Some(thread);
                }
            }
            Self::Descriptors(id) | Self::DescriptorInfos(id) => {
                let process = tasks.process(id).ok_or(Errno::ENOENT)?;
                let Some(files) = process.files() else {
                    return Ok(());
                };
                while let Some(from) = position.checked_sub(2) {
                    let Some((number, open)) = files.next_open(from as usize) else {
                        return Ok(());
                    };
                    let child = match self {
                        Self::Descriptors(_) => Child::descriptor(id, number, &open),
                        _ => Child::descriptor_info(id, number),
                    };
                    let next = number as u64 + 3;
                    if !numbered(&child, number as u64, next, emit) {
                        return Ok(());
                    }
                    *position = next;
                }
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
            | Self::CgroupText(..) => return Err(Errno::ENOTDIR),
        }
        Ok(())
    }
}
