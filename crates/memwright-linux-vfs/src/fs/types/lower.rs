//! The lower tree of a file system: the files below `--root` on the host. The `memwright` command reads them for the
//! guest.

use crate::fs::attributes::Moment;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use memwright_linux_abi::{
    Memory,
    channel::lower::{LowerRequest, REQUEST_HEADER},
    errno::Errno,
    host::{Channels, Clock},
};
use memwright_linux_base::{
    ordered::Ordered,
    sync::{Lock, Rank},
};
use memwright_table::TryPush;

/// The lower tree of a file system, as in an overlay. If the file system does not have a name in memory, it looks up
/// the name in the lower tree. It copies a file up before the file is opened for the first time. The lower tree is
/// never written to.
pub struct Lower {
    /// The memory in which the contents of files are stored.
    pub memory: Arc<Memory>,
    /// The guest's clock, which is stopped while the command processes a request.
    pub clock: &'static dyn Clock,
    /// The timestamps of all inodes for files of the lower tree.
    pub time: Moment,
    channels: &'static dyn Channels,
    /// Paths in the lower tree, by inode number. Only partial directories and files that have not been copied up have a
    /// path. The path in the guest can differ after a rename.
    paths: Lock<Ordered<u64, Box<[u8]>>>,
}

impl Lower {
    /// Creates a lower tree without recorded paths.
    #[must_use]
    pub fn new(
        memory: Arc<Memory>,
        channels: &'static dyn Channels,
        clock: &'static dyn Clock,
        time: Moment,
    ) -> Self {
        Self {
            memory,
            clock,
            time,
            channels,
            paths: Lock::new(Rank::File, Ordered::new()),
        }
    }

    /// Sends a request to the command on the host. Returns the data of the reply, which is stored in `room`. `room`
    /// needs one byte more than the longest data, for the status. The request takes no guest time.
    ///
    /// # Errors
    /// The error number in the reply, such as `ENOENT`; `EIO` if there is no reply; `ENOMEM`.
    pub fn ask<'a>(
        &self,
        request: LowerRequest<'_>,
        room: &'a mut [u8],
    ) -> Result<&'a [u8], Errno> {
        let mut payload = Vec::new();
        payload.try_make_room(REQUEST_HEADER + request.path().len())?;
        payload.try_push_all(&request.header())?;
        payload.try_push_all(request.path())?;
        self.clock.pause_clock();
        let length = self.channels.lower(&payload, room);
        self.clock.resume_clock();
        match room.get(..length).and_then(<[u8]>::split_first) {
            Some((0, data)) => Ok(data),
            Some((&status, _)) => Err(answered(status)),
            None => Err(Errno::EIO),
        }
    }

    /// Records the path of an inode in the lower tree.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn note(&self, inode: u64, path: Box<[u8]>) -> Result<(), Errno> {
        self.paths.lock().insert(inode, path)?;
        Ok(())
    }

    /// Returns the path of an inode in the lower tree with `name` appended, or the path alone if `name` is empty.
    ///
    /// # Errors
    /// `ENOMEM`; `ENOENT` if no path is recorded for the inode.
    pub fn path(&self, inode: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut path = Vec::new();
        let paths = self.paths.lock();
        let above = paths.get(&inode).ok_or(Errno::ENOENT)?;
        path.try_make_room(above.len() + 1 + name.len())?;
        path.try_push_all(above)?;
        if !name.is_empty() {
            path.try_push(b'/')?;
            path.try_push_all(name)?;
        }
        Ok(path)
    }

    /// Removes the path of an inode that no longer needs the lower tree.
    pub fn forget(&self, inode: u64) {
        let path = self.paths.lock().remove(&inode);
        drop(path);
    }

    /// Removes all paths. Used when the tree is torn down.
    pub fn clear(&self) {
        let paths = core::mem::take(&mut *self.paths.lock());
        drop(paths);
    }
}

/// Returns the error number for the status in a reply.
fn answered(status: u8) -> Errno {
    let result = 0_u64.wrapping_sub(u64::from(status));
    Errno::from_result(result).unwrap_or(Errno::EIO)
}
