//! NUMA policies of areas and threads (Linux 7.2 `mm/mempolicy.c`).

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::numa::mask::{self, Named},
};
use alloc::sync::Arc;
use linux_raw_sys::mempolicy as raw;
use memwright::{BindError, Moved, Moving, PlaceMode, PlacePolicy, Unmoved};
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_base::sync;
use memwright_linux_memory::numa::{advance, set_policy};
use memwright_linux_tasks::process::Tasks;
use memwright_linux_vfs::{direct_reclaim::Retry, identity::Capabilities, user::UserMemory};
use memwright_table::{NodeSet, PAGE_SIZE, Page, PageRange, VirtAddr};

const DEFAULT: u32 = 0;
const PREFERRED: u32 = 1;
const BIND: u32 = 2;
const INTERLEAVE: u32 = 3;
const LOCAL: u32 = 4;
const PREFERRED_MANY: u32 = 5;
const WEIGHTED_INTERLEAVE: u32 = 6;

/// The flags that can be combined with a mode.
const STATIC: u32 = raw::MPOL_F_STATIC_NODES;
const RELATIVE: u32 = raw::MPOL_F_RELATIVE_NODES;
const BALANCING: u32 = raw::MPOL_F_NUMA_BALANCING;

/// Returns the number of a mode in the system-call interface.
const fn number(mode: PlaceMode) -> u32 {
    match mode {
        PlaceMode::Preferred => PREFERRED,
        PlaceMode::Bind => BIND,
        PlaceMode::Interleave => INTERLEAVE,
        PlaceMode::Local => LOCAL,
        PlaceMode::PreferredMany => PREFERRED_MANY,
        PlaceMode::WeightedInterleave => WEIGHTED_INTERLEAVE,
    }
}

/// Splits `mode` into the mode without flags and the flags. Checks that the combination of flags is valid
/// (`sanitize_mpol_flags`).
fn mode_and_flags(mode: u32) -> Result<(u32, u32), Errno> {
    let flags = mode & (STATIC | RELATIVE | BALANCING);
    let mode = mode & !(STATIC | RELATIVE | BALANCING);
    let places = flags & (STATIC | RELATIVE);
    let balances = flags & BALANCING != 0;
    if mode > WEIGHTED_INTERLEAVE
        || places == STATIC | RELATIVE
        || balances && !matches!(mode, BIND | PREFERRED_MANY)
    {
        return Err(Errno::EINVAL);
    }
    Ok((mode, flags))
}

/// Returns the policy for a mode with flags and a node mask. `all` are the nodes of the machine. Returns `None` for the
/// default policy (`mpol_new` and `mpol_set_nodemask`).
fn policy(mode: u32, nodes: &Named, all: NodeSet) -> Result<Option<PlacePolicy>, Errno> {
    let (mode, flags) = mode_and_flags(mode)?;
    let places = flags & (STATIC | RELATIVE);
    let kind = match mode {
        DEFAULT if nodes.is_empty() => return Ok(None),
        // Without nodes, both `MPOL_PREFERRED` and `MPOL_LOCAL` prefer the node of the CPU.
        PREFERRED | LOCAL if nodes.is_empty() && places == 0 => PlaceMode::Local,
        DEFAULT | LOCAL => return Err(Errno::EINVAL),
        _ if nodes.is_empty() => return Err(Errno::EINVAL),
        PREFERRED => PlaceMode::Preferred,
        BIND => PlaceMode::Bind,
        INTERLEAVE => PlaceMode::Interleave,
        PREFERRED_MANY => PlaceMode::PreferredMany,
        _ => PlaceMode::WeightedInterleave,
    };
    let mut usable = if places == RELATIVE {
        relative(nodes, all)
    } else {
        nodes.low().intersection(all)
    };
    if kind == PlaceMode::Preferred {
        let first = usable.iter().next();
        usable = first.map_or(NodeSet::EMPTY, NodeSet::single);
    }
    if kind != PlaceMode::Local && usable.is_empty() {
        return Err(Errno::EINVAL);
    }
    Ok(Some(PlacePolicy {
        mode: kind,
        nodes: usable,
        named: (places != 0).then_some(nodes.low()),
        flags: flags as u16,
        home: None,
    }))
}

/// Returns the nodes whose indices in `all` are the numbers in `nodes`, modulo the number of nodes
/// (`mpol_relative_nodemask`).
fn relative(nodes: &Named, all: NodeSet) -> NodeSet {
    let count = u64::from(all.len().max(1));
    let numbers = nodes.numbers();
    let places = numbers.fold(0, |places: u64, node| places | 1 << (node % count));
    let members = all.iter().enumerate();
    let chosen = members.filter(|(place, _)| places & (1 << place) != 0);
    NodeSet::from_bits(chosen.fold(0, |bits: u64, (_, node)| bits | 1 << node))
}

/// Returns all nodes of the machine.
pub(super) fn all(memory: &Memory) -> NodeSet {
    memory.frames().topology().all()
}

/// Returns the node of the CPU on which the caller runs.
fn here(memory: &Memory) -> u8 {
    let topology = memory.frames().topology();
    topology.node_of(sync::cpu())
}

fn bind_errno(error: BindError) -> Errno {
    match error {
        BindError::Misaligned => Errno::EINVAL,
        BindError::Hole(_) => Errno::EFAULT,
        BindError::OverLimit(_) | BindError::OutOfMemory => Errno::ENOMEM,
        BindError::Misplaced(_) => Errno::EIO,
        BindError::NoHome(_) => Errno::EOPNOTSUPP,
        BindError::Unsupported => Errno::ENOSYS,
    }
}

/// Implements `mbind`.
pub(super) fn mbind(current: &Current<'_>, memory: &Memory, arguments: &Arguments) -> CallResult {
    let &[address, length, mode, nodes, count, flags] = arguments;
    const STRICT: u32 = raw::MPOL_MF_STRICT;
    const MOVE: u32 = raw::MPOL_MF_MOVE;
    const MOVE_ALL: u32 = raw::MPOL_MF_MOVE_ALL;
    mode_and_flags(mode as u32)?;
    let nodes = mask::read(current.user, nodes, count)?;
    let flags = flags as u32;
    if flags & !(STRICT | MOVE | MOVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    let may_move_all = current
        .process()
        .identity
        .credentials
        .lock()
        .has(Capabilities::NICE);
    if flags & MOVE_ALL != 0 && !may_move_all {
        return Err(Errno::EPERM);
    }
    let moving = match flags & (MOVE | MOVE_ALL) {
        0 => Moving::None,
        MOVE => Moving::Own,
        _ => Moving::All,
    };
    let start = VirtAddr::new(address);
    // An empty range, or a length that wraps to 0 when it is rounded up, is not an error even without nodes.
    if start.is_aligned() && length.wrapping_add(PAGE_SIZE as u64 - 1) < PAGE_SIZE as u64 {
        return Ok(0);
    }
    let policy = policy(mode as u32, &nodes, all(memory))?;
    let strict = flags & STRICT != 0 && policy.is_some();
    let looks = strict && moving == Moving::None;
    let bind = || current.with_space(|space| space.numa().bind(start, length, policy, looks));
    current.reclaim().retry(bind).map_err(bind_errno)?;
    if moving == Moving::None {
        return Ok(0);
    }
    let near = here(memory);
    let left = move_misplaced(current, memory, near, (start, length), policy, moving);
    if strict && left > 0 {
        return Err(Errno::EIO);
    }
    Ok(0)
}

/// Migrates the pages of a range that are not on a node of `policy`. Returns the number of pages that could not be
/// migrated. `near` is the node of the calling CPU.
fn move_misplaced(
    current: &Current<'_>,
    memory: &Memory,
    near: u8,
    (start, length): (VirtAddr, u64),
    policy: Option<PlacePolicy>,
    moving: Moving,
) -> u64 {
    let end = VirtAddr::new(start.as_u64().saturating_add(length).div_ceil(4096) * 4096);
    let range = PageRange::new(start.page(), end.page());
    let wanted = policy.map_or(NodeSet::EMPTY, |policy| policy.nodes);
    let usual = PlacePolicy {
        mode: PlaceMode::Local,
        nodes: NodeSet::EMPTY,
        named: None,
        flags: 0,
        home: None,
    };
    let mut left = 0;
    current.with_space(|space| {
        space
            .numa()
            .placed_pages(range, near, &mut |page: Page, node, choice| {
                if wanted.contains(node) {
                    return true;
                }
                let choice = choice.unwrap_or(usual.choice(near, 0, all(memory), |_| 1));
                match space.numa().migrate(page, choice, moving) {
                    // Pages that other processes map too are not migrated (`migrate_folio_add`).
                    Ok(Moved::To(_) | Moved::Stays(_))
                    | Err(Unmoved::Absent | Unmoved::Shared(_)) => {}
                    Err(
                        Unmoved::NoArea
                        | Unmoved::Unmovable
                        | Unmoved::Object
                        | Unmoved::Busy
                        | Unmoved::NoFrame,
                    ) => left += 1,
                }
                true
            });
    });
    left
}

/// Implements `set_mempolicy`.
pub(super) fn set_mempolicy(
    current: &Current<'_>,
    memory: &Arc<Memory>,
    tasks: &'static Tasks,
    arguments: &Arguments,
) -> CallResult {
    let [mode, nodes, count, ..] = *arguments;
    mode_and_flags(mode as u32)?;
    let nodes = mask::read(current.user, nodes, count)?;
    let policy = policy(mode as u32, &nodes, all(memory))?;
    set_policy(memory, tasks, current.thread, policy)?;
    Ok(0)
}

/// Implements `get_mempolicy`.
pub(super) fn get_mempolicy(
    current: &Current<'_>,
    memory: &Memory,
    arguments: &Arguments,
) -> CallResult {
    let &[to, nodes_to, count, address, flags, _] = arguments;
    const NODE: u64 = raw::MPOL_F_NODE as u64;
    const ADDR: u64 = raw::MPOL_F_ADDR as u64;
    const ALLOWED: u64 = raw::MPOL_F_MEMS_ALLOWED as u64;
    let all = all(memory);
    if flags & !(NODE | ADDR | ALLOWED) != 0 || nodes_to != 0 && count < u64::from(all.len()) {
        return Err(Errno::EINVAL);
    }
    if flags & ALLOWED != 0 {
        if flags & (NODE | ADDR) != 0 {
            return Err(Errno::EINVAL);
        }
        current.user.write_optional(to, &(DEFAULT as i32))?;
        return write_nodes(current.user, nodes_to, count, all);
    }
    let thread = &current.thread.placement;
    let mut policy = thread.policy(memory);
    if flags & ADDR != 0 {
        let area = current.with_space(|space| space.numa().placement_at(VirtAddr::new(address)));
        policy = area.ok_or(Errno::EFAULT)?;
    } else if address != 0 {
        return Err(Errno::EINVAL);
    }
    let told = if flags & NODE == 0 {
        let flags = policy.map_or(0, |policy| u32::from(policy.flags));
        policy.map_or(DEFAULT, |policy| number(policy.mode)) | flags
    } else if flags & ADDR != 0 {
        u32::from(node_at(current, memory, address)?)
    } else {
        let next = policy.and_then(|policy| advance(&policy, thread.turn(), all));
        u32::from(next.ok_or(Errno::EINVAL)?)
    };
    current.user.write_optional(to, &(told as i32))?;
    let nodes = policy.map_or(NodeSet::EMPTY, |policy| {
        policy.named.unwrap_or(policy.nodes)
    });
    write_nodes(current.user, nodes_to, count, nodes)
}

fn write_nodes(user: UserMemory<'_>, to: u64, count: u64, nodes: NodeSet) -> CallResult {
    if to != 0 {
        mask::write(user, to, count, nodes)?;
    }
    Ok(0)
}

/// Returns the node of the page at `address`. Faults the page in if necessary (`lookup_node`).
fn node_at(current: &Current<'_>, memory: &Memory, address: u64) -> Result<u8, Errno> {
    let page = VirtAddr::new(address).page();
    let look = || current.with_space(|space| space.numa().node_of(page));
    match look() {
        Ok(node) => return Ok(node),
        Err(Unmoved::Unmovable) => return Ok(zero_node(memory)),
        Err(_) => {}
    }
    let _: u8 = current.user.read_value(address)?;
    match look() {
        Ok(node) => Ok(node),
        Err(Unmoved::Unmovable) => Ok(zero_node(memory)),
        Err(_) => Err(Errno::EFAULT),
    }
}

/// Returns the node of the zero page.
fn zero_node(memory: &Memory) -> u8 {
    memory.frames().node_of(memory.zero_frame())
}

/// Implements `set_mempolicy_home_node`.
pub(super) fn set_mempolicy_home_node(
    current: &Current<'_>,
    memory: &Memory,
    arguments: &Arguments,
) -> CallResult {
    let [address, length, home, flags, ..] = *arguments;
    if flags != 0 || home >= u64::from(all(memory).len()) {
        return Err(Errno::EINVAL);
    }
    if address % PAGE_SIZE as u64 != 0 {
        return Err(Errno::EINVAL);
    }
    // A length that wraps when it is rounded up counts as 0. A range of length 0 always succeeds.
    let length = length.checked_next_multiple_of(PAGE_SIZE as u64);
    let Some(length) = length.filter(|length| *length > 0) else {
        return Ok(0);
    };
    let may = |policy: PlacePolicy| matches!(number(policy.mode), BIND | PREFERRED_MANY);
    let start = VirtAddr::new(address);
    let set =
        current.with_space(|space| space.numa().set_home_node(start, length, home as u8, may));
    set.map(|()| 0).map_err(|error| match error {
        BindError::Hole(_) => Errno::ENOENT,
        BindError::Misaligned
        | BindError::OverLimit(_)
        | BindError::OutOfMemory
        | BindError::Misplaced(_)
        | BindError::NoHome(_)
        | BindError::Unsupported => bind_errno(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_nodes_make_policies_or_are_refused() {
        let set = NodeSet::from_bits;
        let all = set(0b11);
        #[rustfmt::skip]
        let rows = [
            (DEFAULT,                  0b00, Ok(None)),
            (DEFAULT,                  0b01, Err(Errno::EINVAL)),
            (PREFERRED,                0b00, Ok(Some((PlaceMode::Local, 0)))),
            (PREFERRED,                0b11, Ok(Some((PlaceMode::Preferred, 0b01)))),
            (PREFERRED | STATIC,       0b00, Err(Errno::EINVAL)),
            (BIND,                     0b10, Ok(Some((PlaceMode::Bind, 0b10)))),
            (BIND,                     0b00, Err(Errno::EINVAL)),
            (BIND,                     0b100, Err(Errno::EINVAL)),
            (BIND | RELATIVE,          0b100, Ok(Some((PlaceMode::Bind, 0b01)))),
            (BIND | RELATIVE | STATIC, 0b01, Err(Errno::EINVAL)),
            (BIND | BALANCING,         0b01, Ok(Some((PlaceMode::Bind, 0b01)))),
            (INTERLEAVE | BALANCING,   0b01, Err(Errno::EINVAL)),
            (INTERLEAVE,               0b11, Ok(Some((PlaceMode::Interleave, 0b11)))),
            (LOCAL,                    0b00, Ok(Some((PlaceMode::Local, 0)))),
            (LOCAL,                    0b01, Err(Errno::EINVAL)),
            (PREFERRED_MANY,           0b11, Ok(Some((PlaceMode::PreferredMany, 0b11)))),
            (WEIGHTED_INTERLEAVE,      0b11, Ok(Some((PlaceMode::WeightedInterleave, 0b11)))),
            (7,                        0b01, Err(Errno::EINVAL)),
        ];
        for (mode, nodes, expected) in rows {
            let made = policy(mode, &set(nodes).into(), all);
            let made = made.map(|made| made.map(|made| (made.mode, made.nodes.bits())));
            assert_eq!(made, expected, "mode {mode:#x}, nodes {nodes:#b}");
        }
    }
}
