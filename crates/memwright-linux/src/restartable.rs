//! Restartable sequences: before a thread that has left a CPU returns to user mode, it writes the number of its present
//! CPU for the program and aborts the critical section that it was in (Linux 6.18 `kernel/rseq.c`).

use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_base::sync;
use memwright_linux_sched::scheduler::Work;
use memwright_linux_tasks::process::{Registration, Section, Thread};
use memwright_linux_vfs::user::UserMemory;

/// The CPU and the node on which a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cpu: u32,
    pub(crate) node: u32,
}

impl Place {
    /// Returns the CPU and the node of the calling thread.
    pub(crate) fn of(memory: &Memory) -> Self {
        let cpu = sync::cpu();
        Self {
            cpu: cpu.index() as u32,
            node: memory.frames().topology().node_of(cpu).into(),
        }
    }
}

/// The value of `cpu_id` after a registration has ended (`RSEQ_CPU_ID_UNINITIALIZED`).
const NOWHERE: u32 = u32::MAX;

/// Writes the fields of `struct rseq` that contain the CPU and the node. The number of the CPU also serves as `mm_cid`.
fn write(user: UserMemory<'_>, at: u64, [start, cpu, node, id]: [u32; 4]) -> Result<(), Errno> {
    user.write_value(at, &[start, cpu])?;
    user.write_value(at + 20, &[node, id])
}

/// Begins a registration: writes the fields. From now on, the scheduler sets [`Work::RESTARTABLE`] when the thread has
/// left a CPU.
///
/// # Errors
/// `EFAULT` if the structure cannot be written.
pub(crate) fn register(
    user: UserMemory<'_>,
    thread: &Thread,
    wanted: Registration,
    place: Place,
) -> Result<(), Errno> {
    user.write_value(wanted.address + 8, &0u64)?;
    *thread.registration.lock() = wanted;
    thread.set_restartable(Some(place.cpu));
    let Place { cpu, node } = place;
    write(user, wanted.address, [cpu, cpu, node, cpu]).inspect_err(|_| forget(thread))
}

/// Ends a registration: resets the fields.
///
/// # Errors
/// `EFAULT` if the structure cannot be written. After this error, the thread stays registered.
pub(crate) fn unregister(user: UserMemory<'_>, thread: &Thread) -> Result<(), Errno> {
    let address = thread.registration.lock().address;
    write(user, address, [0, NOWHERE, 0, 0])?;
    forget(thread);
    Ok(())
}

/// Ends a registration without writing to the program's `struct rseq`.
pub(crate) fn forget(thread: &Thread) {
    *thread.registration.lock() = Registration::default();
    thread.set_restartable(None);
    thread.set_work(Work::RESTARTABLE, false);
}

/// Aborts the critical section that contains `instruction`, if the program is in one. Returns the address at which user
/// mode continues.
///
/// # Errors
/// `EFAULT` or `EINVAL` if the program's structures are invalid. The caller then raises SIGSEGV.
pub(crate) fn abort(user: UserMemory<'_>, thread: &Thread, instruction: u64) -> Result<u64, Errno> {
    let registration = *thread.registration.lock();
    let pointer = registration.address + 8;
    let address: u64 = user.read_value(pointer)?;
    if address == 0 {
        return Ok(instruction);
    }
    let section: Section = user.read_value(address)?;
    section.check()?;
    let signature: u32 = user.read_value(section.abort - 4)?;
    if signature != registration.signature {
        return Err(Errno::EINVAL);
    }
    if !section.contains(instruction) {
        user.write_value(pointer, &0u64)?;
        return Ok(instruction);
    }
    let flags: u32 = user.read_value(registration.address + 16)?;
    if section.flags != 0 || flags != 0 {
        return Err(Errno::EINVAL);
    }
    user.write_value(pointer, &0u64)?;
    Ok(section.abort)
}

/// Handles [`Work::RESTARTABLE`]: aborts the critical section and writes the number of the CPU. Returns the address at
/// which user mode continues. If the thread leaves the CPU during the call, the scheduler sets the flag again.
///
/// # Errors
/// The errors of [`abort`].
pub(crate) fn settle(
    user: UserMemory<'_>,
    thread: &Thread,
    place: Place,
    instruction: u64,
) -> Result<u64, Errno> {
    thread.set_work(Work::RESTARTABLE, false);
    let next = abort(user, thread, instruction)?;
    let Place { cpu, node } = place;
    thread.set_restartable(Some(cpu));
    let address = thread.registration.lock().address;
    write(user, address, [cpu, cpu, node, cpu])?;
    Ok(next)
}
