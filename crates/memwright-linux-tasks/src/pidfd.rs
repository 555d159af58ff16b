//! `pidfd_open`: descriptors that refer to processes, for waiting and for sending signals.

use crate::process::{Life, Process};
use alloc::{boxed::Box, sync::Arc};
use core::fmt;
use linux_raw_sys::general as raw;
use memwright_linux_sched::wait::Queues;
use memwright_linux_vfs::fs::{
    abilities::{Polling, Positions},
    caller::Caller,
    open_file::{File, OpenFile},
    open_kind::OpenKind,
    readiness::Readiness,
    vfs::Vfs,
};

/// The open file behind a descriptor that refers to a process.
pub struct ProcessFile {
    /// The process. The id alone would not identify it: once the process has been reaped, another one can get the same
    /// id.
    pub process: Arc<Process>,
}

impl ProcessFile {
    /// Returns the state of the process; `None` once it has been reaped.
    #[must_use]
    pub fn life(&self) -> Option<Life> {
        life(&self.process)
    }
}

/// Returns the state of `process`; `None` once it has been reaped.
fn life(process: &Arc<Process>) -> Option<Life> {
    let tasks = process.tasks.lock();
    let member = tasks.members.get(&process.id)?;
    Arc::ptr_eq(&member.process, process).then_some(member.life)
}

/// Creates an open file that refers to a process, for `pidfd_open` and `CLONE_PIDFD`. `flags` can contain `O_NONBLOCK`.
/// The caller installs the descriptor and sets its close-on-exec flag.
pub fn open(vfs: &'static Vfs, process: &Arc<Process>, flags: u32) -> Arc<OpenFile> {
    let file = ProcessFile {
        process: process.clone(),
    };
    let status = raw::O_RDWR | flags & raw::O_NONBLOCK;
    vfs.mounts
        .open_anonymous(vfs, "[pidfd]", status, Box::new(file))
}

impl File for ProcessFile {
    fn counted_as(&self) -> OpenKind {
        OpenKind::Process
    }

    fn positions(&self) -> Positions {
        Positions::Refused
    }

    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn readiness(&self, _caller: &dyn Caller, _open: &OpenFile) -> Readiness {
        match self.life() {
            Some(Life::Alive(_)) => Readiness::empty(),
            Some(Life::Zombie(_)) => Readiness::READ,
            None => Readiness::READ | Readiness::HANGUP,
        }
    }

    fn queues<'a>(&'a self, _caller: &'a dyn Caller, _wanted: Readiness, queues: &mut Queues<'a>) {
        queues.add(&self.process.ended);
    }

    fn describe(&self, _caller: &dyn Caller, out: &mut dyn fmt::Write) -> fmt::Result {
        let id = match self.life() {
            Some(_) => i64::from(self.process.id),
            None => -1,
        };
        writeln!(out, "Pid:\t{id}\nNSpid:\t{id}")
    }
}
