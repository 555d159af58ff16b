//! The QEMU command line. Everything that a guest can observe is fixed, so that runs repeat on every machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use memwright_linux_abi::channel::{WINDOW, WINDOW_SLOT};

use crate::model::machine::{Apic, Clock, Machine};
use crate::qemu::disk;
use crate::qemu::nodes::{self, Backing};

/// The machine type. QEMU 7.2 is the oldest supported version, and the defaults of a versioned type never change.
const MACHINE: &str = "pc-i440fx-7.2";
/// A CPU model with an xAPIC, and with only the features that TCG supports in every QEMU version. `enforce` makes QEMU
/// refuse to start instead of dropping a feature. ERMS is off because TCG counts `rep stosb` as one instruction per
/// byte.
const CPU_WITH_XAPIC: &str = "Haswell-v4,-pcid,-x2apic,-tsc-deadline,-invpcid,-spec-ctrl,-erms,\
    +smap,+pku,+pdpe1gb,+umip,+adx,+clflushopt,+clwb,+xgetbv1,enforce";
/// The CPU model of `CPU_WITH_XAPIC` with an x2APIC, which TCG supports in later QEMU versions.
const CPU_WITH_X2APIC: &str = "Haswell-v4,-pcid,+x2apic,-tsc-deadline,-invpcid,-spec-ctrl,-erms,\
    +smap,+pku,+pdpe1gb,+umip,+adx,+clflushopt,+clwb,+xgetbv1,enforce";
/// The guest's wall clock at boot, which is [`crate::guestfs::initrd::EPOCH`].
const CLOCK: &str = "base=2026-01-01T00:00:00,clock=vm";

/// The files and sockets of one run.
#[derive(Debug, Clone)]
pub struct Places {
    /// The kernel image.
    pub kernel: PathBuf,
    /// The archive of the guest's files.
    pub initrd: PathBuf,
    /// The socket of COM1, on which the command sends the lengths of answers to the guest's requests.
    pub input: PathBuf,
    /// The socket of COM2, on which the command sends control bytes to the guest.
    pub control: PathBuf,
    /// The socket of QEMU's monitor.
    pub monitor: PathBuf,
    /// The file behind the window, the memory that the command shares with the guest.
    pub window: PathBuf,
    /// The file that backs the guest's disk.
    pub disk: PathBuf,
}

impl Places {
    /// Returns the default names: files in the folder `files`, sockets in the folder `sockets`.
    pub fn within(files: &Path, sockets: &Path) -> Self {
        Self {
            kernel: files.join("kernel"),
            initrd: files.join("initrd.cpio"),
            input: sockets.join("input.sock"),
            control: sockets.join("control.sock"),
            monitor: sockets.join("monitor.sock"),
            window: sockets.join("window"),
            disk: sockets.join("disk"),
        }
    }
}

/// Returns the arguments that define the machine. They depend on `machine` and `backing`, but not on the kernel that
/// boots.
pub fn machine_arguments(machine: &Machine, backing: &Backing<'_>) -> Vec<OsString> {
    let mut line: Vec<OsString> = Vec::new();
    let mut add = |words: &[&OsStr]| line.extend(words.iter().map(|word| (*word).to_owned()));
    let word = OsStr::new;
    add(&[word("-machine"), word(MACHINE)]);
    match machine.clock {
        Clock::Instructions => {
            add(&[word("-accel"), word("tcg,thread=single")]);
            add(&[word("-icount"), word("shift=0,sleep=off")]);
        }
        Clock::Host => add(&[word("-accel"), word("tcg,thread=multi")]),
    }
    add(&[word("-rtc"), word(CLOCK)]);
    add(&[word("-seed"), word("1")]);
    let model = match machine.apic {
        Apic::Xapic => CPU_WITH_XAPIC,
        Apic::X2apic => CPU_WITH_X2APIC,
    };
    add(&[word("-cpu"), word(model)]);
    add(&[word("-smp"), word(&machine.cpus.to_string())]);
    add(&[word("-m"), word(&machine.memory.to_string())]);
    for option in nodes::options(machine.nodes, machine.memory, machine.cpus, backing) {
        add(&[word(option.name), word(&option.value)]);
    }
    add(&[
        word("-nodefaults"),
        word("-no-user-config"),
        word("-no-reboot"),
        word("-display"),
        word("none"),
    ]);
    line
}

/// Returns QEMU's arguments for Memwright's kernel. With `gdb`, QEMU listens for a debugger on that local TCP port, and
/// the CPUs do not run until the debugger continues them.
pub fn arguments(
    places: &Places,
    machine: &Machine,
    backing: &Backing<'_>,
    gdb: Option<u16>,
) -> Vec<OsString> {
    let mut line = machine_arguments(machine, backing);
    let mut add = |words: &[&OsStr]| line.extend(words.iter().map(|word| (*word).to_owned()));
    let word = OsStr::new;
    add(&[word("-kernel"), places.kernel.as_os_str()]);
    add(&[word("-initrd"), places.initrd.as_os_str()]);
    let window = format!("memory-backend-file,id=window,size={WINDOW},share=on,mem-path=");
    add(&[word("-object"), &option(&window, &places.window)]);
    add(&[
        word("-device"),
        word(&format!("ivshmem-plain,memdev=window,addr={WINDOW_SLOT}")),
    ]);
    if machine.disk.is_some() {
        line.extend(disk::arguments(&places.disk));
    }
    let mut add = |words: &[&OsStr]| line.extend(words.iter().map(|word| (*word).to_owned()));
    add(&[word("-chardev"), word("file,id=output,path=/dev/stdout")]);
    add(&[
        word("-device"),
        word("isa-debugcon,iobase=0xe9,chardev=output"),
    ]);
    for (name, path) in [("input", &places.input), ("control", &places.control)] {
        add(&[word("-chardev"), &socket(name, path)]);
        add(&[word("-serial"), word(&format!("chardev:{name}"))]);
    }
    add(&[word("-chardev"), &socket("monitor", &places.monitor)]);
    add(&[word("-mon"), word("chardev=monitor,mode=control")]);
    add(&[word("-device"), word("isa-debug-exit,iobase=0xf4,iosize=4")]);
    if let Some(port) = gdb {
        add(&[
            word("-gdb"),
            word(&format!("tcp:127.0.0.1:{port}")),
            word("-S"),
        ]);
    }
    line
}

/// Returns the option for a socket on which QEMU listens. QEMU starts without waiting for a connection.
fn socket(name: &str, path: &Path) -> OsString {
    option(&format!("socket,id={name},server=on,wait=off,path="), path)
}

/// Returns the option that consists of `before` and `path`. Commas in the path are doubled, as QEMU requires.
pub fn option(before: &str, path: &Path) -> OsString {
    let mut text = before.as_bytes().to_vec();
    for byte in path.as_os_str().as_bytes() {
        text.push(*byte);
        if *byte == b',' {
            text.push(b',');
        }
    }
    OsString::from_vec(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::nodes::Nodes;
    use crate::model::shell::shell_line;
    use crate::model::size::MemorySize;

    #[test]
    fn commas_in_socket_paths_are_doubled() {
        assert_eq!(
            socket("x", Path::new("/a,b")),
            "socket,id=x,server=on,wait=off,path=/a,,b"
        );
    }

    const SMALL: Machine = Machine {
        memory: MemorySize::least(),
        cpus: 1,
        nodes: Nodes::even(1),
        clock: Clock::Instructions,
        apic: Apic::Xapic,
        disk: None,
    };

    fn line(machine: &Machine, gdb: Option<u16>) -> String {
        let places = Places::within(Path::new("/d"), Path::new("/s"));
        shell_line(
            OsStr::new("qemu"),
            &arguments(&places, machine, &Backing::Own, gdb),
        )
    }

    #[test]
    fn a_debugger_is_waited_for_only_when_asked() {
        assert!(!line(&SMALL, None).contains(" -S"));
        let line = line(&SMALL, Some(1234));
        assert!(line.contains("-m 16M") && line.ends_with("-gdb tcp:127.0.0.1:1234 -S"));
    }

    #[test]
    fn parallel_cpus_count_no_instructions() {
        let turns = Machine { cpus: 4, ..SMALL };
        assert!(line(&turns, None).contains("thread=single -icount shift=0,sleep=off"));
        assert!(line(&turns, None).contains("-x2apic") && line(&turns, None).contains("-smp 4 "));
        let parallel = Machine {
            clock: Clock::Host,
            apic: Apic::X2apic,
            ..turns
        };
        assert!(!line(&parallel, None).contains("-icount"));
        assert!(line(&parallel, None).contains("thread=multi"));
        assert!(line(&parallel, None).contains("+x2apic"));
    }
}
