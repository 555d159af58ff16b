//! The `brk` system call.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::memory::{changes::telling, plan::PAGE, populate::make_resident},
};
use memwright::{AreaFlags, MapRequest, Placement, Rights};
use memwright_linux_memory::userfault::Userfaults;
use memwright_linux_vfs::{direct_reclaim::Retry, identity::Resource, user::USER_END};
use memwright_table::VirtAddr;

/// Implements `brk`. Never fails: returns the end of the heap, whether the call moved it or not.
pub fn brk(current: &Current<'_>, userfaults: &Userfaults, arguments: &Arguments) -> CallResult {
    let wanted = arguments[0];
    let Some(image) = current.process().image() else {
        return Ok(0);
    };
    let heap = *image.heap.lock();
    if wanted < heap.start || wanted > USER_END {
        return Ok(heap.end);
    }
    let data_limit = current.process().identity.soft_limit(Resource::Data);
    if wanted - heap.start > data_limit {
        return Ok(heap.end);
    }
    let old = heap.end.next_multiple_of(PAGE);
    let new = wanted.next_multiple_of(PAGE);
    let mut to_populate = None;
    let moved = if new > old {
        let request = MapRequest::anonymous(new - old, Rights::READ | Rights::WRITE)
            .at(Placement::FixedNoReplace(VirtAddr::new(old)))
            .with(AreaFlags::HEAP);
        // The mapping replaces no area, so no userfaultfd events need to be sent.
        let map = || current.with_space(|space| space.map_telling(&request, &mut |_, _| {}));
        if current.check_heap().is_ok() {
            let mapped = current.reclaim().retry(map).ok();
            to_populate = mapped.map(|mapped| mapped.to_populate);
        }
        to_populate.is_some()
    } else if new < old {
        let end = VirtAddr::new(new);
        let unmapped = telling(current, userfaults, |space, witness| {
            let unmap = || space.unmap_telling(end, old - new, witness);
            current.reclaim().retry(unmap)
        });
        unmapped.is_ok()
    } else {
        true
    };
    if !moved {
        return Ok(heap.end);
    }
    image.heap.lock().end = wanted;
    if let Some(to_populate) = to_populate {
        make_resident(current, userfaults, to_populate);
    }
    Ok(wanted)
}
