//! System calls for information about the machine, random numbers, limits and resource usage.

pub(super) mod name;
pub(super) mod posix_timer;
pub(super) mod set_time;
pub(super) mod swap;
pub(super) mod time;

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::int,
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{Memory, abi::Plain, abi_struct, errno::Errno};
use memwright_linux_memory::memory::Spaces;
use memwright_linux_sched::scheduler::Scheduler;
use memwright_linux_tasks::process::{
    FIXED_ADDRESSES, Process, REAPER, ResourceUsage, Tasks, Thread, ticks,
};
use memwright_linux_vfs::identity::{Capabilities, Limit, Resource};

abi_struct! {
    /// `struct sysinfo` of `linux/sysinfo.h`.
    pub struct SystemInfo {
        /// Seconds since boot.
        pub uptime: i64,
        /// Load averages over 1, 5 and 15 minutes.
        pub loads: [u64; 3],
        /// Size of memory in bytes.
        pub total: u64,
        /// Free bytes.
        pub free: u64,
        /// Bytes of shared memory, that is, of files in memory.
        pub shared: u64,
        /// Bytes in buffers.
        pub buffers: u64,
        /// Size of swap in bytes.
        pub swap: u64,
        /// Free bytes of swap.
        pub swap_free: u64,
        /// Number of processes.
        pub processes: u16,
        /// Padding.
        pub padding: [u8; 6],
        /// Amount of high memory.
        pub high: u64,
        /// Amount of free high memory.
        pub high_free: u64,
        /// Size in bytes of the unit of the memory amounts.
        pub unit: u32,
        /// Padding.
        pub tail: u32,
    }
}

/// Implements `sysinfo`.
pub fn sysinfo(
    current: &Current<'_>,
    memory: &Memory,
    tasks: &Tasks,
    arguments: &Arguments,
) -> CallResult {
    let frames = memory.frames();
    let (swap, swapped) = memory.swap().totals();
    let info = SystemInfo {
        swap: swap * 4096,
        swap_free: (swap - swapped) * 4096,
        uptime: (current.now() / memwright_linux_abi::abi::SECOND) as i64,
        total: frames.total() * 4096,
        free: frames.free() * 4096,
        shared: frames.used_by(memwright_table::FrameKind::Object) * 4096,
        loads: tasks
            .scheduler
            .load_averages(current.now())
            .map(|load| load.scaled()),
        processes: living(tasks),
        unit: 1,
        ..SystemInfo::default()
    };
    current.user.write_value(arguments[0], &info).map(|()| 0)
}

fn living(tasks: &Tasks) -> u16 {
    let tasks = tasks.lock();
    let living = tasks
        .members
        .values()
        .filter(|member| member.process.id != REAPER && member.is_alive());
    living.count() as u16
}

/// Implements `getrandom`. The bytes come from a generator that starts with the seed of the run, so runs with equal
/// seeds return equal bytes.
pub fn getrandom(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, flags, ..] = *arguments;
    let known = raw::GRND_NONBLOCK | raw::GRND_RANDOM | raw::GRND_INSECURE;
    let both = raw::GRND_RANDOM | raw::GRND_INSECURE;
    if flags as u32 & !known != 0 || flags as u32 & both == both {
        return Err(Errno::EINVAL);
    }
    let length = current.user.transfer_length(address, length)?;
    let mut buffer = [0; 256];
    let mut done = 0;
    while done < length {
        let step = (length - done).min(buffer.len());
        current.vfs().random.lock().fill(&mut buffer[..step]);
        match current
            .user
            .write_some(address + done as u64, &buffer[..step])
        {
            Ok(count) if count == step => done += count,
            Ok(count) => return Ok((done + count) as u64),
            Err(_) if done > 0 => return Ok(done as u64),
            Err(error) => return Err(error),
        }
        if current.caller().interrupted() && done >= 256 {
            break;
        }
    }
    Ok(done as u64)
}

/// Implements `getrusage`.
pub fn getrusage(
    current: &Current<'_>,
    scheduler: &Scheduler<Thread>,
    arguments: &Arguments,
) -> CallResult {
    let process = current.process();
    let usage = match int(arguments[0]) {
        raw::RUSAGE_CHILDREN => process.children_usage.snapshot(),
        // RUSAGE_SELF and RUSAGE_THREAD.
        0 => process.total_usage(),
        1 => {
            let mut usage = scheduler.usage_of(current.thread);
            usage.resident_peak = process.total_usage().resident_peak;
            usage
        }
        _ => return Err(Errno::EINVAL),
    };
    current
        .user
        .write_value(arguments[1], &ResourceUsage::from(usage))
        .map(|()| 0)
}

/// Implements `times`.
pub fn times(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let own = current.process().total_usage();
    let children = current.process().children_usage.snapshot();
    let values = [own.user, own.system, children.user, children.system].map(ticks);
    current.user.write_optional(arguments[0], &values)?;
    Ok(ticks(current.now()))
}

/// Implements `getrlimit`.
pub fn getrlimit(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let limit = *current
        .process()
        .identity
        .limits
        .lock()
        .by_number(arguments[0])
        .ok_or(Errno::EINVAL)?;
    current.user.write_value(arguments[1], &limit).map(|()| 0)
}

/// Implements `setrlimit`.
pub fn setrlimit(current: &Current<'_>, spaces: &Spaces, arguments: &Arguments) -> CallResult {
    let new: Limit = current.user.read_value(arguments[1])?;
    set_limit(current, spaces, current.process(), arguments[0], new)?;
    Ok(0)
}

/// Implements `prlimit64`.
pub fn prlimit64(
    current: &Current<'_>,
    tasks: &Tasks,
    spaces: &Spaces,
    arguments: &Arguments,
) -> CallResult {
    let [id, resource, new, old, ..] = *arguments;
    let new: Option<Limit> = current.user.read_optional(new)?;
    let process = match int(id) {
        0 => current.process().clone(),
        id => tasks.process(id as u32).ok_or(Errno::ESRCH)?,
    };
    let user = process.identity.credentials.lock().user;
    if process.id != current.process().id
        && !current
            .process()
            .identity
            .credentials
            .lock()
            .may_signal(&user)
    {
        return Err(Errno::EPERM);
    }
    let before = *process
        .identity
        .limits
        .lock()
        .by_number(resource)
        .ok_or(Errno::EINVAL)?;
    if let Some(new) = new {
        set_limit(current, spaces, &process, resource, new)?;
    }
    current.user.write_optional(old, &before)?;
    Ok(0)
}

/// Sets a limit. Raising a hard limit requires `CAP_SYS_RESOURCE`. The limit on descriptors cannot exceed `fs.nr_open`.
fn set_limit(
    current: &Current<'_>,
    spaces: &Spaces,
    process: &Arc<Process>,
    resource: u64,
    new: Limit,
) -> Result<(), Errno> {
    const DESCRIPTORS_MAX: u64 = 1_048_576;
    if new.current > new.maximum {
        return Err(Errno::EINVAL);
    }
    if resource == Resource::Files as u64 && new.maximum > DESCRIPTORS_MAX {
        return Err(Errno::EPERM);
    }
    let may_raise = {
        let credentials = current.process().identity.credentials.lock();
        credentials.has(Capabilities::RESOURCES)
    };
    let capabilities = {
        let credentials = process.identity.credentials.lock();
        credentials.capabilities.effective
    };
    let limits = {
        let mut limits = process.identity.limits.lock();
        let limit = limits.by_number(resource).ok_or(Errno::EINVAL)?;
        if new.maximum > limit.maximum && !may_raise {
            return Err(Errno::EPERM);
        }
        *limit = new;
        spaces.limits(&limits, capabilities)
    };
    if let Some(space) = process.space() {
        space.set_limits(limits);
    }
    if resource == Resource::Cpu as u64 {
        process.watch_cpu_limit()?;
    }
    Ok(())
}

/// Implements `personality`: returns the previous personality. The only flag that can be changed is
/// `ADDR_NO_RANDOMIZE`.
pub(super) fn personality(process: &Process, arguments: &Arguments) -> CallResult {
    /// The argument that requests the present personality without a change.
    const KEEP: u32 = u32::MAX;
    let personality = &process.personality;
    match arguments[0] as u32 {
        KEEP => Ok(personality.load(Ordering::Relaxed).into()),
        new if new & !FIXED_ADDRESSES == 0 => Ok(personality.swap(new, Ordering::Relaxed).into()),
        _ => Err(Errno::EINVAL),
    }
}

const _: () = assert!(SystemInfo::SIZE == 112);
