//! The command against a guest that a stand-in for QEMU plays. The stand-in is this very executable: where the variable
//! that holds the guest's lines is set, it was started in QEMU's place.

mod account;
mod hostile;
mod machine;
mod protocol;
mod stand_in;
mod support;
mod trace;

use std::process::ExitCode;

/// Functions as trials of the same names.
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
