//! Exits from user mode.

/// The reason for an exit from user mode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trap {
    /// A system call has been served, and the thread has work flags that must be handled.
    Syscall,
    /// A page fault at the address `address`.
    PageFault {
        /// The address that was accessed.
        address: u64,
        /// Whether the access was a write.
        write: bool,
        /// Whether the access was an instruction fetch.
        fetch: bool,
        /// Whether a present page-table entry maps the address, but its rights do not permit the access.
        present: bool,
    },
    /// A data access that the PKRU of this CPU denies because of the protection key of the page.
    KeyFault {
        /// The address that was accessed.
        address: u64,
        /// Whether the access was a write.
        write: bool,
    },
    /// A processor exception of another kind.
    Exception {
        /// The vector: 0 divide error, 3 breakpoint, 6 invalid opcode, 13 general protection, ...
        vector: u8,
        /// The error code; zero for vectors that push none. For vector 1, the bits that are set in DR6.
        error: u64,
    },
    /// The deadline of this CPU has passed.
    Timer,
    /// A control byte of the command has arrived.
    Control,
    /// Another CPU requested that this CPU check its run queue.
    Reschedule,
}
