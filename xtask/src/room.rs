//! Checks that the disk has space for the builds, so that a lack of space is reported before a build fails.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::process::Command;

/// The needed space in MiB: less than 2 GiB for the builds and tests of a fresh checkout, plus the caches of a later
/// QEMU and of the sources of the selftests.
const NEEDED: u64 = 3 << 10;

/// Checks that the disk of the checkout has enough space. The space of the artifacts of earlier builds counts as free,
/// because builds reuse it.
///
/// # Errors
/// If there is not enough space, or if df does not report it. The error names the free and the needed space.
pub fn check() -> Result<()> {
    let printed = shell::output(Command::new("df").arg("-Pm").arg(shell::root()));
    let free = printed.as_deref().and_then(available);
    let free = free.context("df does not report the free space of the disk")?;
    // du also fails if a file is removed while it runs; the artifacts then count as 0 MiB.
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

/// Returns the available space from the output of df, in the format that POSIX specifies: the fourth column of the
/// second line.
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
