//! `signalfd`: descriptors from which threads read pending signals instead of handling them.
//!
//! As on Linux, a thread that reads or polls the descriptor receives the signals of its own process and thread, not
//! those of the thread that created the descriptor.

use crate::process::{Tasks, Thread};
use alloc::sync::Arc;
use memwright_linux_abi::{
    abi::Plain,
    abi_struct,
    errno::Errno,
    signal::{Detail, SignalInfo, SignalSet},
};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_sched::wait::Queues;
use memwright_linux_vfs::fs::{
    abilities::{Polling, Positions},
    caller::Caller,
    open_file::{File, OpenFile},
    open_kind::OpenKind,
    readiness::Readiness,
    transfer::Sink,
};

abi_struct! {
    /// `struct signalfd_siginfo` of `linux/signalfd.h`.
    pub struct SignalRecord {
        /// Signal number.
        pub signal: u32,
        /// `si_errno`.
        pub errno: i32,
        /// `si_code`.
        pub code: i32,
        /// Sender's process id.
        pub process: u32,
        /// Sender's user id.
        pub user: u32,
        /// Descriptor, for SIGIO.
        pub descriptor: i32,
        /// Timer id.
        pub timer: u32,
        /// Band, for SIGIO.
        pub band: u32,
        /// Overrun count of a timer.
        pub overrun: u32,
        /// Trap number.
        pub trap: u32,
        /// Exit status or signal of a child.
        pub status: i32,
        /// Integer sent with the signal.
        pub integer: i32,
        /// Pointer sent with the signal.
        pub pointer: u64,
        /// User time of a child in clock ticks.
        pub user_ticks: u64,
        /// Kernel time of a child in clock ticks.
        pub system_ticks: u64,
        /// The address of a fault.
        pub address: u64,
        /// The remaining fields, which are always zero.
        pub rest: [u64; 6],
    }
}

impl From<&SignalInfo> for SignalRecord {
    fn from(info: &SignalInfo) -> Self {
        let mut record = Self {
            signal: info.signal.number().into(),
            errno: info.errno,
            code: info.code,
            ..Self::default()
        };
        match info.detail {
            Detail::None => {}
            Detail::Sender { process, user } => {
                record.process = process;
                record.user = user;
            }
            Detail::Fault { address }
            | Detail::Key { address, .. }
            | Detail::Poison { address, .. } => record.address = address,
            Detail::Child {
                process,
                user,
                status,
                user_ticks,
                system_ticks,
            } => {
                record.process = process;
                record.user = user;
                record.status = status;
                record.user_ticks = user_ticks as u64;
                record.system_ticks = system_ticks as u64;
            }
            Detail::Timer {
                timer,
                overrun,
                value,
            } => {
                record.timer = timer as u32;
                record.overrun = overrun as u32;
                record.integer = value as i32;
                record.pointer = value;
            }
            // `sigqueue` stores the process id, the user id and the value at these offsets.
            Detail::Raw(bytes) => {
                record.process = u32::from_bytes(&bytes[0..4]);
                record.user = u32::from_bytes(&bytes[4..8]);
                record.pointer = u64::from_bytes(&bytes[8..16]);
                record.integer = record.pointer as i32;
            }
        }
        record
    }
}

/// The open file behind a descriptor of `signalfd4`.
pub struct SignalFile {
    tasks: &'static Tasks,
    mask: Lock<SignalSet>,
}

impl SignalFile {
    /// Creates the open file of a signalfd that reads the signals in `mask`.
    #[must_use]
    pub const fn new(tasks: &'static Tasks, mask: SignalSet) -> Self {
        Self {
            tasks,
            mask: Lock::new(Rank::Leaf, mask),
        }
    }

    /// Replaces the mask. Wakes the threads of the calling process that wait for a signal, so that they check the new
    /// mask.
    pub fn set_mask(&self, caller: &dyn Caller, mask: SignalSet) {
        *self.mask.lock() = mask;
        caller.signal_arrivals().wake_all();
    }

    /// Returns the calling thread. A read returns the signals of this thread and of its process.
    fn thread(&self, caller: &dyn Caller) -> Arc<Thread> {
        let thread = self.tasks.thread(caller.ids().thread);
        thread.expect("the caller is a living thread")
    }

    fn take(&self, thread: &Thread) -> Option<SignalInfo> {
        let mask = *self.mask.lock();
        loop {
            let taken = {
                let mut signals = thread.process.signals.lock();
                let taken = signals.take(thread, SignalSet(!mask.0))?;
                signals.recalculate(thread);
                taken
            };
            let completed = thread.process.complete_signal(taken);
            if completed.is_some() {
                return completed;
            }
        }
    }
}

impl File for SignalFile {
    fn counted_as(&self) -> OpenKind {
        OpenKind::Signal
    }

    fn positions(&self) -> Positions {
        Positions::Ignored
    }

    fn read(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        _position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        let thread = self.thread(caller);
        let mut done = 0;
        if sink.left() < SignalRecord::SIZE {
            return Err(Errno::EINVAL);
        }
        while sink.left() >= SignalRecord::SIZE {
            let info = match self.take(&thread) {
                Some(info) => info,
                None if done > 0 => break,
                None if open.is_nonblocking() => return Err(Errno::EAGAIN),
                None => {
                    let queue = caller.signal_arrivals();
                    caller
                        .wait_until(&[queue], None, || self.take(&thread))
                        .map_err(|error| error.restart())?
                }
            };
            let mut bytes = [0; SignalRecord::SIZE];
            SignalRecord::from(&info).to_bytes(&mut bytes);
            match sink.put(&bytes) {
                Ok(count) => done += count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn readiness(&self, caller: &dyn Caller, _open: &OpenFile) -> Readiness {
        let mask = *self.mask.lock();
        let thread = self.thread(caller);
        let mut signals = thread.process.signals.lock();
        let shared = signals.pending.set();
        let own = signals.thread(&thread).pending.set();
        let mut ready = Readiness::empty();
        let waiting = shared.union(own).intersection(mask);
        ready.set(Readiness::READ, !waiting.is_empty());
        ready
    }

    fn queues<'a>(&'a self, caller: &'a dyn Caller, _wanted: Readiness, queues: &mut Queues<'a>) {
        queues.add(caller.signal_arrivals());
    }
}

const _: () = assert!(SignalRecord::SIZE == 128);
