//! `remap_file_pages`, which `mmap` supersedes, and `map_shadow_stack`, which needs shadow stacks in the processor.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::memory::{map, plan::PAGE},
};
use linux_raw_sys::general as raw;
use memwright::{AreaFlags, MapKind, MapRequest, Placement};
use memwright_linux_abi::errno::Errno;
use memwright_linux_memory::{memory::map_errno, userfault::Userfaults};
use memwright_table::VirtAddr;

/// Implements `remap_file_pages`: replaces a part of a shared mapping by a mapping of other pages of the same file
/// (Linux 7.3 `mm/mmap.c`). The range must be in one area; Linux also accepts adjacent areas of the same file.
pub fn remap_file_pages(
    current: &Current<'_>,
    userfaults: &Userfaults,
    arguments: &Arguments,
) -> CallResult {
    let [address, length, protection, first, flags, _] = *arguments;
    let (start, length) = (address & !(PAGE - 1), length & !(PAGE - 1));
    let end = start.checked_add(length).filter(|end| *end > start);
    let end = end.ok_or(Errno::EINVAL)?;
    if protection != 0 || first.checked_add(length / PAGE).is_none() {
        return Err(Errno::EINVAL);
    }
    let at = VirtAddr::new(start);
    let shown = current.with_space(|space| {
        space.find(at, |area| {
            let covers = area.start() <= at.page() && area.end().address().as_u64() >= end;
            let object = area.object().filter(|_| covers && area.is_shared())?;
            let locked = area.flags() & AreaFlags::LOCKED;
            Some((object.clone(), area.rights(), area.max_rights(), locked))
        })
    });
    let (object, rights, max_rights, locked) = shown.flatten().ok_or(Errno::EINVAL)?;
    let placement = Placement::Fixed(at);
    // Like `do_mmap`, check the number of areas and the placement before the offset.
    let first_error = |error: Errno| {
        let placed = current.with_space(|space| space.check_place(length, placement, false));
        placed.map_err(map_errno).err().unwrap_or(error)
    };
    let offset = first.checked_mul(PAGE);
    let offset = offset.ok_or_else(|| first_error(Errno::EOVERFLOW))?;
    let request = MapRequest {
        length,
        rights,
        max_rights,
        kind: MapKind::Object {
            object,
            offset,
            shared: true,
        },
        placement,
        flags: locked,
        populate: flags as u32 & raw::MAP_NONBLOCK == 0,
    };
    map(current, userfaults, &request).map_err(|error| first_error(map_errno(error)))?;
    Ok(0)
}

/// Implements `map_shadow_stack`. Always fails: the supported processors have no shadow stacks (Linux 7.3
/// `arch/x86/kernel/shstk.c`).
pub fn map_shadow_stack(_current: &Current<'_>, _arguments: &Arguments) -> CallResult {
    Err(Errno::EOPNOTSUPP)
}
