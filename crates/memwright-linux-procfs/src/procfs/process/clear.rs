//! `/proc/PID/clear_refs`.

use crate::procfs::node::{Subject, text::number};
use memwright::Forget;
use memwright_linux_abi::errno::Errno;

/// The effect of a number that a program writes to the file (`clear_refs_write` in `fs/proc/task_mmu.c` of Linux 7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clear {
    Accesses(Forget),
    SoftDirty,
    Peak,
}

/// Returns the effect of the written number `number`, or `None` if no effect is defined for it.
fn decode(number: u64) -> Option<Clear> {
    Some(match number {
        1 => Clear::Accesses(Forget::All),
        2 => Clear::Accesses(Forget::Anonymous),
        3 => Clear::Accesses(Forget::Mapped),
        4 => Clear::SoftDirty,
        5 => Clear::Peak,
        _ => return None,
    })
}

/// Handles a write to `/proc/PID/clear_refs`.
///
/// # Errors
/// `EINVAL` if the text is not a number, or if no effect is defined for the number.
pub fn clear(subject: &Subject, bytes: &[u8]) -> Result<(), Errno> {
    let clear = number(bytes).and_then(decode).ok_or(Errno::EINVAL)?;
    let Some(space) = subject.process.space() else {
        return Ok(());
    };
    match clear {
        Clear::Accesses(which) => space.tracking().forget_accesses(which),
        Clear::SoftDirty => space.tracking().clear_soft_dirty(),
        Clear::Peak => space.usage().reset_resident_peak(),
    }
    Ok(())
}
