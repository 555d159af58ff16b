//! The QEMU features that count a guest's events.

use crate::count::system::resumes_calls;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::bail;

use crate::count::counted::Counted;
use crate::count::log::Tally;
use crate::count::wires::Wires;
use crate::model::code::Code;
use crate::model::image::System;
use crate::qemu::command::option;

/// The QEMU features that count a guest's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counting {
    /// The plugin, and QEMU's log of exceptions and interrupts.
    Plugin(PathBuf),
    /// QEMU's log alone. The rows that need the plugin are not measured.
    Log,
    /// Nothing is counted. The plugin only delays a CPU that halts, so that QEMU advances the clock identically in
    /// every boot.
    Halts(PathBuf),
    /// Nothing is counted.
    Nothing,
}

impl Counting {
    /// Returns the QEMU arguments that count the events of a guest with `cpus` CPUs. `profile` is a region that the
    /// plugin also profiles. With `calls`, the plugin reports the program's system calls. `code` is the code of a
    /// kernel that runs alone.
    pub fn arguments(
        &self,
        system: System,
        code: Option<&Code>,
        cpus: u8,
        wires: Option<&Wires>,
        profile: Option<u16>,
        calls: bool,
    ) -> Vec<OsString> {
        let mut line = Vec::new();
        if let Self::Halts(plugin) = self {
            let mut words = option("file=", plugin);
            words.push(",counts=off");
            line.extend([OsString::from("-plugin"), words]);
        }
        if let Self::Plugin(plugin) = self {
            let mut words = option("file=", plugin);
            if cpus > 1 {
                words.push(format!(",cpus={cpus}"));
            }
            if let Some(code) = code {
                words.push(Self::of_code(code));
            }
            if calls {
                words.push(",calls=on");
            }
            if let Some(wires) = wires {
                words.push(option(",answers=", wires.answers_path()));
                if let Some(region) = profile {
                    words.push(option(",profile=", wires.profile_path()));
                    words.push(format!(",region={region}"));
                    if resumes_calls(system) {
                        words.push(",resumes=on");
                    }
                }
            }
            line.extend([OsString::from("-plugin"), words]);
        }
        let log = match self {
            Self::Plugin(_) if cpus > 1 => Some("int,mmu,plugin,trace:apic_register_write"),
            Self::Plugin(_) => Some("int,mmu,plugin"),
            Self::Log => Some("int,mmu"),
            Self::Halts(_) | Self::Nothing => None,
        };
        if let Some(log) = log {
            // QEMU's standard input is a pipe. QEMU writes its log into the pipe, and this command reads the other end.
            line.extend(["-d", log, "-D", "/dev/stdin"].map(OsString::from));
        }
        line
    }

    /// Returns the plugin's options for a kernel that runs alone: the address at which its run begins, and the address
    /// ranges of its code. The options follow the path of the plugin's file.
    fn of_code(code: &Code) -> String {
        let ranges = code.ranges.iter();
        let ranges = ranges.map(|range| format!(",code={:#x}-{:#x}", range.start, range.end));
        format!(",start={:#x}{}", code.entry, ranges.collect::<String>())
    }

    /// Returns the counts of `tally`, which has processed the complete log; `None` if this `Counting` counts nothing.
    ///
    /// # Errors
    /// If the log does not contain the end of the run.
    pub fn result(&self, tally: Tally) -> anyhow::Result<Option<Counted>> {
        let counted = tally.finish();
        match self {
            Self::Plugin(_) | Self::Log if counted.is_none() => {
                bail!("QEMU's log shows no end of the run")
            }
            Self::Plugin(_) | Self::Log | Self::Halts(_) | Self::Nothing => Ok(counted),
        }
    }
}
