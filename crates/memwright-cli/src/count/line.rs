//! Parses QEMU's log: exceptions (`-d int`), loads of CR3 (`-d mmu`), and the lines of the plugin.

use crate::model::counts::Instructions;

/// An exception or interrupt that QEMU delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exception {
    /// The vector of the exception or interrupt.
    pub vector: u8,
    /// The error code; 0 if the exception has none.
    pub error: u16,
    /// Whether an INT instruction raised the exception.
    pub by_instruction: bool,
    /// The address of the instruction at which the exception was delivered.
    pub at: u64,
    /// CR2, the address that caused a page fault; `None` if the line does not contain it.
    pub address: Option<u64>,
}

/// A parsed line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// QEMU delivered an exception or interrupt.
    Exception(Exception),
    /// The address of the interrupt descriptor table of the CPU that received the previous exception.
    Idt(u64),
    /// The base of GS when the CPU received the previous exception.
    Gs(u64),
    /// The base of the task state segment of the CPU that received the previous exception. This line follows the line
    /// about GS.
    TaskState(u64),
    /// The value of CR3 of the CPU that received the previous exception.
    HeldCr3(u64),
    /// A CPU loaded CR3 with this value.
    Cr3(u64),
    /// An exception occurred during the delivery of a double fault.
    TripleFault,
    /// The next instruction of the program is a system call.
    Call {
        /// The address of the instruction.
        at: u64,
        /// The value of CR3; 0 if QEMU is too old to report it.
        cr3: u64,
        /// The number of the call; `None` if QEMU is too old to report it.
        number: Option<u64>,
    },
    /// The plugin has been loaded.
    Counting,
    /// The following lines of the plugin are about this CPU. Only guests with several CPUs have such lines.
    Cpu(usize),
    /// The counts of a CPU, which are reported before the first mark and before the last mark. Only guests with several
    /// CPUs have such lines.
    Counts {
        /// The number of the CPU. For counts that the plugin could not attribute to a CPU, it equals the number of CPUs
        /// of the guest.
        cpu: usize,
        /// The base of GS while the kernel runs on this CPU.
        gs: u64,
        /// The plugin's counts since the guest started: INVLPG, INVPCID, CR4 writes.
        flushes: [u64; 3],
        /// The instruction counts.
        instructions: Instructions,
    },
    /// A CPU wrote a register of its APIC.
    Apic {
        /// The number of the register.
        register: u8,
        /// The value that the CPU wrote.
        value: u64,
    },
    /// The next instruction loads CR3.
    Cr3Next {
        /// The CPU that executes the load.
        cpu: usize,
        /// The current value of CR3; `None` if QEMU is too old to report it.
        holds: Option<u64>,
        /// The plugin's counts since the guest started: INVLPG, INVPCID, CR4 writes.
        flushes: [u64; 3],
        /// The instruction counts before the load; `None` if the plugin does not count instructions.
        instructions: Option<Instructions>,
    },
    /// The next instruction is the first one of an interrupt handler.
    Enter(Instructions),
    /// The next instruction is an IRETQ.
    Return(Instructions),
    /// The kernel switches to another task.
    Switch(Instructions),
    /// A CPU executed a mark.
    Mark {
        /// Twice the region's number, plus one for an end mark.
        code: u16,
        /// The CPU that executed the mark.
        cpu: usize,
        /// The value of CR3 of the CPU that executed the mark; `None` if QEMU is too old to report it.
        cr3: Option<u64>,
        /// The thread that executed the mark, by its base of FS; 0 if the guest has one CPU.
        thread: u64,
        /// The plugin's counts since the guest started: INVLPG, INVPCID, CR4 writes.
        flushes: [u64; 3],
        /// The instruction counts at the mark; `None` if the plugin does not count instructions.
        instructions: Option<Instructions>,
    },
}

/// A register in the log: the first characters of its line, the index of the word with its base among the words that
/// follow, and the constructor of the parsed line.
type Register = (&'static str, usize, fn(u64) -> Line);

/// The registers of the log that are parsed.
const REGISTERS: [Register; 3] = [
    ("IDT=", 0, Line::Idt),
    ("GS =", 1, Line::Gs),
    ("TR =", 1, Line::TaskState),
];

/// Parses a line. Returns `None` for the majority of lines, which contain nothing that is counted.
pub fn parse(line: &[u8]) -> Option<Line> {
    let line = str::from_utf8(line).ok()?;
    if let Some(rest) = line.strip_prefix("memwright ") {
        return parse_plugin(rest);
    }
    if let Some(value) = line.strip_prefix("CR3 update: CR3=") {
        return u64::from_str_radix(value.trim_end(), 16)
            .ok()
            .map(Line::Cr3);
    }
    if let Some(rest) = line.strip_prefix("apic_register_write register 0x") {
        let (register, value) = rest.trim_end().split_once(" = 0x")?;
        return Some(Line::Apic {
            register: u8::from_str_radix(register, 16).ok()?,
            value: u64::from_str_radix(value, 16).ok()?,
        });
    }
    if line.starts_with(TRIPLE_FAULT) {
        return Some(Line::TripleFault);
    }
    if let Some(registers) = line.strip_prefix("CR0=") {
        let mut words = registers.split_ascii_whitespace();
        let value = words.find_map(|word| word.strip_prefix("CR3="))?;
        return u64::from_str_radix(value, 16).ok().map(Line::HeldCr3);
    }
    for (prefix, place, make) in REGISTERS {
        if let Some(rest) = line.strip_prefix(prefix) {
            let base = rest.split_ascii_whitespace().nth(place)?;
            return u64::from_str_radix(base, 16).ok().map(make);
        }
    }
    parse_exception(line)
}

/// The first characters of the line that QEMU writes when an exception occurs while it delivers a double fault.
const TRIPLE_FAULT: &str = "check_exception old: 0x8 new ";

/// Parses the last words of a line of the plugin: the numbers of user and kernel instructions that have begun.
fn begun(words: &[u64]) -> Option<Instructions> {
    match *words {
        [user, kernel] => Some(Instructions {
            user,
            kernel,
            interrupts: None,
        }),
        _ => None,
    }
}

fn parse_plugin(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace();
    let what = words.next()?;
    let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    match (what, numbers.as_slice()) {
        ("count", [_]) => Some(Line::Counting),
        ("enter", words) => begun(words).map(Line::Enter),
        ("return", words) => begun(words).map(Line::Return),
        ("switch", words) => begun(words).map(Line::Switch),
        ("call", [at, cr3, number @ ..]) => Some(Line::Call {
            at: *at,
            cr3: *cr3,
            number: number.first().copied(),
        }),
        ("cr3", [cpu, holds, invlpg, invpcid, cr4, instructions @ ..]) => Some(Line::Cr3Next {
            cpu: usize::try_from(*cpu).ok()?,
            holds: Some(*holds).filter(|value| *value != 0),
            flushes: [*invlpg, *invpcid, *cr4],
            instructions: match instructions {
                [] => None,
                words => Some(begun(words)?),
            },
        }),
        ("cpu", [cpu]) => usize::try_from(*cpu).ok().map(Line::Cpu),
        ("counts", [cpu, gs, invlpg, invpcid, cr4, instructions @ ..]) => Some(Line::Counts {
            cpu: usize::try_from(*cpu).ok()?,
            gs: *gs,
            flushes: [*invlpg, *invpcid, *cr4],
            instructions: begun(instructions)?,
        }),
        ("mark", [code, cpu, cr3, invlpg, invpcid, cr4, rest @ ..]) => Some(Line::Mark {
            code: u16::try_from(*code).ok()?,
            cpu: usize::try_from(*cpu).ok()?,
            cr3: Some(*cr3).filter(|value| *value != 0),
            thread: rest.get(2).copied().unwrap_or(0),
            flushes: [*invlpg, *invpcid, *cr4],
            instructions: match rest {
                [] => None,
                [user, kernel, ..] => Some(begun(&[*user, *kernel])?),
                [_] => return None,
            },
        }),
        _ => None,
    }
}

/// Parses `   472: v=0e e=0006 i=0 cpl=3 IP=0033:...`.
fn parse_exception(line: &str) -> Option<Line> {
    let (number, rest) = line.trim_start().split_once(": v=")?;
    number.parse::<u64>().ok()?;
    let mut words = rest.split_ascii_whitespace();
    let vector = u8::from_str_radix(words.next()?, 16).ok()?;
    let error = u32::from_str_radix(words.next()?.strip_prefix("e=")?, 16).ok()?;
    let by_instruction = words.next()?.strip_prefix("i=")? != "0";
    let at = words.find_map(|word| word.strip_prefix("IP=")?.split_once(':'))?;
    let at = u64::from_str_radix(at.1, 16).ok()?;
    let address = words.find_map(|word| word.strip_prefix("CR2="));
    Some(Line::Exception(Exception {
        vector,
        error: error as u16,
        by_instruction,
        at,
        address: address.and_then(|text| u64::from_str_radix(text, 16).ok()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instructions(user: u64, kernel: u64) -> Instructions {
        Instructions {
            user,
            kernel,
            interrupts: None,
        }
    }

    #[test]
    fn lines_parse() {
        let exception = |vector, error, by_instruction| {
            Some(Line::Exception(Exception {
                vector,
                error,
                by_instruction,
                at: 0x40_1000,
                address: (vector == 0x0e).then_some(0x1000),
            }))
        };
        for (text, expected) in [
            (
                "   472: v=0e e=0006 i=0 cpl=3 IP=0033:00401000 pc=00401000 SP=002b:7ffd CR2=0000000000001000",
                exception(0x0e, 6, false),
            ),
            (
                "     1: v=80 e=0000 i=1 cpl=3 IP=0033:0000000000401000",
                exception(0x80, 0, true),
            ),
            (
                "CR3 update: CR3=0000000002c1a000",
                Some(Line::Cr3(0x2c1_a000)),
            ),
            (
                "IDT=     fffffe0000000000 00000fff",
                Some(Line::Idt(0xffff_fe00_0000_0000)),
            ),
            (
                "CR0=80050033 CR2=0000000000001000 CR3=0000000002c1a000 CR4=000006f0",
                Some(Line::HeldCr3(0x2c1_a000)),
            ),
            ("CR0=80050033", None),
            ("RAX=0000000000010068 RBX=0000000000000003", None),
            ("check_exception old: 0xffffffff new 0xe", None),
            ("check_exception old: 0x8 new 0xd", Some(Line::TripleFault)),
            (
                "GS =0000 ffff88807d800000 00000000 00000000",
                Some(Line::Gs(0xffff_8880_7d80_0000)),
            ),
            (
                "TR =0040 fffffe0000003000 00004087 00008b00 DPL=0 TSS64-busy",
                Some(Line::TaskState(0xffff_fe00_0000_3000)),
            ),
            (
                "apic_register_write register 0x30 = 0x1000000fb",
                Some(Line::Apic {
                    register: 0x30,
                    value: 0x1_0000_00fb,
                }),
            ),
            ("Servicing hardware INT=0x30", None),
            ("", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(parse(&[0xff, 0xfe]), None);
    }

    #[test]
    fn lines_of_the_plugin_parse() {
        for (text, expected) in [
            ("memwright count 3", Some(Line::Counting)),
            (
                "memwright cr3 1 0 7 8 9 10 20",
                Some(Line::Cr3Next {
                    cpu: 1,
                    holds: None,
                    flushes: [7, 8, 9],
                    instructions: Some(instructions(10, 20)),
                }),
            ),
            (
                "memwright cr3 0 4096 7 8 9 10 20",
                Some(Line::Cr3Next {
                    cpu: 0,
                    holds: Some(4096),
                    flushes: [7, 8, 9],
                    instructions: Some(instructions(10, 20)),
                }),
            ),
            (
                "memwright mark 65534 1 0 30 40 50 10 20",
                Some(Line::Mark {
                    code: 65534,
                    cpu: 1,
                    cr3: None,
                    thread: 0,
                    flushes: [30, 40, 50],
                    instructions: Some(instructions(10, 20)),
                }),
            ),
            (
                "memwright mark 1 0 4096 30 40 50",
                Some(Line::Mark {
                    code: 1,
                    cpu: 0,
                    cr3: Some(4096),
                    thread: 0,
                    flushes: [30, 40, 50],
                    instructions: None,
                }),
            ),
            ("memwright mark 65534 1 10 20", None),
            (
                "memwright enter 10 20",
                Some(Line::Enter(instructions(10, 20))),
            ),
            (
                "memwright return 10 20",
                Some(Line::Return(instructions(10, 20))),
            ),
            (
                "memwright switch 10 20",
                Some(Line::Switch(instructions(10, 20))),
            ),
            (
                "memwright call 4198400 4096 59",
                Some(Line::Call {
                    at: 0x40_1000,
                    cr3: 0x1000,
                    number: Some(59),
                }),
            ),
            (
                "memwright call 4198400 0",
                Some(Line::Call {
                    at: 0x40_1000,
                    cr3: 0,
                    number: None,
                }),
            ),
            ("memwright enter", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn lines_about_several_cpus_parse() {
        for (text, expected) in [
            (
                "memwright mark 2 1 4096 30 40 50 10 20 77",
                Some(Line::Mark {
                    code: 2,
                    cpu: 1,
                    cr3: Some(4096),
                    thread: 77,
                    flushes: [30, 40, 50],
                    instructions: Some(instructions(10, 20)),
                }),
            ),
            ("memwright cpu 1", Some(Line::Cpu(1))),
            (
                "memwright counts 1 4096 30 40 50 10 20",
                Some(Line::Counts {
                    cpu: 1,
                    gs: 4096,
                    flushes: [30, 40, 50],
                    instructions: instructions(10, 20),
                }),
            ),
            ("memwright counts 1 4096 30 40 50", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
    }
}
