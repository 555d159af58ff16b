//! The parameters of the run, which the `memwright` command on the host writes into the archive as control entries.

use crate::cpio::CpioArchive;
use alloc::{string::String, vec::Vec};
use memwright::{LARGEST_ORDER, SMALLEST_ORDER, SizeMode};

/// Directory of the control entries in the archive. It is not part of the guest's file system.
pub const CONTROL_FOLDER: &[u8] = b".memwright";

/// The type of a standard stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Stream {
    /// A pipe or a file.
    #[default]
    Pipe,
    /// A terminal.
    Terminal,
}

/// The kinds of storage on which swap is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapKind {
    /// Compressed memory.
    Zram,
    /// The disk of the virtual machine.
    Disk,
}

/// A swap device that the user of the command requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapRequest {
    /// The kind of storage.
    pub kind: SwapKind,
    /// Size in bytes.
    pub size: u64,
}

impl SwapRequest {
    /// Parses `zram:BYTES` or `disk:BYTES`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, size) = text.split_once(':')?;
        let kind = match kind {
            "zram" => SwapKind::Zram,
            "disk" => SwapKind::Disk,
            _ => return None,
        };
        let size = size.parse().ok()?;
        Some(Self { kind, size })
    }
}

/// The program to run and its parameters.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// Absolute path of the program.
    pub program: Vec<u8>,
    /// Absolute path of the initial working directory; empty for the root.
    pub folder: Vec<u8>,
    /// Arguments. The first is the program's name as the user wrote it.
    pub arguments: Vec<Vec<u8>>,
    /// Environment strings, `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// The types of standard input, output and error.
    pub streams: [Stream; 3],
    /// Whether the kernel prints one trace line per memory event.
    pub trace: bool,
    /// Whether the kernel prints one line per system call.
    pub system_calls: bool,
    /// Whether the command on the host serves a lower tree for the root file system (`--root`).
    pub lower: bool,
    /// Real time at boot, in seconds since 1970.
    pub epoch: u64,
    /// Seed of all random numbers of the run.
    pub seed: u64,
    /// Seed of the address layout; `None` for the fixed layout.
    pub layout_seed: Option<u64>,
    /// The modes of the folio sizes. The first number of each pair is the order of the folio size.
    pub sizes: Vec<(u8, SizeMode)>,
    /// Number of huge pages in the pool at boot.
    pub huge_pages: u64,
    /// Terminal width in characters.
    pub columns: u16,
    /// Terminal height in lines.
    pub rows: u16,
    /// Swap devices.
    pub swap: Vec<SwapRequest>,
    /// Policies of all parts of the kernel, as pairs of a name and a value.
    pub policies: Vec<(String, String)>,
}

impl Manifest {
    /// Parses the control entries of an archive. A parameter without an entry keeps its default. Unknown options are
    /// ignored, so that an older kernel accepts a newer command.
    pub fn parse(archive: CpioArchive<'_>) -> Self {
        let mut manifest = Self {
            columns: 80,
            rows: 24,
            ..Self::default()
        };
        for entry in archive {
            match entry.name {
                b".memwright/argv" => manifest.arguments = strings(entry.data),
                b".memwright/env" => manifest.environment = strings(entry.data),
                b".memwright/options" => {
                    let text = core::str::from_utf8(entry.data).unwrap_or_default();
                    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
                        manifest.option(key, value);
                    }
                }
                _ => {}
            }
        }
        manifest
    }

    fn option(&mut self, key: &str, value: &str) {
        let stream = if value == "tty" {
            Stream::Terminal
        } else {
            Stream::Pipe
        };
        match key {
            "program" => self.program = value.as_bytes().to_vec(),
            "folder" => self.folder = value.as_bytes().to_vec(),
            "trace" => self.trace = value == "1",
            "lower" => self.lower = value == "1",
            "strace" => self.system_calls = value == "1",
            "stdin" => self.streams[0] = stream,
            "stdout" => self.streams[1] = stream,
            "stderr" => self.streams[2] = stream,
            "epoch" => self.epoch = value.parse().unwrap_or(0),
            "hugetlb" => self.huge_pages = value.parse().unwrap_or(0),
            "seed" => self.seed = value.parse().unwrap_or(0),
            #[expect(clippy::disallowed_methods, reason = "before any program runs")]
            "thp_size" => self.sizes.extend(parse_size(value)),
            #[expect(clippy::disallowed_methods, reason = "before any program runs")]
            "swap" => self.swap.extend(SwapRequest::parse(value)),
            "columns" => self.columns = value.parse().unwrap_or(80),
            "rows" => self.rows = value.parse().unwrap_or(24),
            _ => {
                if let Some(policy) = key.strip_prefix("policy.") {
                    if policy == "aslr" {
                        self.layout_seed = value.parse().ok();
                    }
                    #[expect(clippy::disallowed_methods, reason = "before any program runs")]
                    self.policies.push((policy.into(), value.into()));
                }
            }
        }
    }
}

/// Parses the order of a folio size and its mode: `4:always` sets the mode of 64 KiB folios.
fn parse_size(value: &str) -> Option<(u8, SizeMode)> {
    let (order, word) = value.split_once(':')?;
    let order = order.parse().ok()?;
    let (mode, _) = SizeMode::ALL.into_iter().find(|(_, name)| *name == word)?;
    (SMALLEST_ORDER..=LARGEST_ORDER)
        .contains(&order)
        .then_some((order, mode))
}

/// Splits `data` into its NUL-terminated strings.
#[expect(clippy::disallowed_methods, reason = "before any program runs")]
fn strings(data: &[u8]) -> Vec<Vec<u8>> {
    data.strip_suffix(b"\0")
        .map(|strings| {
            strings
                .split(|byte| *byte == 0)
                .map(<[u8]>::to_vec)
                .collect()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Manifest, Stream};
    use super::{SwapKind, SwapRequest};
    use crate::cpio::{CpioArchive, tests::append};
    use alloc::vec::Vec;

    #[test]
    fn control_entries_are_read() {
        let mut bytes = Vec::new();
        append(&mut bytes, ".memwright/argv", 0o100_644, b"/bin/sh\0-c\0\0");
        append(&mut bytes, ".memwright/env", 0o100_644, b"A=1\0");
        let options =
            b"folder=/home\nstrace=1\nstdin=tty\nseed=7\nswap=zram:8192\nswap=disk:4096\npolicy.aslr=9\npolicy.x=y\nthp_size=4:always\nthp_size=1:always\nlater=1\n";
        append(&mut bytes, ".memwright/options", 0o100_644, options);
        let manifest = Manifest::parse(CpioArchive::new(&bytes));
        assert_eq!(
            manifest.arguments,
            [b"/bin/sh".to_vec(), b"-c".to_vec(), Vec::new()]
        );
        assert_eq!(manifest.environment, [b"A=1".to_vec()]);
        assert_eq!(manifest.folder, b"/home");
        assert!(manifest.system_calls && !manifest.trace);
        assert_eq!(
            manifest.streams,
            [Stream::Terminal, Stream::Pipe, Stream::Pipe]
        );
        assert_eq!((manifest.seed, manifest.layout_seed), (7, Some(9)));
        assert_eq!(manifest.policies[1], ("x".into(), "y".into()));
        assert_eq!((manifest.columns, manifest.rows), (80, 24));
        assert_eq!(manifest.sizes, [(4, memwright::SizeMode::Always)]);
        let [zram, disk] = [(SwapKind::Zram, 8192), (SwapKind::Disk, 4096)];
        let swap = [zram, disk].map(|(kind, size)| SwapRequest { kind, size });
        assert_eq!(manifest.swap, swap);
    }
}
