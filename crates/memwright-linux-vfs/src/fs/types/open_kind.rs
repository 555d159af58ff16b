//! Counts open files by class.

use core::sync::atomic::{AtomicU64, Ordering};

/// The classes in which open files are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum OpenKind {
    /// Files with a name, files of `/proc`, and devices.
    Named,
    /// Pipe ends.
    Pipe,
    /// Sockets.
    Socket,
    /// Epolls (`epoll_create1`).
    Epoll,
    /// Eventfds (`eventfd`).
    Event,
    /// Timerfds (`timerfd_create`).
    Timer,
    /// Signalfds (`signalfd`).
    Signal,
    /// Pidfds (`pidfd_open`).
    Process,
    /// Userfaultfds (`userfaultfd`).
    Userfault,
    /// Rings (`io_uring_setup`).
    Ring,
    /// Performance events (`perf_event_open`).
    Performance,
}

impl OpenKind {
    /// All classes in the order of their values, with the names that the leak report at the end of a run uses.
    pub const ALL: [(Self, &'static str); 11] = [
        (Self::Named, "files"),
        (Self::Pipe, "pipe ends"),
        (Self::Socket, "sockets"),
        (Self::Epoll, "epolls"),
        (Self::Event, "eventfds"),
        (Self::Timer, "timerfds"),
        (Self::Signal, "signalfds"),
        (Self::Process, "pidfds"),
        (Self::Userfault, "userfaultfds"),
        (Self::Ring, "io_urings"),
        (Self::Performance, "perf events"),
    ];
}

/// The number of open files of each class.
#[derive(Default)]
pub struct OpenCounts([AtomicU64; OpenKind::ALL.len()]);

impl OpenCounts {
    /// Counts an open file of the class `kind`.
    pub(in crate::fs) fn add(&self, kind: OpenKind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Removes an open file of the class `kind`, which is being closed, from the count.
    pub(in crate::fs) fn remove(&self, kind: OpenKind) {
        self.0[kind as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the total number of open files.
    pub fn total(&self) -> u64 {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        counts.sum()
    }

    /// Returns the names and the counts of the classes with open files.
    pub fn left(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        let named = OpenKind::ALL.iter().map(|(_, name)| *name);
        named.zip(counts).filter(|(_, count)| *count > 0)
    }
}
