//! The options that the configuration of a Linux kernel needs so that this command can run programs on the kernel.
//!
//! [`GROUPS`] is the only list of these options. The printed fragment, the check of a configuration, and the table in
//! `docs/command.md` are made from it.

use std::collections::HashMap;
use std::fmt::Write;

/// The options that one purpose needs.
#[derive(Debug)]
pub struct Group {
    /// The purpose: "every run", or the options of this command that need the group.
    pub purpose: &'static str,
    /// Whether every run needs the group.
    pub is_required: bool,
    /// A sentence that says what does not work without the group.
    pub without: &'static str,
    /// The options.
    pub options: &'static [ConfigOption],
}

/// An option of Kconfig and the value that it needs.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigOption {
    /// The name without `CONFIG_`.
    pub name: &'static str,
    wanted: Wanted,
    substitute: Substitute,
}

/// The value that an option needs.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// `y`: guests do not load the option's module.
    BuiltIn,
    /// `y`, or `m` because guests load the module ([`crate::linux::modules`]).
    BuiltInOrModule,
    /// A number that is at least this one.
    AtLeast(u32),
}

/// The options that a configuration may have instead of an option that it lacks.
#[derive(Debug, PartialEq, Eq)]
enum Substitute {
    /// Nothing.
    Nothing,
    /// Another option.
    Other(&'static str),
    /// All of these options. They replace the option only if the configuration does not mention the option at all,
    /// because that version of Linux does not have it.
    InOtherVersions(&'static [&'static str]),
}

/// Returns an option that must be `y`.
const fn yes(name: &'static str) -> ConfigOption {
    ConfigOption {
        name,
        wanted: Wanted::BuiltIn,
        substitute: Substitute::Nothing,
    }
}

/// Returns an option that must be `y` or `m`.
const fn loaded(name: &'static str) -> ConfigOption {
    ConfigOption {
        wanted: Wanted::BuiltInOrModule,
        ..yes(name)
    }
}

/// Returns an option that must be `y` in versions of Linux that have it.
const fn if_known(name: &'static str) -> ConfigOption {
    ConfigOption {
        substitute: Substitute::InOtherVersions(&[]),
        ..yes(name)
    }
}

const EVERY_RUN: &str = "every run";

/// Every option, by purpose.
pub const GROUPS: &[Group] = &[
    Group {
        purpose: EVERY_RUN,
        is_required: true,
        without: "Without these, the kernel does not execute the initrd's first process, a 64-bit ELF file.",
        options: &[yes("64BIT"), yes("BLK_DEV_INITRD"), yes("BINFMT_ELF")],
    },
    Group {
        purpose: EVERY_RUN,
        is_required: true,
        without: "Without this, the first process cannot access the I/O ports from which it reads the program and to \
            which it writes the output.",
        // Linux has the option since 5.5. Earlier kernels always have the system call iopl.
        options: &[if_known("X86_IOPL_IOPERM")],
    },
    Group {
        purpose: EVERY_RUN,
        is_required: true,
        without: "Without these, the first process has no console at descriptors 0 to 2, and the reason of a panic is \
            not printed.",
        options: &[
            yes("PRINTK"),
            yes("TTY"),
            yes("SERIAL_8250"),
            yes("SERIAL_8250_CONSOLE"),
        ],
    },
    Group {
        purpose: EVERY_RUN,
        is_required: true,
        without: "Without these, /proc, /sys or /dev are empty: no /dev/null, and no build ID of the kernel.",
        options: &[yes("PROC_FS"), yes("SYSFS"), yes("DEVTMPFS")],
    },
    Group {
        purpose: "a vmlinux as the image",
        is_required: false,
        without: "Without these, QEMU boots only a bzImage.",
        options: &[yes("HYPERVISOR_GUEST"), yes("PVH")],
    },
    Group {
        purpose: "programs with threads, or with madvise",
        is_required: false,
        without: "Without these, the system calls futex and madvise fail.",
        options: &[yes("FUTEX"), yes("ADVISE_SYSCALLS")],
    },
    Group {
        purpose: "scripts",
        is_required: false,
        without: "Without this, PROGRAM cannot be a file that begins with #!.",
        options: &[yes("BINFMT_SCRIPT")],
    },
    Group {
        purpose: "fast starts",
        is_required: false,
        without: "Without this, there is no /proc/self/pagemap, and each MiB of the program and its files takes 85 ms \
            instead of 4.",
        options: &[yes("PROC_PAGE_MONITOR")],
    },
    Group {
        purpose: "--root",
        is_required: false,
        without: "Without these, there is no /dev/shm and no loopback interface, and names that the program does not \
            find are not reported.",
        options: &[
            yes("SHMEM"),
            yes("TMPFS"),
            yes("NET"),
            yes("UNIX"),
            yes("INET"),
            yes("SECCOMP"),
            yes("SECCOMP_FILTER"),
            yes("CROSS_MEMORY_ATTACH"),
        ],
    },
    Group {
        purpose: "--swap",
        is_required: false,
        without: "Without these, there is no swap.",
        options: &[yes("SWAP"), yes("BLOCK"), yes("BLK_DEV")],
    },
    Group {
        purpose: "--swap zram",
        is_required: false,
        without: "Without these, there is no swap in compressed memory, or another algorithm compresses it.",
        options: &[
            loaded("ZRAM"),
            // Before Linux 6.12, zram compresses through the crypto API.
            ConfigOption {
                substitute: Substitute::InOtherVersions(&["CRYPTO", "CRYPTO_LZ4"]),
                ..yes("ZRAM_BACKEND_LZ4")
            },
        ],
    },
    Group {
        purpose: "--swap disk",
        is_required: false,
        without: "Without these, there is no swap on a disk.",
        options: &[
            yes("PCI"),
            yes("VIRTIO_MENU"),
            loaded("VIRTIO_PCI"),
            // The disk of a guest is a legacy device.
            yes("VIRTIO_PCI_LEGACY"),
            loaded("VIRTIO_BLK"),
        ],
    },
    Group {
        purpose: "--cpus",
        is_required: false,
        without: "Without these, the kernel uses one CPU, or fewer than the 64 that a guest can have.",
        options: &[
            yes("SMP"),
            ConfigOption {
                wanted: Wanted::AtLeast(64),
                ..yes("NR_CPUS")
            },
        ],
    },
    Group {
        purpose: "--numa",
        is_required: false,
        without: "Without these, the kernel sees one node.",
        options: &[yes("ACPI"), yes("NUMA"), yes("X86_64_ACPI_NUMA")],
    },
    Group {
        purpose: "--thp and --thp-size",
        is_required: false,
        without: "Without this, there are no transparent huge pages.",
        options: &[yes("TRANSPARENT_HUGEPAGE")],
    },
    Group {
        purpose: "--hugetlb",
        is_required: false,
        without: "Without this, there are no hugetlb pages.",
        options: &[yes("HUGETLBFS")],
    },
    Group {
        purpose: "--functions",
        is_required: false,
        without: "Without this, the functions of a bzImage have no names. Those of a vmlinux do.",
        options: &[yes("KALLSYMS")],
    },
    Group {
        purpose: "--inlined and --lines",
        is_required: false,
        without: "Without these, there is no debug information.",
        options: &[
            yes("DEBUG_KERNEL"),
            ConfigOption {
                substitute: Substitute::Other("DEBUG_INFO"),
                ..yes("DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT")
            },
        ],
    },
    Group {
        purpose: "bench: experiments that track writes",
        is_required: false,
        without: "Without these, userfaultfd and soft-dirty bits are \"not measured\".",
        options: &[
            yes("USERFAULTFD"),
            if_known("PTE_MARKER_UFFD_WP"),
            yes("CHECKPOINT_RESTORE"),
            yes("MEM_SOFT_DIRTY"),
        ],
    },
    Group {
        purpose: "bench: merge, and growth with merged pages or cgroups",
        is_required: false,
        without: "Without these, they are \"not measured\".",
        options: &[yes("KSM"), yes("CGROUPS"), yes("MEMCG")],
    },
    Group {
        purpose: "bench: numa-hint and autonuma",
        is_required: false,
        without: "Without these, they fail.",
        options: &[
            yes("MIGRATION"),
            // Newer versions enable MIGRATION only through this option, which NUMA_BALANCING depends on.
            if_known("NUMA_MIGRATION"),
            yes("NUMA_BALANCING"),
            yes("VM_EVENT_COUNTERS"),
            yes("DEBUG_FS"),
            // Since Linux 6.15, the kernel has these debugfs files without an option.
            if_known("SCHED_DEBUG"),
        ],
    },
];

const HEAD: &str = "\
# Options that a Linux kernel needs so that memwright can run programs on it.
# Start from nothing:          make KCONFIG_ALLCONFIG=FILE allnoconfig
# Add to the file .config:     scripts/kconfig/merge_config.sh .config FILE
# See what Kconfig refused:    memwright kernels config .config
";

/// The longest line of a comment in the fragment.
const WIDTH: usize = 100;

/// Returns the complete fragment.
pub fn complete() -> String {
    let groups = GROUPS.iter();
    let groups = groups.map(|group| (group, group.options.iter().collect()));
    format!("{HEAD}{}", fragment(groups))
}

/// The options that a configuration lacks, by group.
#[derive(Debug, Default)]
pub struct Lacking {
    groups: Vec<(&'static Group, Vec<&'static ConfigOption>)>,
}

impl Lacking {
    /// Returns the fragment with the options that the configuration lacks.
    pub fn fragment(&self) -> String {
        fragment(self.groups.iter().cloned())
    }

    /// Returns the names of the lacking options: with `is_required`, those that every run needs; otherwise, all others.
    pub fn names(&self, is_required: bool) -> Vec<String> {
        let groups = self.groups.iter();
        let groups = groups.filter(|(group, _)| group.is_required == is_required);
        let options = groups.flat_map(|(_, options)| options);
        options
            .map(|option| format!("CONFIG_{}", option.name))
            .collect()
    }
}

/// Returns the options that the text of a `.config` file lacks. Returns `None` if the text mentions no option and is
/// therefore not that of a `.config` file.
pub fn lacking(text: &[u8]) -> Option<Lacking> {
    let configuration = Configuration::parse(text);
    if configuration.0.is_empty() {
        return None;
    }
    let groups = GROUPS.iter().map(|group| {
        let options = group.options.iter();
        let options = options.filter(|option| !configuration.has(option));
        (group, options.collect::<Vec<_>>())
    });
    let groups = groups.filter(|(_, options)| !options.is_empty()).collect();
    Some(Lacking { groups })
}

/// The options that a configuration mentions, with their values. The value of an option that is not set is `n`.
struct Configuration<'a>(HashMap<&'a [u8], &'a [u8]>);

impl<'a> Configuration<'a> {
    fn parse(text: &'a [u8]) -> Self {
        let lines = text.split(|byte| *byte == b'\n');
        // As in Kconfig, the last line about an option counts.
        Self(
            lines
                .filter_map(|line| setting(line.trim_ascii()))
                .collect(),
        )
    }

    fn has(&self, option: &ConfigOption) -> bool {
        let value = self.0.get(option.name.as_bytes()).copied();
        if value.is_some_and(|value| option.wanted.allows(value)) {
            return true;
        }
        let is_set = |name: &str| {
            let value = self.0.get(name.as_bytes());
            value.is_some_and(|value| Wanted::BuiltInOrModule.allows(value))
        };
        match option.substitute {
            Substitute::Nothing => false,
            Substitute::Other(name) => is_set(name),
            Substitute::InOtherVersions(names) => {
                value.is_none() && names.iter().all(|name| is_set(name))
            }
        }
    }
}

/// Parses a line of a `.config` file into the name of an option and its value.
fn setting(line: &[u8]) -> Option<(&[u8], &[u8])> {
    if let Some(line) = line.strip_prefix(b"CONFIG_") {
        let equals = line.iter().position(|byte| *byte == b'=')?;
        return Some((&line[..equals], &line[equals + 1..]));
    }
    let name = line.strip_prefix(b"# CONFIG_")?;
    Some((name.strip_suffix(b" is not set")?, b"n"))
}

impl Wanted {
    fn allows(&self, value: &[u8]) -> bool {
        match self {
            Self::BuiltIn => value == b"y",
            Self::BuiltInOrModule => value == b"y" || value == b"m",
            Self::AtLeast(least) => {
                let number = str::from_utf8(value).ok();
                let number = number.and_then(|number| number.parse::<u32>().ok());
                number.is_some_and(|number| number >= *least)
            }
        }
    }
}

impl ConfigOption {
    /// Returns the lines of the fragment for this option.
    fn lines(&self) -> String {
        let name = self.name;
        let mut lines = match self.wanted {
            Wanted::BuiltIn | Wanted::BuiltInOrModule => format!("CONFIG_{name}=y\n"),
            Wanted::AtLeast(least) => format!("CONFIG_{name}={least}\n"),
        };
        if let Substitute::InOtherVersions(names @ [_, ..]) = self.substitute {
            let names: Vec<String> = names
                .iter()
                .map(|name| format!("CONFIG_{name}=y"))
                .collect();
            let names = names.join(" ");
            // Writing to a string does not fail.
            let _ = writeln!(
                lines,
                "# A version without CONFIG_{name} needs {names} instead."
            );
        }
        lines
    }
}

/// Returns a fragment with the given options of each group, in the format that Kconfig reads.
fn fragment(groups: impl Iterator<Item = (&'static Group, Vec<&'static ConfigOption>)>) -> String {
    let mut text = String::new();
    for (group, options) in groups {
        text.push('\n');
        text.push_str(&comment(&format!(
            "For {}. {}",
            group.purpose, group.without
        )));
        text.extend(options.iter().map(|option| option.lines()));
    }
    text
}

/// Returns the lines of a comment with this text.
fn comment(text: &str) -> String {
    let mut lines = String::new();
    let mut line = "#".to_owned();
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    lines.push_str(&line);
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Returns the names of the options that a configuration lacks: first those that every run needs, then all others.
    fn lacks(text: &str) -> [Vec<String>; 2] {
        let lacking = lacking(text.as_bytes()).unwrap();
        [lacking.names(true), lacking.names(false)]
    }

    #[test]
    fn the_fragment_lacks_nothing_and_each_of_its_lines_is_needed() {
        let complete = complete();
        assert_eq!(lacks(&complete), [Vec::<String>::new(), Vec::new()]);
        assert!(complete.lines().all(|line| line.len() <= WIDTH));
        let is_setting = |line: &&str| line.starts_with("CONFIG_");
        let lines: Vec<&str> = complete.lines().filter(is_setting).collect();
        for left_out in &lines {
            let name = left_out.split('=').next().unwrap();
            let others = lines.iter().filter(|line| line != &left_out);
            let others: String = others.map(|line| format!("{line}\n")).collect();
            let text = format!("{others}# {name} is not set\n");
            assert_eq!(lacks(&text).concat(), [name], "{left_out}");
        }
    }

    #[test]
    fn each_option_is_there_once() {
        let options = GROUPS.iter().flat_map(|group| group.options);
        let mut names = BTreeSet::new();
        for option in options {
            assert!(names.insert(option.name), "{}", option.name);
            let plain =
                |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(option.name.bytes().all(plain), "{}", option.name);
        }
    }

    #[test]
    fn values_and_substitutes() {
        let complete = complete();
        for (change, expected) in [
            // Guests load the modules for swap, but no other modules.
            ("CONFIG_ZRAM=m", ""),
            ("CONFIG_VIRTIO_BLK=m", ""),
            ("CONFIG_SERIAL_8250=m", "CONFIG_SERIAL_8250"),
            ("CONFIG_NR_CPUS=8192", ""),
            ("CONFIG_NR_CPUS=63", "CONFIG_NR_CPUS"),
            ("CONFIG_NR_CPUS=99999999999", "CONFIG_NR_CPUS"),
            ("CONFIG_NR_CPUS=", "CONFIG_NR_CPUS"),
            ("# CONFIG_SMP is not set", "CONFIG_SMP"),
            ("CONFIG_SMP=n", "CONFIG_SMP"),
            ("CONFIG_SMP=\"y\"", "CONFIG_SMP"),
            ("  CONFIG_SMP=y\r", ""),
            ("CONFIG_SMP", ""),
            ("#CONFIG_SMP is not set", ""),
            ("CONFIG_SMP=n\nCONFIG_SMP=y", ""),
            // Other forms of debug information.
            (
                "# CONFIG_DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT is not set",
                "CONFIG_DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT",
            ),
            (
                "# CONFIG_DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT is not set\nCONFIG_DEBUG_INFO=y",
                "",
            ),
            // The other option replaces the lacking one only in a version of Linux that does not have the lacking one.
            (
                "# CONFIG_ZRAM_BACKEND_LZ4 is not set\nCONFIG_CRYPTO_LZ4=y",
                "CONFIG_ZRAM_BACKEND_LZ4",
            ),
        ] {
            let found = lacks(&format!("{complete}{change}\n")).concat();
            assert_eq!(found.concat(), expected, "{change:?}");
        }
    }

    #[test]
    fn options_of_other_versions_are_not_asked_for() {
        let complete = complete();
        let without = |name: &str| {
            let lines = complete.lines().filter(|line| !line.starts_with(name));
            lines.map(|line| format!("{line}\n")).collect::<String>()
        };
        for (name, added, is_complete) in [
            ("CONFIG_X86_IOPL_IOPERM=", "", true),
            ("CONFIG_SCHED_DEBUG=", "", true),
            ("CONFIG_NUMA_MIGRATION=", "", true),
            ("CONFIG_ZRAM_BACKEND_LZ4=", "", false),
            (
                "CONFIG_ZRAM_BACKEND_LZ4=",
                "CONFIG_CRYPTO=y\nCONFIG_CRYPTO_LZ4=m\n",
                true,
            ),
            ("CONFIG_SMP=", "", false),
        ] {
            let found = lacks(&format!("{}{added}", without(name))).concat();
            assert_eq!(found.is_empty(), is_complete, "{name} {added}: {found:?}");
        }
    }

    #[test]
    fn what_is_lacking_is_a_fragment_too() {
        let complete = complete();
        let changed = format!("{complete}# CONFIG_TTY is not set\n# CONFIG_NUMA is not set\n");
        let lacking = lacking(changed.as_bytes()).unwrap();
        assert_eq!(lacking.names(true), ["CONFIG_TTY"]);
        assert_eq!(lacking.names(false), ["CONFIG_NUMA"]);
        let again = format!("{changed}{}", lacking.fragment());
        assert_eq!(lacks(&again).concat(), Vec::<String>::new());
    }

    #[test]
    fn other_files_are_no_configurations() {
        for text in [
            "",
            "root:x:0:0\n",
            "\0\0\0",
            "CONFIG_",
            "# CONFIG_X",
            "xCONFIG_X=y",
        ] {
            assert!(lacking(text.as_bytes()).is_none(), "{text:?}");
        }
        assert!(lacking(b"\xff\xfe\nCONFIG_X=\xff\n").is_some());
    }

    /// Returns the table of the page about the command.
    fn table() -> String {
        let mut table = "| For | Options | What happens without them |\n|---|---|---|\n".to_owned();
        for group in GROUPS {
            let options = group.options.iter();
            let options: Vec<String> = options.map(|option| format!("`{}`", option.name)).collect();
            let (purpose, without) = (group.purpose, group.without);
            writeln!(table, "| {purpose} | {} | {without} |", options.join(", ")).unwrap();
        }
        table
    }

    /// `cargo xtask docs` writes the table, and this test checks that it is up to date.
    #[test]
    fn the_table_of_the_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/command.md");
        let page = std::fs::read_to_string(path).unwrap();
        let begin = "<!-- generated: config -->\n";
        let (before, rest) = page.split_once(begin).unwrap();
        let (_, after) = rest.split_once("<!-- end -->\n").unwrap();
        let wanted = format!("{before}{begin}{}<!-- end -->\n{after}", table());
        if std::env::var_os("MEMWRIGHT_UPDATE_DOCS").is_some() {
            std::fs::write(path, &wanted).unwrap();
        }
        let is_current = page == wanted || std::fs::read_to_string(path).unwrap() == wanted;
        assert!(
            is_current,
            "docs/command.md is not current (cargo xtask docs)"
        );
    }
}
