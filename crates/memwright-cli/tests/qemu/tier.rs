//! The tests that `cargo xtask` selects, and the runs that it repeats.

use std::env;

/// How much of a long test runs. If `MEMWRIGHT_TIER` is not set, as under `cargo test`, everything runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    Test,
    Ci,
    Full,
}

/// Returns the tier that `cargo xtask` runs.
pub fn tier() -> Tier {
    match env::var("MEMWRIGHT_TIER").as_deref() {
        Ok("test") => Tier::Test,
        Ok("ci") => Tier::Ci,
        Ok(_) | Err(_) => Tier::Full,
    }
}

/// Returns the names of the tests that this process runs. The variable `MEMWRIGHT_TESTS` names a file with one test in
/// each line. If the variable is not set, returns `None`, and all tests run.
pub fn chosen() -> Option<Vec<String>> {
    let path = env::var_os("MEMWRIGHT_TESTS")?;
    let text = std::fs::read_to_string(&path).expect("the list of tests can be read");
    Some(text.lines().map(str::to_owned).collect())
}

/// Returns whether a run with the command line `words` is repeated and compared. The first tier repeats one of 16 runs,
/// and `cargo xtask ci` one of 4. The choice depends only on the words.
pub fn repeats(words: &[String]) -> bool {
    let one_of = match tier() {
        Tier::Test => 16,
        Tier::Ci => 4,
        Tier::Full => 1,
    };
    // The hash is FNV-1a, which is the same in every build.
    let bytes = words.iter().flat_map(|word| word.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash % one_of == 0
}
