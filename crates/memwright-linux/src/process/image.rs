//! What exec noted about the program of an address space.

use crate::{
    fs::Executable,
    sync::{Lock, Rank},
};
use alloc::sync::Arc;

/// The heap that `brk` moves.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Heap {
    /// Where it starts.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
}

/// Addresses that `/proc/PID/stat` and `cmdline` report.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ImageAddresses {
    /// First byte of the arguments.
    pub arguments_start: u64,
    /// End of the arguments.
    pub arguments_end: u64,
    /// First byte of the environment.
    pub environment_start: u64,
    /// End of the environment.
    pub environment_end: u64,
    /// Start of the program's code.
    pub code_start: u64,
    /// End of the program's code.
    pub code_end: u64,
    /// Start of the program's initialised data.
    pub data_start: u64,
    /// End of the program's initialised data.
    pub data_end: u64,
    /// Initial stack pointer.
    pub stack_start: u64,
}

impl ImageAddresses {
    /// Pages of the program's code (`VmExe`), of `executable` pages in all executable areas (`task_mem` in
    /// `fs/proc/task_mmu.c` of Linux 7.2).
    pub fn code_pages(&self, executable: u64) -> u64 {
        let end = self.code_end.next_multiple_of(4096);
        ((end - (self.code_start & !4095)) / 4096).min(executable)
    }
}

/// The program of an address space; shared with it by `CLONE_VM`.
pub struct Image {
    /// The executable, for `/proc/PID/exe`.
    pub executable: Arc<Executable>,
    /// Where things are.
    pub addresses: ImageAddresses,
    /// The auxiliary vector as the program got it.
    pub auxiliary: alloc::vec::Vec<u8>,
    /// The heap.
    pub heap: Lock<Heap>,
}

impl Image {
    /// The image of a program that was just loaded.
    pub fn new(
        executable: Arc<Executable>,
        addresses: ImageAddresses,
        auxiliary: alloc::vec::Vec<u8>,
        heap: Heap,
    ) -> Self {
        Self {
            executable,
            addresses,
            auxiliary,
            heap: Lock::new(Rank::Process, heap),
        }
    }

    /// The image of a forked copy.
    pub fn fork(&self) -> Self {
        let heap = *self.heap.lock();
        Self::new(
            self.executable.clone(),
            self.addresses,
            self.auxiliary.clone(),
            heap,
        )
    }
}
