//! Whether the disk has room for what the tasks build, so that a full one is named before it breaks a build midway.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::process::Command;

/// In MiB: what a fresh checkout's builds and tests take, less than 2 GiB, and the caches of a later QEMU and of the
/// selftests' sources.
const NEEDED: u64 = 3 << 10;

/// Checks the disk that the checkout is on. What earlier builds left counts as room, for it is used again.
///
/// # Errors
/// One line that tells what is free and what is needed.
pub fn check() -> Result<()> {
    let printed = shell::output(Command::new("df").arg("-Pm").arg(shell::root()));
    let free = printed.as_deref().and_then(available);
    let free = free.context("df does not tell how much of the disk is free")?;
    // du fails as well when a file goes while it looks; then nothing is taken as built.
    let printed = shell::output(Command::new("du").arg("-sm").arg(shell::target_folder()));
    let built = printed.as_deref().and_then(first_number).unwrap_or(0);
    shell::step(&format!(
        "{free} MiB of the disk are free, {built} hold earlier builds"
    ));
    if free + built < NEEDED {
        bail!("{free} MiB of the disk are free; a fresh checkout's builds and tests need {NEEDED}");
    }
    Ok(())
}

fn first_number(printed: &str) -> Option<u64> {
    printed.split_whitespace().next()?.parse().ok()
}

/// The fourth column of the second line, as POSIX has it.
fn available(printed: &str) -> Option<u64> {
    printed
        .lines()
        .nth(1)?
        .split_whitespace()
        .nth(3)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_free_space_is_read_from_the_line_of_posix() {
        let printed = "Filesystem 1048576-blocks  Used Available Capacity Mounted on\n/dev/vda 257001 16520 76102 18% /\n";
        assert_eq!(available(printed), Some(76102));
        assert_eq!(available("Filesystem\n"), None);
        assert_eq!(first_number("1536\ttarget\n"), Some(1536));
    }
}
