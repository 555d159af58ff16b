//! Files of `/proc` about the CPUs: their features, times, interrupts and load.

use crate::procfs::node::{Text, stub::stubs};
use core::fmt::{self, Write};
use memwright_linux_abi::{
    abi::SECOND,
    host::{Clock, Cpus, InterruptKind},
};
use memwright_linux_base::short::Short;
use memwright_linux_sched::scheduler::Scheduler;
use memwright_linux_tasks::process::{Tasks, Thread, ticks};
use memwright_table::{CpuId, CpuSet};

stubs! {
    FREQUENCY: "/proc/cpuinfo" "cpu MHz" Text("1000.000"), "The clock counts one nanosecond for each instruction.";
    PACKAGE: "/proc/cpuinfo" "physical id" Number(0), "All CPUs are cores of one package.";
    CORE: "/proc/cpuinfo" "core id" Copy("processor"), "Each core runs one thread.";
    APIC: "/proc/cpuinfo" "apicid" Copy("processor"), "The ids of the APICs follow the numbers of the CPUs.";
    CORES: "/proc/cpuinfo" "cpu cores" Copy("siblings"), "Each core runs one thread.";
    FPU: "/proc/cpuinfo" "fpu" Text("yes"), "Every x86-64 CPU has one.";
    FPU_EXCEPTION: "/proc/cpuinfo" "fpu_exception" Text("yes"), "Every x86-64 CPU has it.";
    WRITE_PROTECT: "/proc/cpuinfo" "wp" Text("yes"), "Every x86-64 CPU has it.";
    NICE: "/proc/stat" "cpu: nice" Number(0), "The time of threads with a positive nice value is counted as user time.";
    WAIT: "/proc/stat" "cpu: iowait" Number(0), "A CPU that waits for a disk polls it.";
    INTERRUPT: "/proc/stat" "cpu: irq" Number(0), "Interrupt time counts as system time.";
    SOFT_INTERRUPT: "/proc/stat" "cpu: softirq" Number(0), "There are no softirqs.";
    STOLEN: "/proc/stat" "cpu: steal" Number(0), "No hypervisor reports stolen time.";
    GUEST: "/proc/stat" "cpu: guest" Number(0), "There are no virtual machines.";
    GUEST_NICE: "/proc/stat" "cpu: guest_nice" Number(0), "There are no virtual machines.";
    BLOCKED: "/proc/stat" "procs_blocked" Number(0), "A CPU that waits for a disk polls it: no thread sleeps for I/O.";
}

/// Reads the CPUID leaves that `/proc/cpuinfo` reports.
trait Identified {
    /// Returns the registers EAX to EDX of a leaf.
    fn leaf(&self, leaf: u32) -> [u32; 4];
}

impl Identified for dyn Cpus + '_ {
    fn leaf(&self, leaf: u32) -> [u32; 4] {
        self.cpuid(leaf, 0)
    }
}

/// Writes the bytes of `registers` as text, without NULs.
fn write_registers(text: &mut dyn Write, registers: &[u32]) -> fmt::Result {
    let bytes = registers.iter().flat_map(|register| register.to_le_bytes());
    bytes
        .filter(|&byte| byte != 0)
        .try_for_each(|byte| text.write_char(byte as char))
}

/// Returns the family, model and stepping that a processor signature encodes (Intel's manual, CPUID leaf 1).
fn signature(word: u32) -> (u32, u32, u32) {
    let (family, model, stepping) = (word >> 8 & 0xf, word >> 4 & 0xf, word & 0xf);
    let full_family = if family == 0xf {
        family + (word >> 20 & 0xff)
    } else {
        family
    };
    let full_model = if matches!(family, 6 | 0xf) {
        model | (word >> 12 & 0xf0)
    } else {
        model
    };
    (full_family, full_model, stepping)
}

/// The feature bits and their names in Linux 7.2 (`arch/x86/include/asm/cpufeatures.h`): leaf, register (EAX to EDX),
/// bit, name. Bits without a name in Linux are omitted.
const FEATURES: &[(u32, usize, u32, &str)] = &[
    (1, 3, 0, "fpu"),
    (1, 3, 1, "vme"),
    (1, 3, 2, "de"),
    (1, 3, 3, "pse"),
    (1, 3, 4, "tsc"),
    (1, 3, 5, "msr"),
    (1, 3, 6, "pae"),
    (1, 3, 7, "mce"),
    (1, 3, 8, "cx8"),
    (1, 3, 9, "apic"),
    (1, 3, 11, "sep"),
    (1, 3, 12, "mtrr"),
    (1, 3, 13, "pge"),
    (1, 3, 14, "mca"),
    (1, 3, 15, "cmov"),
    (1, 3, 16, "pat"),
    (1, 3, 17, "pse36"),
    (1, 3, 19, "clflush"),
    (1, 3, 23, "mmx"),
    (1, 3, 24, "fxsr"),
    (1, 3, 25, "sse"),
    (1, 3, 26, "sse2"),
    (1, 3, 27, "ss"),
    (1, 3, 28, "ht"),
    (0x8000_0001, 3, 11, "syscall"),
    (0x8000_0001, 3, 20, "nx"),
    (0x8000_0001, 3, 26, "pdpe1gb"),
    (0x8000_0001, 3, 27, "rdtscp"),
    (0x8000_0001, 3, 29, "lm"),
    (1, 2, 0, "pni"),
    (1, 2, 1, "pclmulqdq"),
    (1, 2, 3, "monitor"),
    (1, 2, 9, "ssse3"),
    (1, 2, 12, "fma"),
    (1, 2, 13, "cx16"),
    (1, 2, 17, "pcid"),
    (1, 2, 19, "sse4_1"),
    (1, 2, 20, "sse4_2"),
    (1, 2, 21, "x2apic"),
    (1, 2, 22, "movbe"),
    (1, 2, 23, "popcnt"),
    (1, 2, 24, "tsc_deadline_timer"),
    (1, 2, 25, "aes"),
    (1, 2, 26, "xsave"),
    (1, 2, 28, "avx"),
    (1, 2, 29, "f16c"),
    (1, 2, 30, "rdrand"),
    (1, 2, 31, "hypervisor"),
    (0x8000_0001, 2, 0, "lahf_lm"),
    (0x8000_0001, 2, 5, "abm"),
    (0x8000_0001, 2, 6, "sse4a"),
    (0x8000_0001, 2, 8, "3dnowprefetch"),
    (7, 1, 0, "fsgsbase"),
    (7, 1, 3, "bmi1"),
    (7, 1, 5, "avx2"),
    (7, 1, 7, "smep"),
    (7, 1, 8, "bmi2"),
    (7, 1, 9, "erms"),
    (7, 1, 10, "invpcid"),
    (7, 1, 16, "avx512f"),
    (7, 1, 17, "avx512dq"),
    (7, 1, 18, "rdseed"),
    (7, 1, 19, "adx"),
    (7, 1, 20, "smap"),
    (7, 1, 23, "clflushopt"),
    (7, 1, 24, "clwb"),
    (7, 1, 29, "sha_ni"),
    (7, 1, 30, "avx512bw"),
    (7, 1, 31, "avx512vl"),
    (7, 2, 2, "umip"),
    (7, 2, 3, "pku"),
    (7, 2, 4, "ospke"),
    (7, 2, 16, "la57"),
    (7, 2, 22, "rdpid"),
    (7, 3, 4, "fsrm"),
];

/// Writes `/proc/cpuinfo` from the CPUID leaves (`arch/x86/kernel/cpu/proc.c` of Linux 7.2). On this machine, an
/// instruction takes a nanosecond, so the reported frequency is 1 GHz.
pub fn cpuinfo(cpus: &dyn Cpus, all_cpus: CpuSet, text: &mut Text) -> fmt::Result {
    let [highest, first, third, second] = cpus.leaf(0);
    let highest_extended = cpus.leaf(0x8000_0000)[0];
    let mut name = Short::of(format_args!(""));
    if highest_extended >= 0x8000_0004 {
        for leaf in 0x8000_0002..=0x8000_0004 {
            write_registers(&mut name, &cpus.leaf(leaf))?;
        }
    }
    let [word, more, _, _] = cpus.leaf(1);
    let (family, model, stepping) = signature(word);
    let line = (more >> 8 & 0xff) * 8;
    let [sizes, ..] = if highest_extended >= 0x8000_0008 {
        cpus.leaf(0x8000_0008)
    } else {
        [32 << 8 | 36, 0, 0, 0]
    };
    let known = |leaf: u32| leaf <= highest || (0x8000_0000..=highest_extended).contains(&leaf);
    let mut flags = Text::new();
    for &(leaf, register, bit, feature) in FEATURES {
        if known(leaf) && cpus.leaf(leaf)[register] & 1 << bit != 0 {
            write!(flags, " {feature}")?;
        }
    }
    let count = all_cpus.len();
    for cpu in all_cpus.iter().skip(text.from() as usize) {
        let number = cpu.index();
        if !text.has_room() {
            text.go_on_from(number as u64);
            return Ok(());
        }
        write!(text, "processor\t: {number}\nvendor_id\t: ")?;
        write_registers(text, &[first, second, third])?;
        write!(
            text,
            "\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: "
        )?;
        text.push(name.as_bytes().trim_ascii())?;
        write!(
            text,
            "\nstepping\t: {stepping}\ncpu MHz\t\t: {FREQUENCY}\n\
             physical id\t: {PACKAGE}\nsiblings\t: {count}\ncore id\t\t: {number}\ncpu cores\t: {count}\n\
             apicid\t\t: {number}\nfpu\t\t: {FPU}\nfpu_exception\t: {FPU_EXCEPTION}\ncpuid level\t: {highest}\n\
             wp\t\t: {WRITE_PROTECT}\nflags\t\t:",
        )?;
        text.push(flags.bytes())?;
        write!(
            text,
            "\nclflush size\t: {line}\ncache_alignment\t: {line}\n\
             address sizes\t: {} bits physical, {} bits virtual\n\n",
            sizes & 0xff,
            sizes >> 8 & 0xff,
        )?;
    }
    Ok(())
}

/// The rows of `/proc/interrupts`: name, kind and description of an interrupt.
const INTERRUPTS: [(&str, InterruptKind, &str); InterruptKind::COUNT] = [
    ("LOC", InterruptKind::Timer, "Local timer interrupts"),
    ("RES", InterruptKind::Reschedule, "Rescheduling interrupts"),
    ("CAL", InterruptKind::Call, "Function call interrupts"),
    ("TLB", InterruptKind::Invalidation, "TLB shootdowns"),
];

/// Writes the rows of `/proc/interrupts` for the interrupts that this kernel has (`arch_show_interrupts` in
/// `arch/x86/kernel/irq.c` of Linux 7.2).
pub fn interrupts(cpus: &dyn Cpus, all_cpus: CpuSet, text: &mut Text) -> fmt::Result {
    text.write_str("    ")?;
    for cpu in all_cpus.iter() {
        write!(text, "       CPU{}", cpu.index())?;
    }
    text.write_char('\n')?;
    for (name, kind, meaning) in INTERRUPTS {
        write!(text, "{name:>3}:")?;
        for cpu in all_cpus.iter() {
            write!(text, " {:10}", cpus.interrupts(cpu, kind))?;
        }
        writeln!(text, "  {meaning}")?;
    }
    Ok(())
}

/// Returns the clock ticks that a CPU spent in user mode, in the kernel and idle.
fn times(cpus: &dyn Cpus, cpu: CpuId) -> [u64; 3] {
    let times = cpus.times(cpu);
    [times.user, times.system, times.idle].map(ticks)
}

/// Writes the times of a row of `/proc/stat`, which describes one CPU or all CPUs together.
fn write_times(text: &mut Text, [user, system, idle]: [u64; 3]) -> fmt::Result {
    write!(
        text,
        " {user} {NICE} {system} {idle} {WAIT} {INTERRUPT} {SOFT_INTERRUPT}"
    )?;
    writeln!(text, " {STOLEN} {GUEST} {GUEST_NICE}")
}

/// Writes the supported rows of `/proc/stat` (`fs/proc/stat.c` of Linux 7.2). `made` is the number of processes created
/// since boot, and `epoch` is the time of the boot.
pub fn stat(
    cpus: &dyn Cpus,
    scheduler: &Scheduler<Thread>,
    made: u64,
    epoch: u64,
    text: &mut Text,
) -> fmt::Result {
    let all_cpus = scheduler.all_cpus();
    let mut total = [0; 3];
    for cpu in all_cpus.iter() {
        for (sum, part) in total.iter_mut().zip(times(cpus, cpu)) {
            *sum += part;
        }
    }
    text.write_str("cpu ")?;
    write_times(text, total)?;
    for cpu in all_cpus.iter() {
        write!(text, "cpu{}", cpu.index())?;
        write_times(text, times(cpus, cpu))?;
    }
    let kinds = INTERRUPTS.map(|(_, kind, _)| kind);
    let taken: u64 = all_cpus
        .iter()
        .flat_map(|cpu| kinds.map(|kind| cpus.interrupts(cpu, kind)))
        .sum();
    writeln!(text, "intr {taken}\nctxt {}", scheduler.switches())?;
    writeln!(text, "btime {epoch}")?;
    writeln!(text, "processes {made}")?;
    writeln!(text, "procs_running {}", scheduler.active())?;
    writeln!(text, "procs_blocked {BLOCKED}")
}

/// Writes `/proc/uptime`: the time since boot, and the sum of the idle times of all CPUs.
pub fn uptime(
    clock: &dyn Clock,
    cpus: &dyn Cpus,
    all_cpus: CpuSet,
    text: &mut Text,
) -> fmt::Result {
    let now = clock.now();
    let idle: u64 = all_cpus.iter().map(|cpu| cpus.times(cpu).idle).sum();
    let hundredths = |time: u64| time % SECOND / (SECOND / 100);
    let (up, up_rest) = (now / SECOND, hundredths(now));
    let (idle, idle_rest) = (idle / SECOND, hundredths(idle));
    writeln!(text, "{up}.{up_rest:02} {idle}.{idle_rest:02}")
}

/// Writes `/proc/loadavg` (`fs/proc/loadavg.c` of Linux 7.2).
pub fn load(
    clock: &dyn Clock,
    scheduler: &Scheduler<Thread>,
    tasks: &Tasks,
    text: &mut Text,
) -> fmt::Result {
    for load in scheduler.load_averages(clock.now()) {
        write!(text, "{load} ")?;
    }
    let (threads, last) = {
        let tasks = tasks.lock();
        (tasks.threads.len(), tasks.last_id())
    };
    writeln!(text, "{}/{threads} {last}", scheduler.active())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_taken_apart() {
        for (word, parts) in [
            (0x0005_06e3, (6, 94, 3)),
            (0x0000_0663, (6, 6, 3)),
            (0x0083_0f10, (23, 49, 0)),
            (0x0000_0583, (5, 8, 3)),
        ] {
            assert_eq!(signature(word), parts, "{word:x}");
        }
    }

    #[test]
    fn features_have_one_name() {
        for (index, one) in FEATURES.iter().enumerate() {
            assert!(one.1 < 4 && one.2 < 32);
            let others = &FEATURES[index + 1..];
            assert!(others.iter().all(|other| other.3 != one.3), "{}", one.3);
        }
    }
}
