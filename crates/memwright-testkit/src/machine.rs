//! What the test kit needs from a machine, beyond what Memwright does.

use alloc::string::String;

use memwright::Access;
use memwright_table::{Architecture, Bits, Entry, Frame, Machine, Page, Table, VirtAddr};

use crate::terms::Rights;

/// A page fault that a user program took, as a kernel passes it to [`fault`](memwright::AddressSpace::fault).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// The address that the processor reports: a byte of the access, or of its page.
    pub address: VirtAddr,
    /// The kind of access that the processor reports.
    pub access: Access,
}

/// A machine on which the test kit can run user programs.
///
/// The accesses are those of user mode, on the CPU as which the calling thread [acts](Self::act_as). That CPU has the
/// root of `table` loaded. A machine whose CPUs have no page walker passes `table` to [`translate`](Table::translate);
/// others can ignore it. Each access is inside one page. The method performs the access once, and does not handle a
/// fault: the kit calls [`fault`](memwright::AddressSpace::fault), and then accesses again.
///
/// One thread of the kit acts as every CPU, one after another. [`invalidate_remote`](Machine::invalidate_remote) must
/// therefore complete although no thread acts as the target. In an emulator, the caller can change the TLB of the
/// target itself; on real hardware, an interrupt of the target does so. A machine whose CPUs serve requests in a loop
/// of their own needs a thread that serves them for the kit.
pub trait TestMachine: Machine + Sized {
    /// A guard, which is dropped on the thread that created it. The calling thread acts as a CPU as long as the guard
    /// exists.
    type Acting;

    /// Makes the calling thread act as `cpu`: [`Threads::cpu`](memwright_table::sync::Threads::cpu) returns this number
    /// until the guard is dropped, and then the number that it returned before. The kit passes only numbers below the
    /// number of CPUs that it is given, so on a machine with one CPU, this function does nothing.
    fn act_as(&self, cpu: memwright_table::CpuId) -> Self::Acting;

    /// Loads bytes.
    ///
    /// # Errors
    /// The page fault. The content of `into` is then not used.
    fn load(&self, table: &Table<Self>, address: VirtAddr, into: &mut [u8]) -> Result<(), Trap>;

    /// Stores bytes.
    ///
    /// # Errors
    /// The page fault. Nothing has been stored then.
    fn store(&self, table: &Table<Self>, address: VirtAddr, from: &[u8]) -> Result<(), Trap>;

    /// Fetches an instruction byte: executes it, or reads it as the processor fetches instructions.
    ///
    /// # Errors
    /// The page fault.
    fn fetch(&self, table: &Table<Self>, address: VirtAddr) -> Result<u8, Trap>;

    /// Checks the state of the machine after each step. The default checks nothing.
    ///
    /// # Errors
    /// A description of what is wrong.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Checks the state of `cpu`, which has the root of `table` loaded, after each step. For example, checks that the
    /// CPU has cached no translation that permits more than the table. [`Table::look`] returns the entries and changes
    /// none. The calling thread may act as another CPU. The default checks nothing.
    ///
    /// # Errors
    /// A description of what is wrong.
    fn check_cpu(&self, cpu: memwright_table::CpuId, table: &Table<Self>) -> Result<(), String> {
        let _ = (cpu, table);
        Ok(())
    }

    /// Calls `visit` for each page that has a translation in `table`, with its frame and rights. By default, the
    /// entries are read with [`Table::look`]. A simulated machine can instead walk the tables as its processors do.
    fn translations(&self, table: &Table<Self>, visit: &mut dyn FnMut(Page, Frame, Rights)) {
        let mut cursor = table.look(Self::Arch::USER);
        while let Some(extent) = cursor.next_filled() {
            match extent.entry {
                Entry::Present(present) => {
                    let rights = Rights {
                        read: present.bits.contains(Bits::READ),
                        write: present.bits.contains(Bits::WRITE),
                        execute: present.bits.contains(Bits::EXECUTE),
                    };
                    for (page, number) in extent.range.iter().zip(present.frame.number()..) {
                        visit(page, Frame::new(number), rights);
                    }
                }
                Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => {}
            }
            if !cursor.advance() {
                break;
            }
        }
    }

    /// Ends the use of the library's page tables on the CPU as which the calling thread acts, before they are freed. A
    /// machine that walks the loaded root at any time loads a root of its own here. The default does nothing, for a
    /// machine that walks the tables only during the accesses above.
    fn unload(&self) {}
}
