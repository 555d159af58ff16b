//! The machine of a run: memory, CPUs, and their clock.

use crate::model::nodes::Nodes;
use crate::model::plan::Setup;
use crate::model::size::{MemorySize, SwapKind};

/// The maximum number of CPUs of a guest.
pub const MOST_CPUS: u8 = 64;

/// Parses a number of CPUs.
///
/// # Errors
/// The expected format, if `text` is not a supported number.
pub fn parse_cpus(text: &str) -> Result<u8, String> {
    match text.parse::<u8>() {
        Ok(count) if (1..=MOST_CPUS).contains(&count) => Ok(count),
        Ok(_) | Err(_) => Err(format!("expected a number from 1 to {MOST_CPUS}")),
    }
}

/// The hardware of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// The amount of memory of the guest.
    pub memory: MemorySize,
    /// The number of the guest's CPUs.
    pub cpus: u8,
    /// The guest's NUMA nodes.
    pub nodes: Nodes,
    /// The clock by which the guest's time advances.
    pub clock: Clock,
    /// The mode of its CPUs' local APICs.
    pub apic: Apic,
    /// The size of the guest's disk; `None` if it has none.
    pub disk: Option<MemorySize>,
}

/// The clock of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The number of retired instructions. CPUs take turns, in the same order in every run.
    Instructions,
    /// The host's time. CPUs run in parallel.
    Host,
}

/// The mode of a local APIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apic {
    /// xAPIC: the registers are memory-mapped.
    Xapic,
    /// x2APIC: the registers are model-specific registers.
    X2apic,
}

impl Apic {
    /// The key of the policy that selects the APICs' mode.
    pub const KEY: &str = "apic";

    /// Returns the mode that a value of the policy [`Apic::KEY`] names.
    pub fn from_value(value: &str) -> Option<Self> {
        match value {
            "xapic" => Some(Self::Xapic),
            "x2apic" => Some(Self::X2apic),
            _ => None,
        }
    }
}

impl Machine {
    /// Returns the machine of a guest. Unless a policy chooses the APICs' mode, they are x2APICs exactly if the guest
    /// has several CPUs and the instruction clock. Every QEMU that can run a guest with several CPUs and this clock
    /// supports x2APICs, so the machine does not depend on the installed QEMU.
    pub fn of(setup: &Setup, clock: Clock) -> Self {
        let chosen = setup
            .policies
            .iter()
            .filter_map(|policy| policy.split_once('='))
            .filter(|(key, _)| *key == Apic::KEY)
            .filter_map(|(_, value)| Apic::from_value(value))
            .next_back();
        let cpus = setup.cpus();
        let usual = match (cpus, clock) {
            (2.., Clock::Instructions) => Apic::X2apic,
            (_, Clock::Instructions | Clock::Host) => Apic::Xapic,
        };
        Self {
            memory: setup.memory(),
            cpus,
            nodes: setup.numa,
            clock,
            apic: chosen.unwrap_or(usual),
            disk: setup
                .swap
                .iter()
                .find(|swap| swap.kind == SwapKind::Disk)
                .map(|swap| swap.size),
        }
    }

    /// Returns the machine of every column of a bench.
    pub fn of_bench(cpus: u8, nodes: u8, memory: MemorySize) -> Self {
        Self {
            memory,
            cpus,
            nodes: Nodes::even(nodes),
            clock: Clock::Instructions,
            apic: if cpus > 1 { Apic::X2apic } else { Apic::Xapic },
            disk: None,
        }
    }

    /// Returns why two runs of this machine can differ, or `None` if they cannot differ. With a disk and several CPUs,
    /// QEMU's disk I/O can end a CPU's turn early.
    pub fn not_repeatable(&self) -> Option<&'static str> {
        match (self.cpus, self.clock, self.disk) {
            (_, Clock::Host, _) => Some("parallel CPUs"),
            (2.., Clock::Instructions, Some(_)) => Some("a disk and several CPUs"),
            (_, Clock::Instructions, _) => None,
        }
    }

    /// Returns the property of this machine that needs a newer QEMU than the oldest supported one, or `None` if there
    /// is none. Older versions have no x2APIC under TCG, and can starve one of several CPUs under the instruction
    /// clock.
    pub fn needs_newer(&self) -> Option<&'static str> {
        match (self.cpus, self.clock, self.apic) {
            (2.., Clock::Instructions, _) => Some("several CPUs without --parallel"),
            (_, _, Apic::X2apic) => Some("the policy apic=x2apic"),
            (_, Clock::Instructions | Clock::Host, Apic::Xapic) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::plan::tests::setup;

    #[test]
    fn options_make_machines() {
        use Apic::{X2apic, Xapic};
        use Clock::{Host, Instructions};
        for (options, cpus, clock, apic, newer) in [
            ("", 1, Instructions, Xapic, false),
            ("--cpus 1", 1, Instructions, Xapic, false),
            ("--cpus 2", 2, Instructions, X2apic, true),
            ("--cpus 64", 64, Instructions, X2apic, true),
            ("", 1, Host, Xapic, false),
            ("--cpus 4", 4, Host, Xapic, false),
            ("--policy apic=x2apic", 1, Instructions, X2apic, true),
            ("--cpus 4 --policy apic=xapic", 4, Instructions, Xapic, true),
            ("--cpus 4 --policy apic=x2apic", 4, Host, X2apic, true),
            (
                "--policy apic=x2apic,aslr=1 --policy apic=xapic",
                1,
                Instructions,
                Xapic,
                false,
            ),
        ] {
            let machine = Machine::of(&setup(options), clock);
            assert_eq!(
                (machine.cpus, machine.apic, machine.needs_newer().is_some()),
                (cpus, apic, newer),
                "{options} {clock:?}"
            );
        }
    }
}
