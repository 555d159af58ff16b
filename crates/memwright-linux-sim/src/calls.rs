//! Statistics of system calls: how often each was made, and how often it succeeded.

use std::collections::BTreeMap;
use std::fmt;

use memwright_linux::syscall::table;
use memwright_linux_abi::arch::x86_64::regs::UserRegs;

/// The counts of system calls, by name. Each command of `ioctl` and each advice of `madvise` has its own name and
/// counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls(BTreeMap<String, Count>);

/// The counts of one system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of calls made.
    pub made: u64,
    /// The number of calls that returned no error and after which the program continued.
    pub succeeded: u64,
}

impl Calls {
    pub(crate) fn made(&mut self, number: u64, second: u64, third: u64) {
        if let Some(name) = name(number, second, third) {
            self.0.entry(name).or_default().made += 1;
        }
    }

    /// Counts a call as successful, unless the result in RAX of `regs` is an error. `regs` are the registers with which
    /// the program continues after the call.
    pub(crate) fn returned(&mut self, regs: &UserRegs) {
        let failed = regs.rax > u64::MAX - 4096;
        let name = name(regs.orig_rax, regs.rsi, regs.rdx).filter(|_| !failed);
        if let Some(count) = name.and_then(|name| self.0.get_mut(&name)) {
            count.succeeded = (count.succeeded + 1).min(count.made);
        }
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            sum.made += count.made;
            sum.succeeded += count.succeeded;
        }
    }

    /// Returns the counts of the call `name`; zeroes if it was not made.
    #[must_use]
    pub fn of(&self, name: &str) -> Count {
        self.0.get(name).copied().unwrap_or_default()
    }
}

/// Prints one line for each call: its name, the number of calls, and the number of successful calls.
impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, Count { made, succeeded }) in &self.0 {
            writeln!(f, "{name} {made} {succeeded}")?;
        }
        Ok(())
    }
}

fn name(number: u64, second: u64, third: u64) -> Option<String> {
    let call = table::CALLS
        .iter()
        .find(|call| u64::from(call.number) == number)?;
    Some(match call.name {
        "ioctl" => format!("ioctl:{:#x}", second as u32),
        "madvise" => format!("madvise:{third}"),
        name => name.to_owned(),
    })
}
