//! The part of the tests that `cargo xtask` selects: which tests run, and which runs are repeated.

use std::env;

/// How much of a long test is run. Without the variable, as under `cargo test`, all of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    Test,
    Ci,
    Full,
}

/// The tier that `cargo xtask` runs.
pub fn tier() -> Tier {
    match env::var("MEMWRIGHT_TIER").as_deref() {
        Ok("test") => Tier::Test,
        Ok("ci") => Tier::Ci,
        Ok(_) | Err(_) => Tier::Full,
    }
}

/// Returns the names of the tests that this process runs, from the file that `MEMWRIGHT_TESTS` names; without it, all
/// run.
pub fn chosen() -> Option<Vec<String>> {
    let path = env::var_os("MEMWRIGHT_TESTS")?;
    let text = std::fs::read_to_string(&path).expect("the list of tests can be read");
    Some(text.lines().map(str::to_owned).collect())
}

/// Returns whether a run of this command line is repeated and compared: every fourth in the first tier, every second in
/// `cargo xtask ci`. The choice depends on the words alone.
pub fn repeats(words: &[String]) -> bool {
    let one_of = match tier() {
        Tier::Test => 4,
        Tier::Ci => 2,
        Tier::Full => 1,
    };
    // FNV-1a: the same in every build.
    let bytes = words.iter().flat_map(|word| word.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash % one_of == 0
}
