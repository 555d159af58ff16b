//! Chooses the mistake that this process makes: `MEMWRIGHT_MISTAKE` has its name.

extern crate std;

use std::string::String;
use std::sync::OnceLock;

/// Whether the mistake of this name is to be made.
#[must_use]
pub fn planted(name: &str) -> bool {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("MEMWRIGHT_MISTAKE").ok());
    chosen.as_deref() == Some(name)
}
