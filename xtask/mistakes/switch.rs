//! The switch of the planted mistakes. A process makes the one mistake whose name is in the environment variable
//! `MEMWRIGHT_MISTAKE`, or none.

extern crate std;

use std::string::String;
use std::sync::OnceLock;

/// Returns whether this process makes the mistake with this name.
#[must_use]
pub fn planted(name: &str) -> bool {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("MEMWRIGHT_MISTAKE").ok());
    chosen.as_deref() == Some(name)
}
