//! The check that sealed memory keeps its contents (Linux 7.2 `mm/mseal.c`, `can_modify_vma_madv`).

use memwright_table::{Machine, PageRange};

use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::types::access::Access;
use crate::types::advice::Advice;
use crate::types::error::AdviseError;
use crate::types::rights::Rights;
use crate::vma::area::AreaFlags;

/// Returns an error if the area is sealed, private and anonymous, and not writable: the program could not overwrite its
/// contents, so it must not discard them. File contents may be discarded, because they can be read again (Linux 7.2
/// `can_madvise_modify`).
pub(crate) fn check_seal<M: Machine>(
    core: &Core<M>,
    area: &Area<M>,
    part: PageRange,
    advice: Advice,
) -> Result<(), AdviseError> {
    if !area.flags().contains(AreaFlags::SEALED) {
        return Ok(());
    }
    let writable =
        area.rights.contains(Rights::WRITE) && core.check_key(area.rights, Access::WRITE).is_ok();
    let keeps = area.object().is_none() && !writable;
    if keeps && advice.discards() {
        return Err(AdviseError::Sealed(part.start.address()));
    }
    Ok(())
}
