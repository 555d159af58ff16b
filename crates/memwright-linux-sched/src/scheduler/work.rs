//! The flags of the work that a thread handles before it returns to user mode.

use memwright_linux_base::flags;
flags! {
    /// Flags for work that a thread handles before it returns to user mode.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct Work: u32 {
        /// A signal, a stop or an exit is pending.
        const SIGNAL = 1;
        /// The thread is being killed. This also ends waits that other signals do not interrupt.
        const FATAL = 2;
        /// The thread called `exit`: it exits, but the other threads of its process continue.
        const EXIT = 4;
        /// The set of CPUs that the thread may run on has changed.
        const MIGRATE = 8;
        /// The user registers were replaced, so all of them must be reloaded.
        const REGISTERS = 16;
        /// The thread is in a cgroup and checks the cgroup's limit on every return to user mode.
        const CGROUP = 32;
        /// The `memwright` command has sent a control byte, which the thread handles for the kernel.
        const CONTROL = 64;
        /// The thread has left a CPU since the kernel last wrote a CPU number to its `struct rseq`.
        const RESTARTABLE = 128;
        /// The thread has hardware breakpoints, and loads its debug registers on every return to user mode.
        const DEBUG = 256;
        /// The thread was switched to, and its process has a CPU time limit or timers that measure CPU time.
        const CPU_TIME = 512;
    }
}
