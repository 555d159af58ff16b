//! The simulated machine as a machine of the test kit, whose programs and scripts run on it.

use std::sync::Arc;

use memwright::{Access, AddressSpace};
use memwright_table::{CpuId, Frame, Page, Table, Threads, VirtAddr};
use memwright_testkit::terms::Rights;
use memwright_testkit::{TestMachine, Trap, lockstep, process};

use crate::adversary::Adversary;
use crate::machine::{MachineOptions, RunningOn, SimulatedMachine};
use crate::mmu::{Cpu, PageFault};
use crate::walk;

/// An address space on the simulated machine.
pub type Space = AddressSpace<SimulatedMachine>;
/// The state that all programs on a simulated machine share.
pub type Host = process::Host<SimulatedMachine>;
/// A user program on the simulated machine.
pub type Process = process::Process<SimulatedMachine>;
/// The memory manager on a simulated machine, and the model.
pub type Lockstep = lockstep::Lockstep<SimulatedMachine>;

/// Boots a machine whose frame allocator has all memory except frame 0.
///
/// # Panics
/// If the machine has too little memory to start.
#[must_use]
pub fn boot(options: MachineOptions) -> Arc<Host> {
    let machine = SimulatedMachine::new(options);
    Host::boot(&machine.frames(), options.cpus).expect("memory to start")
}

/// Boots a machine for a script. The adversary acts on it from the start.
///
/// # Panics
/// If the machine has too little memory to start.
#[must_use]
pub fn lockstep(options: MachineOptions, adversary: Option<Adversary>) -> Lockstep {
    let host = boot(options);
    let speculates = adversary.is_some();
    host.machine().set_adversary(adversary);
    let lockstep = Lockstep::new(host);
    match speculates {
        true => lockstep.speculating(),
        false => lockstep,
    }
}

impl From<PageFault> for Trap {
    /// # Panics
    /// If an entry has a reserved bit set. Memwright never writes such an entry.
    fn from(fault: PageFault) -> Self {
        assert!(
            !fault.code.reserved,
            "{fault:?}: an entry with a reserved bit set"
        );
        Self {
            address: fault.address,
            access: Access {
                write: fault.code.write,
                fetch: fault.code.fetch,
                user: true,
            },
        }
    }
}

impl SimulatedMachine {
    /// Returns the CPU as which the calling thread acts.
    #[must_use]
    pub fn here(&self) -> Cpu<'_> {
        self.on(Self::cpu())
    }
}

impl TestMachine for SimulatedMachine {
    type Acting = RunningOn;

    fn act_as(&self, cpu: CpuId) -> RunningOn {
        self.run_on(cpu)
    }

    fn load(&self, _: &Table<Self>, address: VirtAddr, into: &mut [u8]) -> Result<(), Trap> {
        self.here().read(address, into).map_err(Trap::from)
    }

    fn store(&self, _: &Table<Self>, address: VirtAddr, from: &[u8]) -> Result<(), Trap> {
        self.here().write(address, from).map_err(Trap::from)
    }

    fn fetch(&self, _: &Table<Self>, address: VirtAddr) -> Result<u8, Trap> {
        self.here().fetch(address).map_err(Trap::from)
    }

    /// Checks that no CPU has a stale translation, and that the machine has recorded no violation.
    fn check(&self) -> Result<(), String> {
        if let Some(violation) = self.take_violations().first() {
            return Err(violation.clone());
        }
        match self.audit().first() {
            Some(stale) => Err(format!("a stale translation is left: {stale:?}")),
            None => Ok(()),
        }
    }

    fn translations(&self, table: &Table<Self>, visit: &mut dyn FnMut(Page, Frame, Rights)) {
        walk::for_each_leaf(self.memory(), table.root(), &mut |leaf| {
            let rights = Rights {
                read: leaf.rights.user,
                write: leaf.rights.write,
                execute: leaf.rights.execute && leaf.rights.user,
            };
            for page in leaf.page..leaf.page + leaf.size.pages() {
                visit(Page::new(page), leaf.frame_of(page), rights);
            }
        });
    }
}
