//! Closes open files without recursion when the sockets whose messages carry them are closed.

use crate::fs::{
    open_file::OpenFile,
    socket::{SocketFile, message::Message},
};
use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec::Vec};
use memwright_linux_base::sync::PausePoints;

/// Number of messages that are freed between two scheduling points.
const CLOSES: u32 = 16;

/// A list node for the unread messages of a closed socket. It is allocated together with the socket, so that closing
/// the socket allocates nothing.
#[derive(Default)]
pub struct Shell {
    pub(super) messages: VecDeque<Message>,
    next: Option<Box<Shell>>,
}

/// The unread messages of closed sockets. The open files that these messages carry must be closed.
///
/// A message in the inbox of a socket can carry another socket, whose messages can carry further sockets. A program
/// controls the depth, so a recursive close could overflow the kernel stack. Therefore, closing a socket moves its
/// messages to this list, and one loop closes the open files that they carry. On Linux, a thread that drops the last
/// reference to a file adds the file to a list of its own (`fput` and `task_work_run`). Files in flight are closed one
/// socket after another (`__scm_destroy`).
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

    /// Drops references to open files. If the last reference to a socket's open file is dropped, closes the socket,
    /// which adds its messages to this list.
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
    /// Closes the open files of all messages, with scheduling points in between.
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
