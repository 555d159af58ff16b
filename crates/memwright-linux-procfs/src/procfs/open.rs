//! The operations on nodes of `/proc` and `/sys`.

use crate::procfs::{
    ProcNode,
    node::view::View,
    node::{Line, Subject, open_file, space, text::Text},
    process::{self, mem::MemoryFile, pagemap::PagemapFile},
    stream::TextFile,
    system::{cgroup, frames::FrameFile},
};
use alloc::{boxed::Box, vec::Vec};
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::fs::{directory::DirectoryFile, inode::Link, open_file::File};
use memwright_table::TryPush;

/// The spare capacity in bytes of a link's target. A path walk appends the rest of the path to the target, and needs
/// this capacity for it.
const USUAL_REST: usize = 40;

/// Returns a link whose target is the path `target`.
fn path_link(target: &Line) -> Result<Link, Errno> {
    let mut path = Vec::new();
    path.try_make_room(target.len() + USUAL_REST)?;
    path.try_push_all(target.bytes())?;
    Ok(Link::Path(path))
}

impl ProcNode {
    /// Returns the size that `stat` reports. For `/proc/PID/fd`, this is the number of descriptors, and for an entry of
    /// that directory, 64. For other nodes it is 0, because their size is unknown until they are read.
    #[must_use]
    pub fn size(&self, view: Option<&View<'_>>) -> u64 {
        match (self, view) {
            (Self::Descriptors(id), Some(view)) => process::open_count(view.parts.tasks(), *id),
            (Self::Descriptor(..), _) => 64,
            _ => 0,
        }
    }

    /// Returns the target of a link.
    ///
    /// # Errors
    /// `EINVAL` if the node is not a link, `ENOENT` if the process has exited or has no executable.
    pub fn link(&self, view: &View<'_>) -> Result<Link, Errno> {
        match *self {
            Self::SelfLink => {
                let id = view.process().id;
                path_link(Line::new().decimal(id.into(), 0))
            }
            Self::ThreadSelfLink => {
                let (id, thread) = (view.process().id, view.thread().id());
                let mut target = Line::new();
                target.decimal(id.into(), 0).text("/task/");
                path_link(target.decimal(thread.into(), 0))
            }
            Self::PathLink(path) => Ok(Link::Path(path.into())),
            Self::Place(id, place) => {
                process::place(view.parts.tasks(), id, place).map(Link::Entry)
            }
            Self::Descriptor(id, number) => open_file(view.parts.tasks(), id, number)
                .map(|open| Link::Entry(open.entry.clone())),
            Self::Root
            | Self::Fixed(_)
            | Self::Processors
            | Self::Nodes
            | Self::Processor(..)
            | Self::Process(_)
            | Self::Tasks(_)
            | Self::Task(..)
            | Self::Descriptors(_)
            | Self::DescriptorInfos(_)
            | Self::DescriptorInfo(..)
            | Self::SystemText(_)
            | Self::SystemEvents(..)
            | Self::ProcessorText(..)
            | Self::SystemControl(_)
            | Self::ProcessText(..)
            | Self::Memory(_)
            | Self::Pagemap(_)
            | Self::Frames(_)
            | Self::Cgroups
            | Self::Cgroup(_)
            | Self::CgroupText(..) => Err(Errno::EINVAL),
        }
    }

    /// Creates the file operations of the node.
    ///
    /// # Errors
    /// `ESRCH` if the process has exited, `ELOOP` if the node is a link.
    pub fn open(&self, view: &View<'_>) -> Result<Box<dyn File>, Errno> {
        match *self {
            Self::Root
            | Self::Fixed(_)
            | Self::Processors
            | Self::Nodes
            | Self::Processor(..)
            | Self::Process(_)
            | Self::Tasks(_)
            | Self::Task(..)
            | Self::Descriptors(_)
            | Self::DescriptorInfos(_)
            | Self::Cgroups
            | Self::Cgroup(_) => Ok(Box::new(DirectoryFile)),
            Self::SystemText(_)
            | Self::SystemEvents(..)
            | Self::ProcessorText(..)
            | Self::SystemControl(_)
            | Self::CgroupText(..)
            | Self::DescriptorInfo(..) => Ok(Box::new(TextFile::new(*self, view.parts))),
            Self::ProcessText(id, _, writer) => {
                writer.needs.check(view.parts.tasks(), id)?;
                Ok(Box::new(TextFile::new(*self, view.parts)))
            }
            Self::Memory(id) => {
                let space = space(view.parts.tasks(), id)?;
                Ok(Box::new(MemoryFile::new(view.parts.reclaim(), &space)))
            }
            Self::Pagemap(id) => {
                let space = space(view.parts.tasks(), id)?;
                Ok(Box::new(PagemapFile::new(view.caller, &space)))
            }
            Self::Frames(what) => Ok(Box::new(FrameFile {
                word: what,
                memory: view.parts.memory().clone(),
            })),
            Self::SelfLink
            | Self::ThreadSelfLink
            | Self::PathLink(_)
            | Self::Place(..)
            | Self::Descriptor(..) => Err(Errno::ELOOP),
        }
    }

    /// Writes the text of the file to `text`.
    ///
    /// # Errors
    /// `ESRCH` if the process has exited, `ENOENT` if the descriptor is closed, `ENODEV` if the cgroup was removed,
    /// `EINVAL` if the file has no text, and [`Text::failure`] if a writer fails.
    pub(super) fn write_text(&self, view: &View<'_>, text: &mut Text) -> Result<(), Errno> {
        match *self {
            Self::SystemText(write) | Self::SystemEvents(write, _) => {
                write(view, text).map_err(|_| Errno::ENOMEM)
            }
            Self::SystemControl(control) => (control.read)(view, text).map_err(|_| Errno::ENOMEM),
            Self::ProcessorText(number, write) => {
                write(view, number, text).map_err(|_| Errno::ENOMEM)
            }
            Self::ProcessText(id, thread, writer) => {
                let subject = Subject::find(view.parts.tasks(), id, thread)?;
                let read = writer.read.ok_or(Errno::EINVAL)?;
                read(view, &subject, text).map_err(|_| text.failure())
            }
            Self::CgroupText(id, file) => {
                let group = cgroup::find(view.parts.cgroups(), id, file)?;
                (file.read)(view, &group, text).map_err(|_| Errno::ENOMEM)
            }
            Self::DescriptorInfo(id, number) => {
                let open = open_file(view.parts.tasks(), id, number)?;
                process::write_descriptor_info(view.caller, &open, text).map_err(|_| Errno::ENOMEM)
            }
            Self::Root
            | Self::Fixed(_)
            | Self::Processors
            | Self::Nodes
            | Self::Processor(..)
            | Self::Process(_)
            | Self::Tasks(_)
            | Self::Task(..)
            | Self::Descriptors(_)
            | Self::DescriptorInfos(_)
            | Self::SelfLink
            | Self::ThreadSelfLink
            | Self::PathLink(_)
            | Self::Place(..)
            | Self::Descriptor(..)
            | Self::Memory(_)
            | Self::Pagemap(_)
            | Self::Frames(_)
            | Self::Cgroups
            | Self::Cgroup(_) => Err(Errno::EINVAL),
        }
    }

    /// Handles a write of `bytes` to the file.
    ///
    /// # Errors
    /// `EINVAL` for files that cannot be written.
    pub(super) fn store(&self, view: &View<'_>, bytes: &[u8]) -> Result<(), Errno> {
        match *self {
            Self::ProcessText(id, thread, writer) => {
                let store = writer.store.ok_or(Errno::EINVAL)?;
                store(view, &Subject::find(view.parts.tasks(), id, thread)?, bytes)
            }
            // An empty write has no effect (`sysfs_kf_write`, `proc_dointvec` and similar functions of Linux).
            Self::SystemControl(_) if bytes.is_empty() => Ok(()),
            Self::SystemControl(control) => (control.store)(view, bytes),
            Self::CgroupText(id, file) => {
                let store = file.store.ok_or(Errno::EINVAL)?;
                let group = cgroup::find(view.parts.cgroups(), id, file)?;
                // An empty write has no effect, as for `SystemControl`.
                if bytes.is_empty() {
                    return Ok(());
                }
                store(view, &group, bytes)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Handles an `ioctl` of a text file.
    ///
    /// # Errors
    /// `ENOTTY` for a file without commands.
    pub(super) fn control(
        &self,
        view: &View<'_>,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        match *self {
            Self::ProcessText(id, thread, writer) => {
                let control = writer.control.ok_or(Errno::ENOTTY)?;
                let subject = Subject::find(view.parts.tasks(), id, thread)?;
                control(view, &subject, command, argument)
            }
            _ => Err(Errno::ENOTTY),
        }
    }
}
