//! Counts interprocessor interrupts. They are derived from the values that CPUs write to the interrupt command register
//! of their APIC (Intel SDM volume 3, 12.6.1 and 12.12.9).

use std::collections::BTreeMap;

use crate::model::sent::Sent;

/// The vector of a non-maskable interrupt.
const NMI: u8 = 2;
/// The interrupt command register. An xAPIC has the upper half of the command in another register.
const COMMAND: u8 = 0x30;
const COMMAND_UPPER: u8 = 0x31;
/// The register by which a CPU with an x2APIC interrupts itself.
const SELF_IPI: u8 = 0x3f;
/// The bit of a command that sends the interrupt to the sender itself.
const TO_SELF: u32 = 1 << 18;

/// A decoded command: the vector, and the receiving CPUs in ascending order.
type Command = (u8, Vec<usize>);

/// The destination of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// The upper half of the interrupt command register of an x2APIC.
    X2apic(u32),
    /// The uppermost byte of an xAPIC's interrupt command register. Logical destinations use the flat model.
    Xapic(u8),
}

impl Destination {
    /// Returns whether a CPU is among the receivers of a command with this destination.
    fn has(self, cpu: usize, is_logical: bool) -> bool {
        match (self, is_logical) {
            (Self::X2apic(u32::MAX) | Self::Xapic(u8::MAX), _) => true,
            (Self::X2apic(number), false) => cpu == number as usize,
            (Self::Xapic(number), false) => cpu == usize::from(number),
            // A logical destination of an x2APIC contains a cluster number, and one bit for each of the 16 CPUs of that
            // cluster.
            (Self::X2apic(logical), true) => {
                cpu / 16 == logical as usize >> 16 && logical >> (cpu % 16) & 1 != 0
            }
            (Self::Xapic(logical), true) => cpu < 8 && logical >> cpu & 1 != 0,
        }
    }
}

/// Decodes `command`, the lower half of the interrupt command register, which the CPU `from` of `cpus` CPUs wrote.
/// Returns `None` for a command that starts or resets a CPU. The APIC ID of a CPU is its number.
fn decode(command: u32, destination: Destination, from: usize, cpus: usize) -> Option<Command> {
    let vector = match command >> 8 & 7 {
        0 | 1 => command as u8,
        4 => NMI,
        _ => return None,
    };
    let is_logical = command >> 11 & 1 != 0;
    let receives = |cpu: usize| match command >> 18 & 3 {
        1 => cpu == from,
        2 => true,
        3 => cpu != from,
        _ => destination.has(cpu, is_logical),
    };
    let to = (0..cpus).filter(|cpu| receives(*cpu)).collect();
    Some((vector, to))
}

/// Counts the interprocessor interrupts that CPUs send by their APICs.
#[derive(Debug, Default)]
pub struct Apics {
    /// The last value that a CPU with an xAPIC wrote to the upper half of the interrupt command register, by CPU.
    upper: BTreeMap<usize, u32>,
    /// The counts by sender, receiver and vector.
    counts: BTreeMap<(usize, usize, u8), u64>,
}

impl Apics {
    /// Counts the interrupts that the CPU `from` sends when it writes `value` to a register of its APIC.
    pub fn write(&mut self, from: usize, register: u8, value: u64, cpus: usize) {
        let lower = value as u32;
        let destination = match self.upper.get(&from) {
            Some(upper) => Destination::Xapic((upper >> 24) as u8),
            None => Destination::X2apic((value >> 32) as u32),
        };
        let command = match register {
            COMMAND => decode(lower, destination, from, cpus),
            SELF_IPI => decode(u32::from(lower as u8) | TO_SELF, destination, from, cpus),
            COMMAND_UPPER => {
                self.upper.insert(from, lower);
                None
            }
            _ => None,
        };
        let Some((vector, receivers)) = command else {
            return;
        };
        for to in receivers {
            *self.counts.entry((from, to, vector)).or_default() += 1;
        }
    }

    /// Starts to count from 0.
    pub fn restart(&mut self) {
        self.counts.clear();
    }

    /// Returns the counts since the restart, in the order of senders, receivers and vectors.
    pub fn sent(&self) -> Vec<Sent> {
        let all = self.counts.iter();
        all.map(|(&(from, to, vector), &count)| Sent {
            from,
            to,
            vector,
            count,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_receivers() {
        use Destination::{X2apic, Xapic};
        const LOGICAL: u32 = 1 << 11;
        const ALL: &[usize] = &[0, 1, 2, 3, 16, 17];
        for (command, destination, expected) in [
            (0xfb, X2apic(3), Some((0xfb, &[3][..]))),
            (0xfb, X2apic(40), Some((0xfb, &[]))),
            (0xfb, X2apic(u32::MAX), Some((0xfb, ALL))),
            (0x1fd | LOGICAL, X2apic(0b1010), Some((0xfd, &[1, 3]))),
            (
                0xfd | LOGICAL,
                X2apic(1 << 16 | 0b11),
                Some((0xfd, &[16, 17])),
            ),
            (0xfd | LOGICAL, X2apic(u32::MAX), Some((0xfd, ALL))),
            (0xf6 | 1 << 18, X2apic(0), Some((0xf6, &[2]))),
            (0xfc | 2 << 18, X2apic(0), Some((0xfc, ALL))),
            (0xfc | 3 << 18, X2apic(0), Some((0xfc, &[0, 1, 3, 16, 17]))),
            (0x400, X2apic(1), Some((2, &[1]))),
            (0xfb, Xapic(3), Some((0xfb, &[3]))),
            (0xfb, Xapic(0xff), Some((0xfb, ALL))),
            (0xfb | LOGICAL, Xapic(0b1001), Some((0xfb, &[0, 3]))),
            // INIT, and the command that starts a CPU.
            (0x4500, X2apic(1), None),
            (0x4608, X2apic(1), None),
        ] {
            let found = decode(command, destination, 2, 18).map(|(vector, to)| {
                let shown = |cpu: &usize| !(4..16).contains(cpu);
                (vector, to.into_iter().filter(shown).collect())
            });
            let expected = expected.map(|(vector, to)| (vector, to.to_vec()));
            assert_eq!(found, expected, "{command:#x} {destination:?}");
        }
    }

    #[test]
    fn each_cpu_has_an_apic() {
        let mut apics = Apics::default();
        apics.write(0, 0x30, 1 << 32 | 0xfd, 4);
        apics.restart();
        for (from, register, value) in [
            (0, 0x0b, 0),
            (0, 0x31, 1 << 24),
            (0, 0x30, 0xfb),
            (0, 0x30, 0xfb),
            (0, 0x30, 0xfd),
            (1, 0x30, 2 << 32 | 0xfb),
            (1, 0x3f, 0xf6),
        ] {
            apics.write(from, register, value, 4);
        }
        let sent = apics.sent().into_iter();
        let sent: Vec<_> = sent
            .map(|one| (one.from, one.to, one.vector, one.count))
            .collect();
        let expected = [
            (0, 1, 0xfb, 2),
            (0, 1, 0xfd, 1),
            (1, 1, 0xf6, 1),
            (1, 2, 0xfb, 1),
        ];
        assert_eq!(sent, expected);
    }
}
