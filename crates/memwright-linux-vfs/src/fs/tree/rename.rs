//! Renames and exchanges directory entries.

use crate::fs::{
    dentry::Dentry,
    lower,
    name::NAME_MAX,
    namespace::Namespace,
    tree::{
        Change, changeable,
        remove::{Removal, check_removal, forget},
    },
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright_linux_abi::errno::Errno;

/// What a rename does if the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// The existing entry is replaced.
    Replace,
    /// The call fails (`RENAME_NOREPLACE`).
    Keep,
    /// The two entries are exchanged; both must exist (`RENAME_EXCHANGE`).
    Exchange,
}

impl RenameMode {
    /// Decodes the flags of `renameat2`.
    ///
    /// # Errors
    /// `EINVAL` for both flags at once, for `RENAME_WHITEOUT`, and for unknown flags.
    pub const fn decode(flags: u32) -> Result<Self, Errno> {
        match flags {
            0 => Ok(Self::Replace),
            raw::RENAME_NOREPLACE => Ok(Self::Keep),
            raw::RENAME_EXCHANGE => Ok(Self::Exchange),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// The old or the new name in a rename.
#[derive(Clone, Copy)]
pub struct RenameSide<'a> {
    /// The directory that contains the entry with this name, or will contain it.
    pub parent: &'a Arc<Dentry>,
    /// The name in the directory.
    pub name: &'a [u8],
    /// Whether the path has a trailing slash. The entry must then be a directory.
    pub slash: bool,
}

impl Namespace {
    /// Renames the entry `old` to `new`, or exchanges the two entries.
    ///
    /// # Errors
    /// The errors of `rename(2)`: `ENOENT`, `EEXIST`, `EXDEV`, `EINVAL` if a directory would become its own descendant,
    /// `ENOTEMPTY`, `EISDIR`, `ENOTDIR`, `EBUSY`, `EACCES`, `EPERM`, `ENAMETOOLONG`.
    pub fn rename(
        &self,
        change: &Change,
        old: RenameSide<'_>,
        new: RenameSide<'_>,
        mode: RenameMode,
    ) -> Result<(), Errno> {
        if new.name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if !Arc::ptr_eq(&old.parent.inode.file_system, &new.parent.inode.file_system) {
            return Err(Errno::EXDEV);
        }
        lower::complete_for_removal(old.parent, old.name)?;
        lower::complete_for_removal(new.parent, new.name)?;
        let guard = self.0.lock();
        let moved = check(change, old, new, mode)?;
        let released = match moved {
            Moved::Nothing => None,
            Moved::Swap(source, target) => {
                exchange(change, old, new, &source, &target)?;
                None
            }
            Moved::Over(source, target) => replace(change, old, new, &source, target)?,
        };
        drop(guard);
        // Dropping a replaced entry can free its inode, so it must happen after the lock is released.
        drop(released);
        Ok(())
    }
}

/// The effect of a rename that has passed all checks.
enum Moved {
    /// Nothing, because both names refer to the same inode.
    Nothing,
    /// The two entries are exchanged.
    Swap(Arc<Dentry>, Arc<Dentry>),
    /// The first entry gets the new name, and replaces the second entry if there is one.
    Over(Arc<Dentry>, Option<Arc<Dentry>>),
}

fn check(
    change: &Change,
    old: RenameSide<'_>,
    new: RenameSide<'_>,
    mode: RenameMode,
) -> Result<Moved, Errno> {
    let old_entries = changeable(&old.parent.inode)?;
    let new_entries = changeable(&new.parent.inode)?;
    let source = old_entries
        .lock()
        .get(old.name)
        .cloned()
        .ok_or(Errno::ENOENT)?;
    let (target, dead) = {
        let entries = new_entries.lock();
        (entries.get(new.name).cloned(), entries.is_dead())
    };
    if dead {
        return Err(Errno::ENOENT);
    }
    match (mode, &target) {
        (RenameMode::Keep, Some(_)) => return Err(Errno::EEXIST),
        (RenameMode::Exchange, None) => return Err(Errno::ENOENT),
        (RenameMode::Keep, None) | (RenameMode::Exchange | RenameMode::Replace, _) => {}
    }
    let source_directory = source.inode.is_directory();
    if !source_directory && (old.slash || (new.slash && mode != RenameMode::Exchange)) {
        return Err(Errno::ENOTDIR);
    }
    change.may_remove(&old.parent.inode, &source.inode)?;
    match &target {
        Some(target) => change.may_remove(&new.parent.inode, &target.inode)?,
        None => change.may_change(&new.parent.inode)?,
    }
    if source_directory && new.parent.is_within(&source) {
        return Err(Errno::EINVAL);
    }
    if source.is_covered() {
        return Err(Errno::EBUSY);
    }
    let Some(target) = target else {
        return Ok(Moved::Over(source, None));
    };
    let target_directory = target.inode.is_directory();
    if target_directory && old.parent.is_within(&target) {
        let inside = if mode == RenameMode::Exchange {
            Errno::EINVAL
        } else {
            Errno::ENOTEMPTY
        };
        return Err(inside);
    }
    if Arc::ptr_eq(&source.inode, &target.inode) {
        return Ok(Moved::Nothing);
    }
    if mode == RenameMode::Exchange {
        if target.is_covered() {
            return Err(Errno::EBUSY);
        }
        if new.slash && !target_directory {
            return Err(Errno::ENOTDIR);
        }
        return Ok(Moved::Swap(source, target));
    }
    let removal = if source_directory {
        Removal::Directory
    } else {
        Removal::Other
    };
    check_removal(&target, removal)?;
    Ok(Moved::Over(source, Some(target)))
}

/// If `entry` is a directory, moves its `..` from the old to the new parent: decrements the link count of the old
/// parent and increments that of the new parent.
fn move_parent_link(old: RenameSide<'_>, new: RenameSide<'_>, entry: &Dentry) {
    if entry.inode.is_directory() {
        old.parent.inode.change(|metadata| metadata.links -= 1);
        new.parent.inode.change(|metadata| metadata.links += 1);
    }
}

fn exchange(
    change: &Change,
    old: RenameSide<'_>,
    new: RenameSide<'_>,
    source: &Arc<Dentry>,
    target: &Arc<Dentry>,
) -> Result<(), Errno> {
    changeable(&new.parent.inode)?
        .lock()
        .insert(new.name, source.clone());
    changeable(&old.parent.inode)?
        .lock()
        .insert(old.name, target.clone());
    source.move_to(new.parent, new.name);
    target.move_to(old.parent, old.name);
    move_parent_link(old, new, source);
    move_parent_link(new, old, target);
    finish(change, old, new, source);
    target
        .inode
        .change(|metadata| metadata.changed = change.now);
    Ok(())
}

fn replace(
    change: &Change,
    old: RenameSide<'_>,
    new: RenameSide<'_>,
    source: &Arc<Dentry>,
    target: Option<Arc<Dentry>>,
) -> Result<Option<Arc<Dentry>>, Errno> {
    // Insert the new name first, so that the file always has a name.
    changeable(&new.parent.inode)?
        .lock()
        .insert(new.name, source.clone());
    let same = Arc::ptr_eq(old.parent, new.parent) && old.name == new.name;
    if !same {
        changeable(&old.parent.inode)?.lock().remove(old.name);
    }
    if let Some(target) = &target {
        forget(change, &new.parent.inode, target);
    }
    source.move_to(new.parent, new.name);
    move_parent_link(old, new, source);
    finish(change, old, new, source);
    Ok(target)
}

fn finish(change: &Change, old: RenameSide<'_>, new: RenameSide<'_>, source: &Dentry) {
    old.parent.inode.touch_modified(change.now);
    new.parent.inode.touch_modified(change.now);
    source
        .inode
        .change(|metadata| metadata.changed = change.now);
}
