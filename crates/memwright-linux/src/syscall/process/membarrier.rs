//! `membarrier`: memory barriers on other CPUs.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
};
use core::sync::atomic::{Ordering, fence};
use linux_raw_sys::general::membarrier_cmd as raw;
use memwright_linux_abi::errno::Errno;
use memwright_linux_abi::host::Host;
use memwright_linux_base::flags;
use memwright_linux_base::sync;
use memwright_table::CpuSet;

flags! {
    /// The kinds of barriers for which a process has registered. Each bit has the value of the command that registers
    /// for that kind.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    struct Registered: u32 {
        const GLOBAL = raw::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u32;
        const PRIVATE = raw::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as u32;
    }
}

/// The supported commands, in the format that a query returns.
const COMMANDS: u32 = raw::MEMBARRIER_CMD_GLOBAL as u32
    | raw::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u32
    | raw::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u32
    | raw::MEMBARRIER_CMD_PRIVATE_EXPEDITED as u32
    | raw::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as u32
    | raw::MEMBARRIER_CMD_GET_REGISTRATIONS as u32;

/// The CPUs on which a barrier is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// The CPUs that can be running a thread of the caller's address space.
    Space,
    /// All CPUs of the machine.
    Machine,
}

/// A decoded command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Query,
    Registrations,
    Register(Registered),
    /// Executes a barrier on these CPUs. The process must have this registration.
    Barrier(Extent, Registered),
}

fn decode(command: u32) -> Option<Command> {
    const QUERY: u32 = raw::MEMBARRIER_CMD_QUERY as u32;
    const GLOBAL: u32 = raw::MEMBARRIER_CMD_GLOBAL as u32;
    const GLOBAL_EXPEDITED: u32 = raw::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u32;
    const PRIVATE_EXPEDITED: u32 = raw::MEMBARRIER_CMD_PRIVATE_EXPEDITED as u32;
    const REGISTRATIONS: u32 = raw::MEMBARRIER_CMD_GET_REGISTRATIONS as u32;
    Some(match command {
        QUERY => Command::Query,
        GLOBAL | GLOBAL_EXPEDITED => Command::Barrier(Extent::Machine, Registered::empty()),
        PRIVATE_EXPEDITED => Command::Barrier(Extent::Space, Registered::PRIVATE),
        REGISTRATIONS => Command::Registrations,
        command => {
            let registered = Registered::from_bits(command)?;
            (registered.bits().count_ones() == 1).then_some(Command::Register(registered))?
        }
    })
}

/// Implements `membarrier` (`kernel/sched/membarrier.c` of Linux 7.2). The global barrier interrupts the CPUs, like the
/// expedited one. Linux waits for an RCU grace period instead.
pub fn membarrier(current: &Current<'_>, machine: &dyn Host, arguments: &Arguments) -> CallResult {
    let [command, flags, ..] = *arguments;
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let registered = &current.process().barriers;
    match decode(command as u32).ok_or(Errno::EINVAL)? {
        Command::Query => Ok(COMMANDS.into()),
        Command::Registrations => Ok(registered.load(Ordering::Relaxed).into()),
        Command::Register(what) => {
            registered.fetch_or(what.bits(), Ordering::Relaxed);
            Ok(0)
        }
        Command::Barrier(extent, needed) => {
            let have = Registered::from_bits_truncate(registered.load(Ordering::Relaxed));
            if !have.contains(needed) {
                return Err(Errno::EPERM);
            }
            barrier(current, machine, extent);
            Ok(0)
        }
    }
}

/// Interrupts the CPUs and waits for an acknowledgement from each. The accesses of these CPUs before their
/// acknowledgements are ordered before the accesses of the caller after this call. The accesses of the caller before
/// this call are ordered before the accesses of these CPUs after their acknowledgements.
fn barrier(current: &Current<'_>, machine: &dyn Host, extent: Extent) {
    // A CPU that loads the address space after this fence executes a barrier as part of the load.
    fence(Ordering::SeqCst);
    let (root, loaded) = current.with_space(|space| (space.table().root(), space.table().loaded()));
    let targets = match extent {
        Extent::Space => loaded,
        Extent::Machine => CpuSet::from_bits(u64::MAX >> (64 - machine.cpu_count())),
    };
    let targets = targets.without(sync::cpu());
    if !targets.is_empty() {
        machine.invalidate_remote(targets, root, &[]);
    }
    fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::{Command, Extent, Registered, decode};

    #[test]
    fn commands_are_decoded() {
        for (command, expected) in [
            (0, Some(Command::Query)),
            (
                1,
                Some(Command::Barrier(Extent::Machine, Registered::empty())),
            ),
            (
                2,
                Some(Command::Barrier(Extent::Machine, Registered::empty())),
            ),
            (4, Some(Command::Register(Registered::GLOBAL))),
            (
                8,
                Some(Command::Barrier(Extent::Space, Registered::PRIVATE)),
            ),
            (16, Some(Command::Register(Registered::PRIVATE))),
            (20, None),
            // Core-serialising barriers, and barriers for restartable sequences, are rejected.
            (32, None),
            (64, None),
            (128, None),
            (256, None),
            (512, Some(Command::Registrations)),
            (3, None),
            (1024, None),
        ] {
            assert_eq!(decode(command), expected, "{command}");
        }
    }
}
