//! The deferred closing of open files.

use crate::fs::{
    open_file::OpenFile,
    socket::{SocketFile, message::Message},
};
use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec::Vec};
use memwright_linux_base::sync::PausePoints;

/// Number of messages that are freed between two scheduling points.
const CLOSES: u32 = 16;

/// A list for the messages of a closed socket. It is allocated together with the socket, so that the close of a socket
/// allocates nothing.
#[derive(Default)]
pub struct Shell {
    pub(super) messages: VecDeque<Message>,
    next: Option<Box<Shell>>,
}

/// Open files that must be closed because the files that held them were closed.
///
/// A program controls how deeply open files are nested, so the close of one file must not close another file
/// recursively, which would overflow the kernel stack. Sockets are the only files that hold open files. So the close of
/// a socket moves its messages to this list, and one loop closes all of them. Linux adds a file whose last reference is
/// dropped to a list of the thread (`fput` and `task_work_run`), and closes files in flight one socket after another
/// (`__scm_destroy`).
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

    /// Drops references to open files. If this closes an open file, adds the files in its messages to this list.
    pub(super) fn close_files(&mut self, files: Vec<Arc<OpenFile>>) {
        for file in files {
            if let Some(last) = Arc::into_inner(file)
                && let Some(file) = last.as_kind::<SocketFile>()
            {
                file.socket.close(self);
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
