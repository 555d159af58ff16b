//! Tests the command with a stand-in for QEMU that acts as the guest. The stand-in is this executable itself: if the
//! variable `STAND_IN` is set, this executable was started in place of QEMU.

mod account;
mod hostile;
mod machine;
mod protocol;
mod stand_in;
mod support;
mod trace;

use std::process::ExitCode;

/// Expands to a vector with one trial for each function that is listed. A trial has the name of its function.
macro_rules! trials {
    ($($name:ident,)*) => {
        vec![$(libtest_mimic::Trial::test(stringify!($name), || {
            $name();
            Ok(())
        }),)*]
    };
}
use trials;

fn main() -> ExitCode {
    if std::env::var_os(support::GUEST_LINES).is_some() {
        stand_in::play();
        return ExitCode::SUCCESS;
    }
    let trials = protocol::trials()
        .into_iter()
        .chain(account::trials())
        .chain(machine::trials())
        .chain(hostile::trials())
        .chain(trace::trials())
        .collect();
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit_code()
}
