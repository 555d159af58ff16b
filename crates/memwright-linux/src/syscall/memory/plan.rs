//! Decodes the protection and flags of `mmap`.

use crate::syscall::memory::hugetlb;
use linux_raw_sys::general as raw;
use memwright::{AreaFlags, Placement, Rights};
use memwright_linux_abi::errno::Errno;
use memwright_table::VirtAddr;

/// Size of a page in bytes.
pub(in crate::syscall) const PAGE: u64 = 4096;

/// The decoded arguments of `mmap`, except the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MapPlan {
    /// Requested rights of the new area.
    pub rights: Rights,
    /// Whether stores reach the object (`MAP_SHARED`).
    pub shared: bool,
    /// Whether the mapping is anonymous. The descriptor is then ignored.
    pub anonymous: bool,
    /// The placement of the area.
    pub placement: Placement,
    /// Flags of the new area.
    pub flags: AreaFlags,
    /// Whether `mmap` populates the area before it returns.
    pub populate: bool,
    /// Whether the pages are allocated from the hugetlb pool.
    pub huge: bool,
    /// Whether the area must end below 2 GiB (`MAP_32BIT`).
    pub low: bool,
}

/// Decodes the `PROT_` bits. On x86-64, a writable or executable page is also readable; the area keeps the rights as
/// requested.
///
/// # Errors
/// `EINVAL` for unknown bits.
pub fn rights(protection: u64) -> Result<Rights, Errno> {
    let known = raw::PROT_READ | raw::PROT_WRITE | raw::PROT_EXEC | raw::PROT_SEM;
    if protection & !u64::from(known) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(known_rights(protection))
}

/// Decodes the `PROT_` bits. Ignores unknown bits.
#[inline(always)]
pub(in crate::syscall) fn known_rights(protection: u64) -> Rights {
    let mut rights = Rights::empty();
    rights.set(Rights::READ, protection as u32 & raw::PROT_READ != 0);
    rights.set(Rights::WRITE, protection as u32 & raw::PROT_WRITE != 0);
    rights.set(Rights::EXECUTE, protection as u32 & raw::PROT_EXEC != 0);
    rights
}

/// Flags that have no effect on Linux (`LEGACY_MAP_MASK`, and flags that `do_mmap` ignores).
const IGNORED: u32 = raw::MAP_DENYWRITE | raw::MAP_EXECUTABLE | raw::MAP_NONBLOCK;
/// Flags that `MAP_SHARED_VALIDATE` accepts in addition to [`IGNORED`].
const KNOWN: u32 = raw::MAP_TYPE
    | raw::MAP_FIXED
    | raw::MAP_FIXED_NOREPLACE
    | raw::MAP_ANONYMOUS
    | raw::MAP_GROWSDOWN
    | raw::MAP_LOCKED
    | raw::MAP_NORESERVE
    | raw::MAP_POPULATE
    | raw::MAP_STACK
    | raw::MAP_32BIT
    | raw::MAP_HUGETLB
    | raw::MAP_HUGE_2MB
    | raw::MAP_HUGE_1GB;

/// The kernel is allowed to discard the pages under memory pressure (`linux/mman.h` since Linux 6.11).
const MAP_DROPPABLE: u32 = 0x08;

/// Decodes the protection and flags of `mmap` (`ksys_mmap_pgoff` and `do_mmap` of Linux 7.2).
///
/// # Errors
/// `EINVAL` if the sharing type is missing or does not permit the other flags, the huge page size does not exist, or
/// shared memory is to grow down; `EOPNOTSUPP` for unknown flags with `MAP_SHARED_VALIDATE`.
pub fn map_plan(address: u64, protection: u64, flags: u64) -> Result<MapPlan, Errno> {
    // Unknown protection bits are ignored here, unlike in mprotect.
    let rights = rights(protection & 7)?;
    let flags = flags as u32;
    let mut droppable = false;
    let shared = match flags & raw::MAP_TYPE {
        raw::MAP_PRIVATE => false,
        // Droppable memory cannot be a file mapping, locked, hugetlb or a stack.
        MAP_DROPPABLE => {
            let excluded = raw::MAP_LOCKED | raw::MAP_HUGETLB | raw::MAP_GROWSDOWN;
            if flags & raw::MAP_ANONYMOUS == 0 || flags & excluded != 0 {
                return Err(Errno::EINVAL);
            }
            droppable = true;
            false
        }
        // Only file mappings support the validation of flags.
        raw::MAP_SHARED_VALIDATE if flags & raw::MAP_ANONYMOUS != 0 => return Err(Errno::EINVAL),
        raw::MAP_SHARED_VALIDATE if flags & !(KNOWN | IGNORED) != 0 => {
            return Err(Errno::EOPNOTSUPP);
        }
        raw::MAP_SHARED | raw::MAP_SHARED_VALIDATE => true,
        _ => return Err(Errno::EINVAL),
    };
    let has = |flag: u32| flags & flag == flag;
    let huge = has(raw::MAP_HUGETLB);
    if huge && has(raw::MAP_ANONYMOUS) && !hugetlb::has_size(flags)
        || shared && has(raw::MAP_ANONYMOUS) && has(raw::MAP_GROWSDOWN)
    {
        return Err(Errno::EINVAL);
    }
    let placement = placement(address, flags);
    let mut area = AreaFlags::empty();
    area.set(AreaFlags::GROWSDOWN, has(raw::MAP_GROWSDOWN));
    area.set(
        AreaFlags::STACK,
        has(raw::MAP_STACK) && has(raw::MAP_GROWSDOWN),
    );
    area.set(AreaFlags::LOCKED, has(raw::MAP_LOCKED));
    area.set(AreaFlags::NORESERVE, has(raw::MAP_NORESERVE));
    if droppable {
        // Droppable memory is not accounted. Its contents are neither inherited by a child nor included in a core dump.
        area |= AreaFlags::DROPPABLE
            | AreaFlags::NORESERVE
            | AreaFlags::WIPEONFORK
            | AreaFlags::DONTDUMP;
    }
    Ok(MapPlan {
        rights,
        shared,
        anonymous: has(raw::MAP_ANONYMOUS),
        placement,
        flags: area,
        // A locked mapping is populated too.
        populate: (has(raw::MAP_POPULATE) && !has(raw::MAP_NONBLOCK)) || has(raw::MAP_LOCKED),
        huge,
        low: has(raw::MAP_32BIT),
    })
}

/// Returns the placement that the address and the flags request.
pub(super) fn placement(address: u64, flags: u32) -> Placement {
    let hint = address & !(PAGE - 1);
    if flags & raw::MAP_FIXED_NOREPLACE != 0 {
        Placement::FixedNoReplace(VirtAddr::new(address))
    } else if flags & raw::MAP_FIXED != 0 {
        Placement::Fixed(VirtAddr::new(address))
    } else if hint != 0 {
        Placement::Hint(VirtAddr::new(hint))
    } else {
        Placement::Anywhere
    }
}

/// Adapts the plan to a secretmem file: the area is locked and excluded from core dumps, and must be shared
/// (`mm/secretmem.c`, `secretmem_mmap_prepare`).
pub(super) fn secret_plan(plan: MapPlan) -> Result<MapPlan, Errno> {
    if !plan.shared {
        return Err(Errno::EINVAL);
    }
    let kept = AreaFlags::SECRET | AreaFlags::LOCKED | AreaFlags::DONTDUMP;
    Ok(MapPlan {
        flags: plan.flags | kept,
        ..plan
    })
}

#[cfg(test)]
mod tests {
    use super::{Errno, MapPlan, Placement, VirtAddr, map_plan, rights};
    use memwright::{AreaFlags, Rights};

    #[test]
    fn protections() {
        for (bits, expected) in [
            (0, Ok(Rights::empty())),
            (1, Ok(Rights::READ)),
            (3, Ok(Rights::READ | Rights::WRITE)),
            (7, Ok(Rights::all())),
            (8, Ok(Rights::empty())),
            (0x10, Err(Errno::EINVAL)),
        ] {
            assert_eq!(rights(bits), expected, "{bits:#x}");
        }
    }

    #[test]
    fn mapping_flags() {
        let private = MapPlan {
            rights: Rights::READ,
            shared: false,
            anonymous: true,
            placement: Placement::Anywhere,
            flags: AreaFlags::empty(),
            populate: false,
            huge: false,
            low: false,
        };
        let at = VirtAddr::new(0x10_0000);
        for (address, flags, expected) in [
            (0, 0x22, Ok(private)),
            (0x123, 0x22, Ok(private)),
            (
                0x10_0123,
                0x22,
                Ok(MapPlan {
                    placement: Placement::Hint(at),
                    ..private
                }),
            ),
            (
                0x10_0000,
                0x32,
                Ok(MapPlan {
                    placement: Placement::Fixed(at),
                    ..private
                }),
            ),
            (
                0x10_0000,
                0x10_0022,
                Ok(MapPlan {
                    placement: Placement::FixedNoReplace(at),
                    ..private
                }),
            ),
            (
                0,
                0x21,
                Ok(MapPlan {
                    shared: true,
                    ..private
                }),
            ),
            (0, 0x23, Err(Errno::EINVAL)),
            (
                0,
                0x03,
                Ok(MapPlan {
                    shared: true,
                    anonymous: false,
                    ..private
                }),
            ),
            (
                0,
                0x4022,
                Ok(MapPlan {
                    flags: AreaFlags::NORESERVE,
                    ..private
                }),
            ),
            (
                0,
                0x2022,
                Ok(MapPlan {
                    flags: AreaFlags::LOCKED,
                    populate: true,
                    ..private
                }),
            ),
            (
                0,
                0x8022,
                Ok(MapPlan {
                    populate: true,
                    ..private
                }),
            ),
            (0, 0x1_8022, Ok(private)),
            (
                0,
                0x0122,
                Ok(MapPlan {
                    flags: AreaFlags::GROWSDOWN,
                    ..private
                }),
            ),
            (0, 0x0121, Err(Errno::EINVAL)),
            (
                0,
                0x28,
                Ok(MapPlan {
                    flags: AreaFlags::DROPPABLE
                        | AreaFlags::NORESERVE
                        | AreaFlags::WIPEONFORK
                        | AreaFlags::DONTDUMP,
                    ..private
                }),
            ),
            (0, 0x08, Err(Errno::EINVAL)),
            (0, 0x2028, Err(Errno::EINVAL)),
            (0, 0x0128, Err(Errno::EINVAL)),
            (0, 0x20, Err(Errno::EINVAL)),
            (
                0,
                0x4_0022,
                Ok(MapPlan {
                    huge: true,
                    ..private
                }),
            ),
            // Huge pages of 1 GiB are rejected.
            (0, 0x7804_0022, Err(Errno::EINVAL)),
            (0, 0x8000_0023, Err(Errno::EINVAL)),
            (0, 0x8000_0003, Err(Errno::EOPNOTSUPP)),
        ] {
            assert_eq!(
                map_plan(address, 1, flags),
                expected,
                "{address:#x} {flags:#x}"
            );
        }
    }
}
