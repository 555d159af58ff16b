//! Interprocessor interrupts by sender, receiver and vector.

use serde::{Deserialize, Serialize};

/// How often a CPU sent an interrupt to another one, or to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The CPU that sent the interrupts.
    pub from: usize,
    /// The CPU to which they were sent.
    pub to: usize,
    /// The vector of the interrupts.
    pub vector: u8,
    /// How often the interrupts were sent. If several are sent before the receiver handles the first, the receiver
    /// takes only one.
    pub count: u64,
}

impl Sent {
    /// Returns the title of the row.
    pub fn title(&self) -> String {
        let Self {
            from, to, vector, ..
        } = self;
        match purpose(*vector) {
            "" => format!("CPU {from} to CPU {to}: vector {vector:#x}"),
            purpose => format!("CPU {from} to CPU {to}: {purpose}"),
        }
    }
}

/// Returns what a kernel requests by an interrupt with this vector; an empty text for other vectors. Linux's vectors
/// are those of arch/x86/include/asm/irq_vectors.h, and TLB shootdowns are among its function calls on other CPUs. The
/// other vectors are Memwright's.
const fn purpose(vector: u8) -> &'static str {
    match vector {
        2 => "NMI",
        0xf6 => "irq work",
        0xf8 => "reboot",
        0xfb => "call function, single",
        0xfc => "call function",
        0x23 | 0xfd => "reschedule",
        0x24 => "TLB shootdown",
        0x25 => "hold",
        0x26 => "wake",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_who_interrupted_whom() {
        for (vector, expected) in [
            (0xfb, "CPU 0 to CPU 1: call function, single"),
            (0x24, "CPU 0 to CPU 1: TLB shootdown"),
            (0x30, "CPU 0 to CPU 1: vector 0x30"),
        ] {
            let sent = Sent {
                from: 0,
                to: 1,
                vector,
                count: 1,
            };
            assert_eq!(sent.title(), expected);
        }
    }
}
