//! Actions that hardware can take at any moment, chosen by a seed.

use memwright_table::CpuId;
use memwright_testkit::chance::Chance;

use crate::format;
use crate::machine::{Agent, SimulatedMachine};
use crate::walk::{self, Intent, WalkFault};

/// A source of speculative fills and of evictions. At each of its turns, it fills and evicts translations of randomly
/// chosen CPUs. The machine gives it a turn before every access of a user program, before every invalidation takes
/// effect, before an interrupt arrives at each of its targets, and at every step of the sync layer.
///
/// A fill is a speculative load of any page that the loaded root, or a stale paging-structure cache, reaches. As the
/// processor manual requires, a fill sets accessed bits and never the dirty bit. On a processor that can cache that a
/// page is not mapped, a fill can also be a load of one of the three pages after the reached page.
#[derive(Clone, Debug)]
pub struct Adversary {
    chance: Chance,
    fills: usize,
    evictions: usize,
}

impl Adversary {
    /// Creates an adversary that fills and evicts about one translation at each turn.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            chance: Chance::new(seed),
            fills: 2,
            evictions: 1,
        }
    }

    /// Creates an adversary that fills up to `fills` and evicts up to `evictions` translations at each turn.
    #[must_use]
    pub fn with_appetite(seed: u64, fills: usize, evictions: usize) -> Self {
        Self {
            chance: Chance::new(seed),
            fills,
            evictions,
        }
    }

    fn fill(&mut self, machine: &SimulatedMachine, cpu: CpuId) {
        let mut core = machine.core(cpu);
        let Some(root) = core.root else { return };
        let memory = machine.memory();
        let Some(page) = walk::any_reachable(memory, root, |bound| self.chance.below(bound)) else {
            return;
        };
        let page = if format::CACHES_ABSENT {
            page + self.chance.below(4) as u64
        } else {
            page
        };
        if core.tlb.find(page).is_some() {
            return;
        }
        match walk::walk(memory, root, page, Intent::Read, &mut core.tlb).outcome {
            Ok(translation) => {
                core.tlb.insert(translation);
                core.cost.speculative_fills += 1;
                drop(core);
                if format::BREAK_BEFORE_MAKE {
                    machine.check_made(cpu, &translation);
                }
            }
            Err(WalkFault::NotPresent) if format::CACHES_ABSENT => core.tlb.insert_absent(page),
            Err(WalkFault::NotPresent | WalkFault::Forbidden | WalkFault::Reserved) => {}
        }
    }
}

impl Agent for Adversary {
    fn act(&mut self, machine: &SimulatedMachine) {
        let cpus = machine.options().cpus;
        for _ in 0..self.chance.below(self.fills + 1) {
            let cpu = CpuId::new(self.chance.below(cpus) as u16);
            self.fill(machine, cpu);
        }
        for _ in 0..self.chance.below(self.evictions + 1) {
            let cpu = CpuId::new(self.chance.below(cpus) as u16);
            let mut core = machine.core(cpu);
            if core.tlb.evict(self.chance.draw()) {
                core.cost.evictions += 1;
            }
        }
    }
}

impl SimulatedMachine {
    /// Sets the adversary, or removes it with `None`.
    pub fn set_adversary(&self, adversary: Option<Adversary>) {
        self.set_agent(adversary.map(|adversary| Box::new(adversary) as Box<dyn Agent>));
    }
}
