//! Resource limits.

use memwright_linux_abi::abi_struct;

abi_struct! {
    /// A resource limit (`struct rlimit64`).
    pub struct Limit {
        /// The soft limit.
        pub current: u64,
        /// The hard limit: the soft limit can be raised up to it.
        pub maximum: u64,
    }
}

/// `RLIM64_INFINITY`.
pub const INFINITY: u64 = u64::MAX;

/// The resources, with their numbers in `asm-generic/resource.h`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub enum Resource {
    /// CPU time, in seconds.
    Cpu = 0,
    /// Size of a file, in bytes.
    FileSize = 1,
    /// Size of the data segment, in bytes.
    Data = 2,
    /// Size of the stack, in bytes.
    Stack = 3,
    /// Size of a core file, in bytes.
    Core = 4,
    /// Resident memory, in bytes. The limit has no effect, as on Linux.
    Resident = 5,
    /// Number of threads of a user.
    Processes = 6,
    /// Number of descriptors.
    Files = 7,
    /// Locked memory, in bytes.
    Locked = 8,
    /// Address space, in bytes.
    AddressSpace = 9,
    /// Number of file locks.
    FileLocks = 10,
    /// Number of queued signals.
    PendingSignals = 11,
    /// Bytes in POSIX message queues.
    MessageQueues = 12,
    /// Nice value: the limit is 20 minus the lowest nice value allowed.
    Nice = 13,
    /// Real-time priority.
    RealTimePriority = 14,
    /// CPU time that a real-time thread can use without a blocking system call, in microseconds.
    RealTimeTime = 15,
}

/// Number of resources.
pub const RESOURCES: usize = 16;

/// The limits of a process on all resources.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limits([Limit; RESOURCES]);

impl Limits {
    /// Returns the limits of Linux's first process (`INIT_RLIMITS` of Linux 7.2, `include/asm-generic/resource.h`). The
    /// limits on processes and on queued signals depend on memory (`fork_init`): each is half the number of threads
    /// whose kernel stacks fill an eighth of memory.
    pub fn initial(memory_bytes: u64) -> Self {
        let processes = (memory_bytes / (16 * 1024) / 8).clamp(20, 0x3fff_ffff) / 2;
        let mut limits = [Limit {
            current: INFINITY,
            maximum: INFINITY,
        }; RESOURCES];
        let mut set = |resource: Resource, current, maximum| {
            limits[resource as usize] = Limit { current, maximum };
        };
        set(Resource::Stack, 8 << 20, INFINITY);
        set(Resource::Core, 0, INFINITY);
        set(Resource::Processes, processes, processes);
        set(Resource::Files, 1024, 4096);
        set(Resource::Locked, 8 << 20, 8 << 20);
        set(Resource::PendingSignals, processes, processes);
        set(Resource::MessageQueues, 819_200, 819_200);
        set(Resource::Nice, 0, 0);
        set(Resource::RealTimePriority, 0, 0);
        Self(limits)
    }

    /// Returns one limit.
    pub fn get(&self, resource: Resource) -> Limit {
        self.0[resource as usize]
    }

    /// Sets the soft limit of one resource.
    pub fn set_current(&mut self, resource: Resource, value: u64) {
        self.0[resource as usize].current = value;
    }

    /// Returns a mutable reference to the limit with this number, or `None` if there is no such resource.
    pub fn by_number(&mut self, number: u64) -> Option<&mut Limit> {
        self.0.get_mut(usize::try_from(number).ok()?)
    }

    /// Iterates over the limits, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Limit> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use crate::identity::limits::{INFINITY, Limits, Resource};

    #[test]
    fn linux_defaults() {
        let limits = Limits::initial(512 << 20);
        assert_eq!(limits.get(Resource::Stack).current, 8 << 20);
        assert_eq!(limits.get(Resource::Files).current, 1024);
        assert_eq!(limits.get(Resource::Files).maximum, 4096);
        assert_eq!(limits.get(Resource::Core).current, 0);
        assert_eq!(limits.get(Resource::AddressSpace).current, INFINITY);
        assert_eq!(limits.get(Resource::Processes).current, 2048);
    }
}
