//! The flags of the other crates, as rights of areas and as bits of entries.

use core::fmt;

use memwright::Rights;
use memwright_table::{Bits, CacheMode, Present};
use page_table_multiarch::MappingFlags;
use x86_64::structures::paging::PageTableFlags;

/// Why a page of user memory cannot have given flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// User mode could not access the page, but it can access all pages of a Memwright table.
    NotUser,
    /// The entry of the page would not be present.
    NotPresent,
    /// The flags contain these bits, which are not supported: those of global pages, those of cache modes for memory
    /// that the allocator manages, and those that Memwright uses itself.
    Flags(u64),
}

impl fmt::Display for Unsupported {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUser => formatter.write_str("a page that user mode cannot access"),
            Self::NotPresent => formatter.write_str("an entry that is not present"),
            Self::Flags(bits) => write!(formatter, "the unsupported flags {bits:#x}"),
        }
    }
}

impl core::error::Error for Unsupported {}

/// Returns the rights of an area with `flags`, and how its memory is cached.
pub(crate) fn rights(flags: MappingFlags) -> Result<(Rights, CacheMode), Unsupported> {
    let known = MappingFlags::all();
    if !known.contains(flags) {
        return Err(Unsupported::Flags(flags.difference(known).bits() as u64));
    }
    if !flags.contains(MappingFlags::USER) {
        return Err(Unsupported::NotUser);
    }
    let mut rights = Rights::empty();
    rights.set(Rights::READ, flags.contains(MappingFlags::READ));
    rights.set(Rights::WRITE, flags.contains(MappingFlags::WRITE));
    rights.set(Rights::EXECUTE, flags.contains(MappingFlags::EXECUTE));
    let cache = if flags.intersects(MappingFlags::DEVICE.union(MappingFlags::UNCACHED)) {
        CacheMode::Uncached
    } else {
        CacheMode::WriteBack
    };
    Ok((rights, cache))
}

/// Returns the rights of an entry with `flags`. As on x86-64, each right includes reading.
pub(crate) fn bits(flags: MappingFlags) -> Result<Bits, Unsupported> {
    let (rights, cache) = rights(flags)?;
    match cache {
        CacheMode::WriteBack => {}
        CacheMode::WriteCombining | CacheMode::Uncached => {
            return Err(Unsupported::Flags(flags.bits() as u64));
        }
    }
    let mut bits = Bits::empty();
    bits.set(Bits::READ, !rights.is_none());
    bits.set(Bits::WRITE, rights.contains(Rights::WRITE));
    bits.set(Bits::EXECUTE, rights.contains(Rights::EXECUTE));
    Ok(bits)
}

/// Returns the flags of a page.
pub(crate) fn mapping_flags(page: Present) -> MappingFlags {
    let mut flags = MappingFlags::USER;
    flags.set(MappingFlags::READ, page.bits.contains(Bits::READ));
    flags.set(MappingFlags::WRITE, page.bits.contains(Bits::WRITE));
    flags.set(MappingFlags::EXECUTE, page.bits.contains(Bits::EXECUTE));
    flags
}

/// Returns the bits of an entry with `flags`. `HUGE_PAGE` is ignored, because the size of the page determines it.
pub(crate) fn entry_bits(flags: PageTableFlags) -> Result<Bits, Unsupported> {
    const KNOWN: PageTableFlags = PageTableFlags::PRESENT
        .union(PageTableFlags::WRITABLE)
        .union(PageTableFlags::USER_ACCESSIBLE)
        .union(PageTableFlags::NO_EXECUTE)
        .union(PageTableFlags::ACCESSED)
        .union(PageTableFlags::DIRTY)
        .union(PageTableFlags::HUGE_PAGE);
    if !KNOWN.contains(flags) {
        return Err(Unsupported::Flags(flags.difference(KNOWN).bits()));
    }
    if !flags.contains(PageTableFlags::PRESENT) {
        return Err(Unsupported::NotPresent);
    }
    if !flags.contains(PageTableFlags::USER_ACCESSIBLE) {
        return Err(Unsupported::NotUser);
    }
    let mut bits = Bits::READ;
    bits.set(Bits::WRITE, flags.contains(PageTableFlags::WRITABLE));
    bits.set(Bits::EXECUTE, !flags.contains(PageTableFlags::NO_EXECUTE));
    bits.set(Bits::ACCESSED, flags.contains(PageTableFlags::ACCESSED));
    bits.set(Bits::DIRTY, flags.contains(PageTableFlags::DIRTY));
    Ok(bits)
}

/// Returns the flags of the entry of a page.
pub(crate) fn entry_flags(page: Present) -> PageTableFlags {
    let mut flags = PageTableFlags::PRESENT | PageTableFlags::USER_ACCESSIBLE;
    let size = page.size.bytes();
    flags.set(PageTableFlags::HUGE_PAGE, size > 4096);
    flags.set(PageTableFlags::WRITABLE, page.bits.contains(Bits::WRITE));
    flags.set(
        PageTableFlags::NO_EXECUTE,
        !page.bits.contains(Bits::EXECUTE),
    );
    flags.set(PageTableFlags::ACCESSED, page.bits.contains(Bits::ACCESSED));
    flags.set(PageTableFlags::DIRTY, page.bits.contains(Bits::DIRTY));
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_no_page_of_user_memory_has_are_refused() {
        use PageTableFlags as F;
        let usual = F::PRESENT | F::USER_ACCESSIBLE;
        for (flags, expected) in [
            (F::USER_ACCESSIBLE, Unsupported::NotPresent),
            (F::PRESENT | F::WRITABLE, Unsupported::NotUser),
            (usual | F::GLOBAL, Unsupported::Flags(1 << 8)),
            (usual | F::NO_CACHE, Unsupported::Flags(1 << 4)),
            (usual | F::BIT_9, Unsupported::Flags(1 << 9)),
        ] {
            assert_eq!(entry_bits(flags), Err(expected));
        }
        let read = MappingFlags::READ;
        let user = read | MappingFlags::USER;
        assert_eq!(bits(read), Err(Unsupported::NotUser));
        let device = user | MappingFlags::DEVICE;
        assert_eq!(bits(device), Err(Unsupported::Flags(0x19)));
        assert_eq!(rights(device), Ok((Rights::READ, CacheMode::Uncached)));
        let unknown = MappingFlags::from_bits_retain(1 << 20) | user;
        assert_eq!(rights(unknown), Err(Unsupported::Flags(1 << 20)));
    }

    #[test]
    fn each_right_includes_reading() {
        let user = MappingFlags::USER;
        assert_eq!(bits(user), Ok(Bits::empty()));
        assert_eq!(
            bits(user | MappingFlags::WRITE),
            Ok(Bits::READ | Bits::WRITE)
        );
        assert_eq!(
            bits(user | MappingFlags::EXECUTE),
            Ok(Bits::READ | Bits::EXECUTE)
        );
    }
}
