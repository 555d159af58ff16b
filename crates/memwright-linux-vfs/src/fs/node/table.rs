//! The descriptor table of processes.

use crate::fs::{
    descriptors::Descriptors,
    locks::{Held, Holder},
    open_file::OpenFile,
    vfs::Vfs,
};
use alloc::sync::Arc;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::{Lock, PausePoints, Rank};

/// Number of files that are closed between two scheduling points.
const CLOSES: u32 = 32;

/// The descriptors of one process, or of several processes that share them (`CLONE_FILES`).
pub struct FileTable {
    slots: Lock<Descriptors<Arc<OpenFile>>>,
    /// The number of ranges that are locked with `fcntl` through the table.
    pub locked: Held,
}

impl Default for FileTable {
    fn default() -> Self {
        Self::new()
    }
}

impl FileTable {
    /// Creates a table without open descriptors.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slots: Lock::new(Rank::FileTable, Descriptors::new()),
            locked: Held::new(),
        }
    }

    /// Creates a copy of the table for a process that is not to share it. The descriptors of the copy refer to the same
    /// open files.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn duplicate(&self, vfs: &Vfs) -> Result<Self, Errno> {
        if vfs.instruments.heap_low() {
            return Err(Errno::ENOMEM);
        }
        let mut copy = Self::new();
        let result = copy.slots.get_mut().try_clone_from(&self.slots.lock());
        if result.is_err() {
            copy.close_all();
        }
        result.map_err(|_| Errno::ENOMEM)?;
        Ok(copy)
    }

    /// Returns the open file of a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn get(&self, descriptor: i32) -> Result<Arc<OpenFile>, Errno> {
        self.slots
            .lock()
            .get(descriptor)
            .cloned()
            .ok_or(Errno::EBADF)
    }

    /// Returns the open file of a descriptor that was not opened with `O_PATH`.
    ///
    /// # Errors
    /// `EBADF`, also for a descriptor opened with `O_PATH`.
    pub fn get_usable(&self, descriptor: i32) -> Result<Arc<OpenFile>, Errno> {
        let open = self.get(descriptor)?;
        if open.is_path() {
            Err(Errno::EBADF)
        } else {
            Ok(open)
        }
    }

    /// Checks that some descriptor below `limit` is free.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn check_free(&self, limit: usize) -> Result<(), Errno> {
        self.slots.lock().check_free(limit)
    }

    /// Installs an open file at the lowest free descriptor that is at least `from` and below `limit`.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn add(
        &self,
        from: usize,
        limit: usize,
        open: Arc<OpenFile>,
        close_on_exec: bool,
    ) -> Result<i32, Errno> {
        // Keep a reference, so that on failure the file is closed after the lock is released. Closing a file can wake
        // other threads.
        let spare = open.clone();
        let result = self.slots.lock().allocate(from, limit, open, close_on_exec);
        drop(spare);
        result
    }

    /// Installs an open file as `descriptor`. Returns the open file that `descriptor` referred to before, which the
    /// caller closes.
    ///
    /// # Errors
    /// `EBADF` if the descriptor is negative or not below `limit`, `ENOMEM`.
    pub fn put(
        &self,
        descriptor: i32,
        limit: usize,
        open: Arc<OpenFile>,
        close_on_exec: bool,
    ) -> Result<Option<Arc<OpenFile>>, Errno> {
        let spare = open.clone();
        let result = self
            .slots
            .lock()
            .replace(descriptor, limit, open, close_on_exec);
        drop(spare);
        result
    }

    /// Closes a descriptor of `process`. As POSIX requires, this releases all record locks of the process on the file,
    /// even those that it took through another descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&self, process: u32, descriptor: i32) -> Result<(), Errno> {
        let open = self.slots.lock().remove(descriptor).ok_or(Errno::EBADF)?;
        self.release_locks(process, &open);
        Ok(())
    }

    /// Closes all descriptors of `process` from `first` to `last`, inclusive.
    pub fn close_range(&self, process: u32, first: u32, last: u32) {
        let mut from = first as usize;
        let mut points = PausePoints::every(CLOSES);
        loop {
            points.round();
            let next = self
                .slots
                .lock()
                .next_open(from)
                .map(|(descriptor, _)| descriptor);
            let Some(descriptor) = next.filter(|&descriptor| descriptor as u32 <= last) else {
                return;
            };
            // This fails if another thread has closed the descriptor in the meantime.
            let _ = self.close(process, descriptor);
            from = descriptor as usize + 1;
        }
    }

    /// Marks all descriptors from `first` to `last`, inclusive, close-on-exec.
    pub fn mark_range(&self, first: u32, last: u32) {
        let mut slots = self.slots.lock();
        slots.mark_range(first as usize, last as usize);
    }

    /// Closes the close-on-exec descriptors of `process` at `execve`.
    pub fn close_for_exec(&self, process: u32) {
        let mut from = 0;
        let mut points = PausePoints::every(CLOSES);
        loop {
            points.round();
            let taken = self.slots.lock().take_close_on_exec(from);
            let Some((number, open)) = taken else {
                return;
            };
            self.release_locks(process, &open);
            from = number;
        }
    }

    /// Drops the reference of the exiting process `process` to the table. Releases the record locks of the process.
    /// Closes the descriptors if this was the last reference.
    pub fn release(self: Arc<Self>, process: u32) {
        let mut points = PausePoints::every(CLOSES);
        let mut from = 0;
        while let Some((descriptor, open)) = self.next_open(from) {
            self.release_locks(process, &open);
            from = descriptor as usize + 1;
            points.round();
        }
        if let Some(mut last) = Arc::into_inner(self) {
            last.close_all();
        }
    }

    /// Closes all descriptors of a table that no process uses any more.
    fn close_all(&mut self) {
        let mut points = PausePoints::every(CLOSES);
        let mut from = 0;
        while let Some((descriptor, open)) = self.slots.get_mut().take_open(from) {
            drop(open);
            from = descriptor + 1;
            points.round();
        }
    }

    /// Returns whether `execve` closes a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close_on_exec(&self, descriptor: i32) -> Result<bool, Errno> {
        self.slots
            .lock()
            .close_on_exec(descriptor)
            .ok_or(Errno::EBADF)
    }

    /// Sets whether `execve` closes a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_close_on_exec(&self, descriptor: i32, close_on_exec: bool) -> Result<(), Errno> {
        let mut slots = self.slots.lock();
        slots
            .set_close_on_exec(descriptor, close_on_exec)
            .ok_or(Errno::EBADF)
    }

    /// Returns the lowest open descriptor that is at least `from`, and its open file.
    #[must_use]
    pub fn next_open(&self, from: usize) -> Option<(i32, Arc<OpenFile>)> {
        let slots = self.slots.lock();
        slots
            .next_open(from)
            .map(|(descriptor, open)| (descriptor, open.clone()))
    }

    /// Returns an estimate in bytes of the kernel memory of the open files and the record locks. The OOM killer uses it
    /// to select a victim.
    #[must_use]
    pub fn kernel_bytes(&self) -> u64 {
        let (mut from, mut bytes) = (0, self.locked.bytes());
        let mut points = PausePoints::every(CLOSES);
        while let Some((descriptor, open)) = self.next_open(from) {
            bytes += open.file.kernel_bytes() + open.locked.bytes();
            from = descriptor as usize + 1;
            points.round();
        }
        bytes
    }

    /// Returns the capacity in slots (`FDSize` of `/proc/PID/status`).
    #[must_use]
    pub fn size(&self) -> usize {
        self.slots.lock().size()
    }

    /// Releases the record locks of `process` on the file of `open`. Called when the process closes a descriptor of
    /// that file.
    pub fn release_locks(&self, process: u32, open: &OpenFile) {
        let holder = Holder::Process(process.into());
        open.inode().locks.forget(holder, &self.locked);
    }
}
