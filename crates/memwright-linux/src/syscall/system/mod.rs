//! System calls on the machine, random numbers, limits and usage.

pub(super) mod name;
pub(super) mod posix_timer;
pub(super) mod set_time;
pub(super) mod swap;
pub(super) mod time;

use crate::{
    abi::Plain,
    abi_struct,
    context::{Arguments, CallResult, Context},
    errno::Errno,
    identity::{Capabilities, Limit, Resource},
    kernel::Kernel,
    process::{FIXED_ADDRESSES, Process, REAPER, ResourceUsage, ticks},
    syscall::call::int,
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general as raw;

abi_struct! {
    /// `struct sysinfo` of `linux/sysinfo.h`.
    pub struct SystemInfo {
        /// Seconds since boot.
        pub uptime: i64,
        /// Load averages.
        pub loads: [u64; 3],
        /// Size of memory in bytes.
        pub total: u64,
        /// Free bytes.
        pub free: u64,
        /// Bytes of shared memory, which are those of files in memory.
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
        /// High memory.
        pub high: u64,
        /// Free high memory.
        pub high_free: u64,
        /// Bytes per unit.
        pub unit: u32,
        /// Padding.
        pub tail: u32,
    }
}

/// Implements `sysinfo`.
pub fn sysinfo(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let kernel = context.kernel;
    let frames = kernel.memory.frames();
    let (swap, swapped) = kernel.memory.swap().totals();
    let info = SystemInfo {
        swap: swap * 4096,
        swap_free: (swap - swapped) * 4096,
        uptime: (kernel.host.now() / crate::abi::SECOND) as i64,
        total: frames.total() * 4096,
        free: frames.free() * 4096,
        shared: frames.used_by(memwright_table::FrameKind::Object) * 4096,
        loads: kernel
            .scheduler
            .load_averages(kernel.host.now())
            .map(|load| load.scaled()),
        processes: living(kernel),
        unit: 1,
        ..SystemInfo::default()
    };
    context.user.write_value(arguments[0], &info).map(|()| 0)
}

fn living(kernel: &Kernel) -> u16 {
    let tasks = kernel.tasks.lock();
    let living = tasks
        .members
        .values()
        .filter(|member| member.process.id != REAPER && member.is_alive());
    living.count() as u16
}

/// Implements `getrandom`. The generator starts from the seed of the run, so the bytes are equal in every run.
pub fn getrandom(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, flags, ..] = *arguments;
    let known = raw::GRND_NONBLOCK | raw::GRND_RANDOM | raw::GRND_INSECURE;
    let both = raw::GRND_RANDOM | raw::GRND_INSECURE;
    if flags as u32 & !known != 0 || flags as u32 & both == both {
        return Err(Errno::EINVAL);
    }
    let length = context.user.transfer_length(address, length)?;
    let mut buffer = [0; 256];
    let mut done = 0;
    while done < length {
        let step = (length - done).min(buffer.len());
        context.kernel.vfs.random.lock().fill(&mut buffer[..step]);
        match context
            .user
            .write_some(address + done as u64, &buffer[..step])
        {
            Ok(count) if count == step => done += count,
            Ok(count) => return Ok((done + count) as u64),
            Err(_) if done > 0 => return Ok(done as u64),
            Err(error) => return Err(error),
        }
        if context.caller().interrupted() && done >= 256 {
            break;
        }
    }
    Ok(done as u64)
}

/// Implements `getrusage`.
pub fn getrusage(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let process = context.process();
    let usage = match int(arguments[0]) {
        raw::RUSAGE_CHILDREN => process.children_usage.snapshot(),
        // RUSAGE_SELF and RUSAGE_THREAD.
        0 => process.total_usage(),
        1 => {
            let mut usage = context.kernel.scheduler.usage_of(context.thread);
            usage.resident_peak = process.total_usage().resident_peak;
            usage
        }
        _ => return Err(Errno::EINVAL),
    };
    context
        .user
        .write_value(arguments[1], &ResourceUsage::from(usage))
        .map(|()| 0)
}

/// Implements `times`.
pub fn times(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let own = context.process().total_usage();
    let children = context.process().children_usage.snapshot();
    let values = [own.user, own.system, children.user, children.system].map(ticks);
    context.user.write_optional(arguments[0], &values)?;
    Ok(ticks(context.kernel.host.now()))
}

/// Implements `getrlimit`.
pub fn getrlimit(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let limit = *context
        .process()
        .identity
        .limits
        .lock()
        .by_number(arguments[0])
        .ok_or(Errno::EINVAL)?;
    context.user.write_value(arguments[1], &limit).map(|()| 0)
}

/// Implements `setrlimit`.
pub fn setrlimit(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let new: Limit = context.user.read_value(arguments[1])?;
    set_limit(context, context.process(), arguments[0], new)?;
    Ok(0)
}

/// Implements `prlimit64`.
pub fn prlimit64(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [id, resource, new, old, ..] = *arguments;
    let new: Option<Limit> = context.user.read_optional(new)?;
    let process = match int(id) {
        0 => context.process().clone(),
        id => context
            .kernel
            .tasks
            .process(id as u32)
            .ok_or(Errno::ESRCH)?,
    };
    let user = process.identity.credentials.lock().user;
    if process.id != context.process().id
        && !context
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
        set_limit(context, &process, resource, new)?;
    }
    context.user.write_optional(old, &before)?;
    Ok(0)
}

/// Sets a limit. Only root is allowed to raise a hard limit. The limit on descriptors cannot exceed `fs.nr_open`.
fn set_limit(
    context: &Context<'_>,
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
        let credentials = context.process().identity.credentials.lock();
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
        context.kernel.spaces.limits(&limits, capabilities)
    };
    if let Some(space) = process.space() {
        space.set_limits(limits);
    }
    if resource == Resource::Cpu as u64 {
        process.watch_cpu_limit()?;
    }
    Ok(())
}

/// Implements `personality`: returns the previous one. Of all changes, fixed addresses alone are supported.
pub(super) fn personality(process: &Process, arguments: &Arguments) -> CallResult {
    /// Asks for the personality and changes nothing.
    const KEEP: u32 = u32::MAX;
    let personality = &process.personality;
    match arguments[0] as u32 {
        KEEP => Ok(personality.load(Ordering::Relaxed).into()),
        new if new & !FIXED_ADDRESSES == 0 => Ok(personality.swap(new, Ordering::Relaxed).into()),
        _ => Err(Errno::EINVAL),
    }
}

const _: () = assert!(SystemInfo::SIZE == 112);
