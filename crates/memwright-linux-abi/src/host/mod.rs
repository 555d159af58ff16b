//! The interface between the personality and the machine below it. Each trait is a port: a group of related functions
//! of the machine.

mod block;
mod channels;
mod clock;
mod contexts;
mod cpus;
mod events;
mod instruments;
mod registers;
mod trap;
mod user_access;

pub use block::BlockDevice;
pub use channels::{Channel, Channels};
pub use clock::Clock;
pub use contexts::{ContextId, Contexts, OutOfMemory};
pub use cpus::{CpuTimes, Cpus, InterruptKind};
pub use events::KernelEvents;
pub use instruments::{Instruments, StackDepth, Stretch};
pub use registers::Registers;
pub use trap::Trap;
pub use user_access::{UserAccess, UserFault};

use memwright_linux_base::sync::Threads;
use memwright_table::{Machine, X86_64};

/// The machine with all of its ports. The bare-metal kernel implements this trait, and so does the simulated machine of
/// the tests.
pub trait Host:
    Machine<Arch = X86_64, Threads = Threads>
    + Clock
    + Cpus
    + Contexts
    + Registers
    + Channels
    + UserAccess
    + Instruments
{
    /// Returns the disk, if there is one. If the guest clock counts instructions, a transfer takes no guest time.
    fn disk(&self) -> Option<&'static dyn BlockDevice>;

    /// Sets the receiver of the callbacks. Called once, before any other method.
    fn set_events(&self, events: &'static dyn KernelEvents);

    /// Powers the machine off.
    fn power_off(&self, code: u8) -> !;
}
