//! Deferred closing of open files.

use super::message::Message;
use crate::{fs::open_file::OpenFile, sync::PausePoints};
use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec::Vec};

/// Messages closed between two scheduling points.
const CLOSES: u32 = 16;

/// The messages of a closed socket. It is allocated with the socket, so that closing allocates nothing.
#[derive(Default)]
pub struct Shell {
    pub(super) messages: VecDeque<Message>,
    next: Option<Box<Shell>>,
}

/// Open files to be closed because the files that held them were closed.
///
/// A program controls how deep open files are nested. So closing a file never closes another one recursively: each kind
/// of file that holds open files hands them over ([`File::leave`](crate::fs::open_file::File::leave)), and one loop
/// closes them all. Linux defers the last reference to a list of the thread (`fput` and `task_work_run`), and closes
/// files in flight one socket after another (`__scm_destroy`).
#[derive(Default)]
pub struct Remains {
    first: Option<Box<Shell>>,
}

impl Remains {
    /// Adds the messages of a closed socket.
    pub(super) fn add(&mut self, mut shell: Box<Shell>) {
        shell.next = self.first.take();
        self.first = Some(shell);
    }

    /// Drops references to open files. Files held by one whose last reference this was are added.
    pub(super) fn close_files(&mut self, files: Vec<Arc<OpenFile>>) {
        for file in files {
            if let Some(mut last) = Arc::into_inner(file) {
                last.file.leave(self);
            }
        }
    }
}

impl Drop for Remains {
    /// Closes all files, with scheduling points in between.
    fn drop(&mut self) {
        let mut points = PausePoints::every(CLOSES);
        while let Some(mut shell) = self.first.take() {
            points.round();
            match shell.messages.pop_front() {
                None => self.first = shell.next.take(),
                Some(mut message) => {
                    self.first = Some(shell);
                    self.close_files(message.rights.unload());
                }
            }
        }
    }
}
