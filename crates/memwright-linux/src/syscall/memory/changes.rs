//! Changes of mappings, and the userfaultfd events that report them.

use crate::{Space, context::Context, userfault::Announced};
use memwright::uffd::{Watch, WatchEvent};

/// Executes `change`, which changes mappings. Then sends the userfaultfd events of the change, even if it failed.
pub(super) fn telling<R>(
    context: &Context<'_>,
    change: impl FnOnce(&Space, &mut dyn FnMut(&Watch, WatchEvent)) -> R,
) -> R {
    let mut announced = Announced::new(context.kernel.userfaults);
    let result =
        context.with_space(|space| change(space, &mut |watch, event| announced.note(watch, event)));
    announced.tell(context.thread);
    result
}
