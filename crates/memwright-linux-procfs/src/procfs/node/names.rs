//! The names and the lists of entries of directories of `/proc` and `/sys`.

use crate::procfs::node::FixedDirectory;
use memwright_linux_vfs::fs::{dirents::DirectoryEntry, generated::Emit, kind::Kind};

/// Parses a decimal number without sign or leading zeros, as in names of `/proc`. Returns `None` for any other name.
#[must_use]
pub fn decimal(name: &[u8]) -> Option<u32> {
    let digits = name.iter().all(u8::is_ascii_digit);
    let canonical = name.len() == 1 || name.first().is_some_and(|&digit| digit != b'0');
    if !digits || !canonical {
        return None;
    }
    core::str::from_utf8(name).ok()?.parse().ok()
}

/// Calls `emit` with each entry, beginning at `position`. The first entry has position 2, after `.` and `..`. `entry`
/// returns the inode number, type and name of the entry at an index, or `None` after the last entry. Returns `false` if
/// an entry did not fit.
pub fn list_entries(
    position: &mut u64,
    emit: Emit<'_>,
    entry: impl Fn(usize) -> Option<(u64, Kind, &'static str)>,
) -> bool {
    while let Some(index) = position.checked_sub(2) {
        let Some((inode, kind, name)) = entry(index as usize) else {
            return true;
        };
        let taken = emit(DirectoryEntry {
            inode,
            next: *position + 1,
            kind,
            name: name.as_bytes(),
        });
        if !taken {
            return false;
        }
        *position += 1;
    }
    true
}

impl FixedDirectory {
    /// Calls `emit` with each entry, beginning at `position`. The first entry has position 2, after `.` and `..`.
    /// Returns `false` if an entry did not fit.
    pub fn list(&self, position: &mut u64, emit: Emit<'_>) -> bool {
        list_entries(position, emit, |index| {
            let (name, _, node) = self.entries.get(index)?;
            Some((self.first + index as u64, node.kind(), name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn numbers_have_one_name() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"42"), Some(42));
        for name in [&b""[..], b"042", b"+4", b"-1", b"4x", b"99999999999"] {
            assert_eq!(decimal(name), None);
        }
    }
}
