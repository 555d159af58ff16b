//! Writes measurements of the host as text: the maximum depth of a kernel stack, and the longest stretch of kernel
//! instructions without a scheduling point. System calls appear by name, not by number.

use crate::syscall::table;
use core::fmt;
use memwright_linux_abi::host::{StackDepth, Stretch};

/// Writes the name of a system call, if the table contains the call.
fn write_call(out: &mut fmt::Formatter<'_>, call: Option<u64>) -> fmt::Result {
    match call.and_then(table::find) {
        Some(call) => write!(out, ", in {}", call.name),
        None => Ok(()),
    }
}

/// Displays the maximum depth that a kernel stack has reached.
pub struct DeepestStack(pub StackDepth);

impl fmt::Display for DeepestStack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StackDepth { used, size, call } = self.0;
        write!(out, "kernel stack: {used} of {size} bytes used at most")?;
        write_call(out, call)
    }
}

/// Displays the longest sequence of kernel instructions without a scheduling point.
pub struct LongestStretch(pub Stretch);

impl fmt::Display for LongestStretch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stretch { instructions, call } = self.0;
        write!(
            out,
            "longest stretch: {instructions} instructions without a scheduling point"
        )?;
        write_call(out, call)
    }
}
