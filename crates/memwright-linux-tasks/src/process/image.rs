//! The data that `execve` records about the program of an address space.

use alloc::sync::Arc;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_vfs::fs::Executable;

/// The heap, whose end (the program break) `brk` moves.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Heap {
    /// Address of the first byte.
    pub start: u64,
    /// The program break: the address after the last byte.
    pub end: u64,
}

/// The addresses of the parts of a program, which `/proc/PID/stat` reports. `cmdline` and `environ` read the strings at
/// these addresses.
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
    /// Returns the number of pages of the program's code (`VmExe`), at most `executable`, the number of pages in all
    /// executable areas (`task_mem` in `fs/proc/task_mmu.c` of Linux 7.2).
    pub fn code_pages(&self, executable: u64) -> u64 {
        let end = self.code_end.next_multiple_of(4096);
        ((end - (self.code_start & !4095)) / 4096).min(executable)
    }
}

/// The program of an address space. Processes that share an address space by `CLONE_VM` share its image as well.
pub struct Image {
    /// The executable, for `/proc/PID/exe`.
    pub executable: Arc<Executable>,
    /// The addresses of the parts of the program.
    pub addresses: ImageAddresses,
    /// The auxiliary vector as it was passed to the program.
    pub auxiliary: alloc::vec::Vec<u8>,
    /// The range of the heap, which `brk` changes.
    pub heap: Lock<Heap>,
}

impl Image {
    /// Creates the image of a newly loaded program.
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

    /// Returns a copy for a forked address space.
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
