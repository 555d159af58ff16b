//! The `brk` system call.

use crate::{
    context::{Arguments, CallResult, Context},
    direct_reclaim::Retry,
    identity::Resource,
    syscall::memory::{changes::telling, plan::PAGE, populate::make_resident},
    user::USER_END,
};
use memwright::{AreaFlags, MapRequest, Placement, Rights};
use memwright_table::VirtAddr;

/// Implements `brk`. The call never fails: it returns the end of the heap, whether that was moved or not.
pub fn brk(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let wanted = arguments[0];
    let Some(image) = context.process().image() else {
        return Ok(0);
    };
    let heap = *image.heap.lock();
    if wanted < heap.start || wanted > USER_END {
        return Ok(heap.end);
    }
    let data_limit = context.process().identity.soft_limit(Resource::Data);
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
        // The mapping replaces no area, so there are no userfaultfd events to send.
        let map = || context.with_space(|space| space.map_telling(&request, &mut |_, _| {}));
        if context.check_heap().is_ok() {
            let mapped = context.kernel.reclaim.retry(map).ok();
            to_populate = mapped.map(|mapped| mapped.to_populate);
        }
        to_populate.is_some()
    } else if new < old {
        let end = VirtAddr::new(new);
        let unmapped = telling(context, |space, witness| {
            let unmap = || space.unmap_telling(end, old - new, witness);
            context.kernel.reclaim.retry(unmap)
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
        make_resident(context, to_populate);
    }
    Ok(wanted)
}
