//! The signal that the owner of an open file gets when input or output becomes possible (Linux 7.2 `fs/fcntl.c`,
//! `send_sigio`).

use crate::process::{Process, Tasks, Thread, queue};
use alloc::sync::{Arc, Weak};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{
    errno::Errno,
    signal::{Detail, Signal, SignalInfo},
};
use memwright_linux_base::sync::Lock;
use memwright_linux_sched::wait::{Observer, Queues};
use memwright_linux_vfs::{
    fs::{
        OpenFile, Readiness,
        caller::Caller,
        file_owner::{Ownership, Who},
        open_kind::OpenKind,
    },
    identity::Ids,
};

/// The event that a signal reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Band {
    /// `POLL_IN`.
    Input,
    /// `POLL_OUT`.
    Output,
    /// Urgent data (`send_sigurg`).
    Urgent,
}

impl Band {
    /// Returns `si_code` and `si_band`.
    const fn fields(self) -> (i32, u64) {
        match self {
            Self::Input => (1, 0x41),
            Self::Output => (2, 0x304),
            Self::Urgent => (5, 0x82),
        }
    }
}

/// Observes a queue of an open file and sends a signal to the owner of the file when the queue is notified.
struct Notice {
    tasks: &'static Tasks,
    ownership: Arc<Lock<Ownership>>,
    descriptor: i32,
    band: Band,
}

/// Returns whether the caller of `F_SETOWN`, which had the user ids `real` and `effective`, is allowed to signal a
/// process with the user ids `other` (`sigio_perm`).
fn may_signal([real, effective]: [u32; 2], other: &Ids) -> bool {
    effective == 0
        || [real, effective]
            .iter()
            .any(|id| *id == other.saved || *id == other.real)
}

impl Notice {
    /// Returns the signal to send: SIGURG for urgent data, SIGIO without details if the owner chose no signal (`number`
    /// is 0), and otherwise the signal `number` with `si_code`, `si_band` and `si_fd`.
    fn info(&self, number: u8) -> SignalInfo {
        if self.band == Band::Urgent {
            return SignalInfo::kernel(Signal::SIGURG);
        }
        let Some(signal) = Signal::new(number.into()) else {
            return SignalInfo::kernel(Signal::SIGIO);
        };
        let (code, band) = self.band.fields();
        let mut rest = [0; 112];
        rest[..8].copy_from_slice(&band.to_le_bytes());
        rest[8..12].copy_from_slice(&self.descriptor.to_le_bytes());
        SignalInfo {
            signal,
            code,
            errno: 0,
            detail: Detail::Raw(rest),
        }
    }

    fn send(&self, ownership: &Ownership, process: &Arc<Process>, thread: Option<&Arc<Thread>>) {
        let user = process.identity.credentials.lock().user;
        if !may_signal(ownership.users, &user) {
            return;
        }
        // If the signal with its details cannot be queued, send SIGIO without details.
        if queue(process, thread, self.info(ownership.signal)).is_err() {
            let _ = queue(process, thread, SignalInfo::kernel(Signal::SIGIO));
        }
    }
}

impl Observer for Notice {
    fn notify(self: Arc<Self>) -> bool {
        let ownership = *self.ownership.lock();
        match ownership.who {
            Who::Nobody => {}
            Who::Thread(id) => {
                if let Some(thread) = self.tasks.thread(id) {
                    self.send(&ownership, &thread.process, Some(&thread));
                }
            }
            Who::Process(id) => {
                if let Some(process) = self.tasks.process(id) {
                    self.send(&ownership, &process, None);
                }
            }
            Who::Group(id) => {
                for process in self.tasks.group(id) {
                    self.send(&ownership, &process, None);
                }
            }
        }
        false
    }

    fn is_exclusive(&self) -> bool {
        false
    }
}

/// Returns whether `O_ASYNC` has an effect on the file, which is the case for pipes and sockets.
fn notifies(open: &OpenFile) -> bool {
    matches!(open.file.counted_as(), OpenKind::Pipe | OpenKind::Socket)
}

/// Sets or clears `O_ASYNC` of an open file. For pipes and sockets, also starts or stops sending signals to the owner.
/// On other files the flag has no effect.
///
/// # Errors
/// `ENOMEM`; the flag is then unchanged.
pub fn set_asynchronous(
    caller: &dyn Caller,
    tasks: &'static Tasks,
    open: &OpenFile,
    descriptor: i32,
    wanted: bool,
) -> Result<(), Errno> {
    let flags = open.flags();
    if (flags & raw::FASYNC != 0) == wanted {
        return Ok(());
    }
    if wanted && notifies(open) {
        caller.check_heap()?;
        let owner = open.owner.get_or_make();
        let notice = |band| {
            Arc::new(Notice {
                tasks,
                ownership: owner.ownership.clone(),
                descriptor,
                band,
            })
        };
        let notices = [notice(Band::Input), notice(Band::Output)];
        for (notice, wanted) in notices.iter().zip([Readiness::READ, Readiness::WRITE]) {
            let mut queues = Queues::new();
            open.file.queues(caller, wanted, &mut queues);
            queues.complete()?;
            for queue in queues.iter() {
                let observer: Weak<Notice> = Arc::downgrade(notice);
                queue.observe(observer)?;
            }
        }
        let notices = notices.map(|notice| -> Arc<dyn Observer> { notice });
        let before = owner.notices.lock().replace(notices);
        drop(before);
    } else if let Some(owner) = open.owner.get() {
        let before = owner.notices.lock().take();
        drop(before);
    }
    let changed = if wanted {
        flags | raw::FASYNC
    } else {
        flags & !raw::FASYNC
    };
    open.set_flags(changed);
    Ok(())
}

/// Sets or clears `O_ASYNC` for `FIOASYNC`.
///
/// # Errors
/// `ENOTTY` if the call would change the flag of a file on which the flag has no effect, and the errors of
/// [`set_asynchronous`].
pub fn control_asynchronous(
    caller: &dyn Caller,
    tasks: &'static Tasks,
    open: &OpenFile,
    descriptor: i32,
    wanted: bool,
) -> Result<(), Errno> {
    if (open.flags() & raw::FASYNC != 0) != wanted && !notifies(open) {
        return Err(Errno::ENOTTY);
    }
    set_asynchronous(caller, tasks, open, descriptor, wanted)
}

/// Makes `who` the owner of an open file, at the request of the calling process.
///
/// # Errors
/// `ESRCH` if there is no such thread, process or group, `ENOMEM`.
pub fn set_owner(
    caller: &dyn Caller,
    tasks: &'static Tasks,
    open: &OpenFile,
    who: Who,
) -> Result<(), Errno> {
    let exists = match who {
        Who::Nobody => true,
        Who::Thread(id) => tasks.thread(id).is_some(),
        Who::Process(id) => tasks.process(id).is_some(),
        Who::Group(id) => tasks.group(id).next().is_some(),
    };
    if !exists {
        return Err(Errno::ESRCH);
    }
    caller.check_heap()?;
    let user = caller.identity().credentials.lock().user;
    let owner = open.owner.get_or_make();
    if matches!(open.file.counted_as(), OpenKind::Socket) {
        let notice: Arc<dyn Observer> = Arc::new(Notice {
            tasks,
            ownership: owner.ownership.clone(),
            descriptor: -1,
            band: Band::Urgent,
        });
        let before = owner.urgent.lock().replace(notice);
        drop(before);
    }
    let mut ownership = owner.ownership.lock();
    ownership.who = who;
    ownership.users = [user.real, user.effective];
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Ids, may_signal};

    #[test]
    fn owners_are_signalled_by_their_own_and_by_root() {
        let ids = |real, saved| Ids {
            real,
            saved,
            ..Ids::default()
        };
        for (users, other, expected) in [
            ([7, 0], ids(8, 8), true),
            ([7, 7], ids(7, 8), true),
            ([7, 9], ids(8, 9), true),
            ([7, 9], ids(8, 8), false),
            ([0, 9], ids(8, 8), false),
        ] {
            assert_eq!(may_signal(users, &other), expected, "{users:?} {other:?}");
        }
    }
}
