//! Hugetlb memory, for the system calls that request it by a flag (`MAP_HUGETLB`, `MFD_HUGETLB`, `SHM_HUGETLB`).

use crate::current::Current;
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright::object::{HUGE_BYTES, HugeFile, Object, ObjectIdentity, PrivateHuge};
use memwright_linux_abi::{M, Memory, errno::Errno};

/// Number of the lowest flag bit that contains the binary logarithm of the page size (`asm-generic/hugetlb_encode.h`).
pub const SIZE_SHIFT: u32 = raw::MAP_HUGE_SHIFT;
/// Mask of the logarithm after the flags were shifted right by [`SIZE_SHIFT`].
pub const SIZE_BITS: u32 = raw::MAP_HUGE_MASK;

/// Returns whether the page size in the flags is supported: 2 MiB, or the default for flags without a size
/// (`hstate_sizelog`).
#[must_use]
pub const fn has_size(flags: u32) -> bool {
    let logarithm = (flags >> SIZE_SHIFT) & SIZE_BITS;
    logarithm == 0 || 1 << logarithm == HUGE_BYTES
}

/// Creates an unnamed hugetlb file of `length` bytes, rounded up to whole huge pages (`hugetlb_file_setup`).
///
/// # Errors
/// `EINVAL` for a length of 0, `ENOMEM` for a length that is too large, `ENFILE` at the limit of open files.
pub fn nameless_file(
    current: &Current<'_>,
    memory: &Arc<Memory>,
    length: u64,
) -> Result<Arc<HugeFile<M>>, Errno> {
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    let size = length.checked_next_multiple_of(HUGE_BYTES);
    let size = size.filter(|size| *size <= memwright_linux_vfs::user::USER_END);
    current.caller().check_open_files()?;
    let identity = ObjectIdentity::default();
    let name = "/anon_hugepage (deleted)";
    Ok(Arc::new(HugeFile::new(
        memory.clone(),
        size.ok_or(Errno::ENOMEM)?,
        identity,
        name,
    )))
}

/// The kind of reservation that a hugetlb mapping makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// No reservation (`MAP_NORESERVE`): a fault that finds no free page raises SIGBUS.
    None,
    /// The reservation belongs to the file, for all its shared mappings.
    File,
    /// The reservation belongs to this private mapping.
    Mapping,
}

impl Promise {
    /// Returns the kind of reservation for a mapping.
    #[must_use]
    pub const fn of(shared: bool, reserved: bool) -> Self {
        match (reserved, shared) {
            (false, _) => Self::None,
            (true, true) => Self::File,
            (true, false) => Self::Mapping,
        }
    }
}

/// Reserves the huge pages for `length` bytes of `object` from `offset` on. If `grows` is true, the file grows to
/// include the mapped range (`hugetlbfs_file_mmap`). Returns the object to map, or `object` itself if it is not a
/// hugetlb file.
///
/// # Errors
/// `ENOMEM` if the pool has too few free pages, `EINVAL` for an offset inside a huge page.
pub fn promised(
    memory: &Arc<Memory>,
    object: Arc<dyn Object<M>>,
    (offset, length): (u64, u64),
    promise: Promise,
    grows: bool,
) -> Result<Arc<dyn Object<M>>, Errno> {
    let Some(view) = object.huge() else {
        return Ok(object);
    };
    if offset % HUGE_BYTES != 0 {
        return Err(Errno::EINVAL);
    }
    let first = offset / HUGE_BYTES;
    let pages = length.div_ceil(HUGE_BYTES);
    let end = first.checked_add(pages).filter(|end| *end <= 1 << 40);
    let range = first..end.ok_or(Errno::EINVAL)?;
    let bytes = range.end * HUGE_BYTES;
    if promise == Promise::File {
        view.reserve(range.clone()).map_err(|_| Errno::ENOMEM)?;
    }
    if grows {
        view.grow_to(bytes);
    }
    if promise != Promise::Mapping {
        return Ok(object);
    }
    let shown = PrivateHuge::new(memory.clone(), object, range).map_err(|_| Errno::ENOMEM)?;
    Ok(Arc::new(shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_size_is_there() {
        assert!(has_size(0));
        assert!(has_size(21 << SIZE_SHIFT));
        assert!(!has_size(30 << SIZE_SHIFT));
        assert!(!has_size(12 << SIZE_SHIFT));
    }
}
