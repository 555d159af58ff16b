//! Changes of mappings, with the userfaultfd events that report them.

use crate::current::Current;
use memwright::uffd::{Watch, WatchEvent};
use memwright_linux_abi::Space;
use memwright_linux_memory::{userfault::Announced, userfault::Userfaults};

/// Calls `change`, which changes mappings, and then sends the userfaultfd events of its changes, even if `change`
/// fails.
pub(super) fn telling<R>(
    current: &Current<'_>,
    userfaults: &Userfaults,
    change: impl FnOnce(&Space, &mut dyn FnMut(&Watch, WatchEvent)) -> R,
) -> R {
    let mut announced = Announced::new(userfaults);
    let result =
        current.with_space(|space| change(space, &mut |watch, event| announced.note(watch, event)));
    announced.tell(current.thread);
    result
}
