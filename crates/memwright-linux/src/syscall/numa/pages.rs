//! Page migration on request (Linux 7.2 `mm/migrate.c` and `mm/mempolicy.c`).

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::{
        call::int,
        numa::{mask, policy},
    },
};
use alloc::sync::Arc;
use linux_raw_sys::mempolicy as raw;
use memwright::{Moved, Moving, Unmoved};
use memwright_linux_abi::{Memory, Space, errno::Errno};
use memwright_linux_base::sync::PausePoints;
use memwright_linux_tasks::process::{Process, Tasks};
use memwright_linux_vfs::identity::Capabilities;
use memwright_table::{NodeChoice, NodeSet, Page, PageRange, VirtAddr};

/// Number of pages that a call handles between two scheduling points.
const PAGES: u32 = 64;

/// Returns the address space of process `id`, or the caller's address space if `id` is 0. Checks that the caller is
/// allowed to inspect the process.
fn space_of(current: &Current<'_>, tasks: &Tasks, id: u64) -> Result<Arc<Space>, Errno> {
    if int(id) == 0 {
        return Ok(current.with_space(Arc::clone));
    }
    let process = process_of(tasks, int(id) as u32).ok_or(Errno::ESRCH)?;
    if !Arc::ptr_eq(&process, current.process())
        && !current.process().identity.may_look_into(&process.identity)
    {
        return Err(Errno::EPERM);
    }
    process.space().ok_or(Errno::EINVAL)
}

/// Returns the process of thread `id`, or process `id`, which can be a zombie.
fn process_of(tasks: &Tasks, id: u32) -> Option<Arc<Process>> {
    let thread = tasks.thread(id).map(|thread| thread.process.clone());
    thread.or_else(|| tasks.process(id))
}

fn may_move_all(process: &Process) -> bool {
    let credentials = process.identity.credentials.lock();
    credentials.has(Capabilities::NICE)
}

/// Returns the status that `move_pages` stores for a page that it queried or tried to migrate.
fn status_of(moved: Result<Moved, Unmoved>) -> Result<u8, Errno> {
    match moved {
        Ok(Moved::To(node) | Moved::Stays(node)) => Ok(node),
        Err(Unmoved::NoArea | Unmoved::Unmovable) => Err(Errno::EFAULT),
        Err(Unmoved::Absent) => Err(Errno::ENOENT),
        Err(Unmoved::Shared(_)) => Err(Errno::EACCES),
        Err(Unmoved::Object | Unmoved::Busy) => Err(Errno::EBUSY),
        Err(Unmoved::NoFrame) => Err(Errno::ENOMEM),
    }
}

fn status_word(status: Result<u8, Errno>) -> i32 {
    match status {
        Ok(node) => node.into(),
        Err(errno) => -i32::from(errno.number()),
    }
}

/// Implements `move_pages`.
pub(super) fn move_pages(
    current: &Current<'_>,
    tasks: &Tasks,
    memory: &Memory,
    arguments: &Arguments,
) -> CallResult {
    let &[id, count, pages, nodes, statuses, flags] = arguments;
    const MOVE: u32 = raw::MPOL_MF_MOVE;
    const MOVE_ALL: u32 = raw::MPOL_MF_MOVE_ALL;
    let flags = flags as u32;
    if flags & !(MOVE | MOVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MOVE_ALL != 0 && !may_move_all(current.process()) {
        return Err(Errno::EPERM);
    }
    let moving = if flags & MOVE_ALL != 0 {
        Moving::All
    } else {
        Moving::Own
    };
    let space = space_of(current, tasks, id)?;
    let all = policy::all(memory);
    let mut points = PausePoints::every(PAGES);
    for index in 0..count {
        points.round();
        let address: u64 = current.user.read_value(pages.wrapping_add(8 * index))?;
        let page = VirtAddr::new(address).page();
        let to = statuses.wrapping_add(4 * index);
        if nodes == 0 {
            let status = status_of(space.numa().node_of(page).map(Moved::Stays));
            current.user.write_value(to, &status_word(status))?;
            continue;
        }
        let node: i32 = current.user.read_value(nodes.wrapping_add(4 * index))?;
        let node = u8::try_from(node).ok().filter(|node| all.contains(*node));
        let node = node.ok_or(Errno::ENODEV)?;
        match space.numa().migrate(page, NodeChoice::only(node), moving) {
            // A page that was to move is busy or belongs to an object: end the call and return the number of remaining
            // pages.
            Err(Unmoved::Busy | Unmoved::Object) => return Ok(count - index),
            Err(Unmoved::NoFrame) => return Err(Errno::ENOMEM),
            moved @ (Ok(_)
            | Err(
                Unmoved::NoArea | Unmoved::Absent | Unmoved::Unmovable | Unmoved::Shared(_),
            )) => current
                .user
                .write_value(to, &status_word(status_of(moved)))?,
        }
    }
    Ok(0)
}

/// Implements `migrate_pages`.
pub(super) fn migrate_pages(
    current: &Current<'_>,
    tasks: &Tasks,
    memory: &Memory,
    arguments: &Arguments,
) -> CallResult {
    let [id, count, from, to, ..] = *arguments;
    let from = mask::read(current.user, from, count)?;
    let to = mask::read(current.user, to, count)?;
    let space = space_of(current, tasks, id)?;
    let all = policy::all(memory);
    if !to.are_among(all) && !may_move_all(current.process()) {
        return Err(Errno::EPERM);
    }
    let (from, to) = (from.low(), to.low().intersection(all));
    if to.is_empty() {
        return Err(Errno::EINVAL);
    }
    let moving = if may_move_all(current.process()) {
        Moving::All
    } else {
        Moving::Own
    };
    let user = PageRange::new(Page::new(0), VirtAddr::USER_END.page());
    let mut left = 0;
    space.numa().placed_pages(user, 0, &mut |page, node, _| {
        let Some(target) = target_of(node, from, to) else {
            return true;
        };
        match space.numa().migrate(page, NodeChoice::only(target), moving) {
            Ok(_)
            | Err(Unmoved::NoArea | Unmoved::Absent | Unmoved::Unmovable | Unmoved::Shared(_)) => {}
            Err(Unmoved::Object | Unmoved::Busy | Unmoved::NoFrame) => left += 1,
        }
        true
    });
    Ok(left)
}

/// Returns the node to which a page on `node` moves: the member of `to` at the index that `node` has in `from`
/// (`node_remap`). Returns `None` if the page stays: `node` is not in `from`, the sets are equal, or the sets differ in
/// size and `to` contains `node`.
fn target_of(node: u8, from: NodeSet, to: NodeSet) -> Option<u8> {
    if !from.contains(node) || (from.len() == to.len() && to.contains(node) && from == to) {
        return None;
    }
    let place = from.iter().position(|member| member == node)?;
    let target = to.iter().nth(place % to.len() as usize)?;
    (target != node && !(from.len() != to.len() && to.contains(node))).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_to_the_node_at_the_same_place() {
        for (node, from, to, expected) in [
            (0, 0b01, 0b10, Some(1)),
            (1, 0b01, 0b10, None),
            (0, 0b11, 0b1100, Some(2)),
            (1, 0b11, 0b1100, Some(3)),
            (1, 0b11, 0b0100, Some(2)),
            (0, 0b11, 0b11, None),
            (0, 0b11, 0b01, None),
            (1, 0b11, 0b01, Some(0)),
        ] {
            let set = NodeSet::from_bits;
            let target = target_of(node, set(from), set(to));
            assert_eq!(target, expected, "node {node} of {from:#b} to {to:#b}");
        }
    }
}
