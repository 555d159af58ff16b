//! Tests the kernel in the command. `cargo xtask ci` tests the command as it is installed: see xtask/src/dist.

use crate::guest::Guest;
use libtest_mimic::{Failed, Trial};

pub fn trials() -> Vec<Trial> {
    vec![Trial::test("installed::embedded_kernel_repeats", embedded)]
}

/// Runs a script on the kernel that users run, which is optimised and has debug assertions disabled.
fn embedded() -> Result<(), Failed> {
    let ending = Guest::shell("seq 1 5000 | sort -rn | tail -1; (exit 4)")
        .embedded_kernel()
        .run()?;
    ending.expect_output(b"1\n")?;
    ending.expect_code(4)
}
