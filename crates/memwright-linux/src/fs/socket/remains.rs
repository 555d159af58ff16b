//! What closing an open file leaves to be closed.

use super::message::Message;
use crate::{fs::open_file::OpenFile, sync::PausePoints};
use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec::Vec};

/// Messages that are closed between two scheduling points.
const CLOSES: u32 = 16;

/// The messages of a closed socket. Each socket is made with one, so that closing it allocates nothing.
#[derive(Default)]
pub struct Shell {
    pub(super) messages: VecDeque<Message>,
    next: Option<Box<Shell>>,
}

/// Open files that are held by others that were closed, and are to be closed in turn.
///
/// A program decides how deep open files lie in each other: what closes one therefore never closes another within it. Each
/// kind of file that holds open files hands them over ([`File::leave`](crate::fs::open_file::File::leave)), and one loop
/// closes them all. Linux puts the last reference on a list of the thread (`fput` and `task_work_run`), and closes what is
/// in flight one socket after another (`__scm_destroy`).
#[derive(Default)]
pub struct Remains {
    first: Option<Box<Shell>>,
}

impl Remains {
    /// Adds what waited in a socket.
    pub(super) fn add(&mut self, mut shell: Box<Shell>) {
        shell.next = self.first.take();
        self.first = Some(shell);
    }

    /// Gives up references to open files. What the last of one leaves is added.
    pub(super) fn close_files(&mut self, files: Vec<Arc<OpenFile>>) {
        for file in files {
            if let Some(mut last) = Arc::into_inner(file) {
                last.file.leave(self);
            }
        }
    }
}

impl Drop for Remains {
    /// Closes them, and lets other threads run in between.
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
