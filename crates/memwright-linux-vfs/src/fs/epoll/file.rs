//! Epolls as open files.

use crate::fs::{
    abilities::{Polling, Positions},
    caller::Caller,
    epoll::Epoll,
    open_file::{File, OpenFile},
    open_kind::OpenKind,
    readiness::Readiness,
};
use alloc::sync::Arc;
use memwright_linux_sched::wait::Queues;

/// The open file of an epoll (`epoll_create1`).
pub struct EpollFile {
    /// The entries and the ready list.
    pub epoll: Arc<Epoll>,
}

impl File for EpollFile {
    fn counted_as(&self) -> OpenKind {
        OpenKind::Epoll
    }

    fn kernel_bytes(&self) -> u64 {
        /// Estimated size of an entry in bytes, including its nodes in trees and lists.
        const ENTRY: usize = 256;
        ((self.epoll.items.lock().len() + 2) * ENTRY) as u64
    }

    fn positions(&self) -> Positions {
        Positions::Ignored
    }

    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn readiness(&self, caller: &dyn Caller, _open: &OpenFile) -> Readiness {
        if self.epoll.has_ready(caller) {
            Readiness::READ
        } else {
            Readiness::empty()
        }
    }

    fn queues<'a>(&'a self, _caller: &'a dyn Caller, _wanted: Readiness, queues: &mut Queues<'a>) {
        queues.add(&self.epoll.queue);
    }
}
