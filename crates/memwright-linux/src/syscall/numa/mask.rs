//! Sets of nodes in user memory (Linux 7.2 `mm/mempolicy.c`, `get_nodes` and `copy_nodes_to_user`).

use crate::{context::Context, errno::Errno};
use memwright_table::NodeSet;

/// Nodes that the interface has room for (`MAX_NUMNODES` of Debian's configuration).
pub(crate) const MOST_NODES: u64 = 1024;
/// Bits of a page, the longest mask.
const MOST_BITS: u64 = 4096 * 8;
/// Bits of a word.
const WORD: u64 = 64;

/// Reads the mask at `address`, of `count` - 1 bits.
///
/// # Errors
/// `EINVAL` if it is longer than a page, or names a node beyond the last that could be; `EFAULT`.
pub(super) fn read(context: &Context<'_>, address: u64, count: u64) -> Result<NodeSet, Errno> {
    let bits = count.wrapping_sub(1);
    if bits == 0 || address == 0 {
        return Ok(NodeSet::EMPTY);
    }
    if bits > MOST_BITS {
        return Err(Errno::EINVAL);
    }
    let mut nodes = 0;
    for word in 0..bits.div_ceil(WORD) {
        let value: u64 = context.read_value(address + 8 * word)?;
        let used = (bits - word * WORD).min(WORD);
        let value = value & (u64::MAX >> (WORD - used));
        match word {
            0 => nodes = value,
            // Nodes that could be, and are not.
            _ if word * WORD < MOST_NODES && value == 0 => {}
            _ if value != 0 => return Err(Errno::EINVAL),
            _ => {}
        }
    }
    Ok(NodeSet::from_bits(nodes))
}

/// Writes `nodes` as a mask of `count` - 1 bits.
///
/// # Errors
/// `EINVAL` if it would be longer than a page; `EFAULT`.
pub(super) fn write(
    context: &Context<'_>,
    address: u64,
    count: u64,
    nodes: NodeSet,
) -> Result<(), Errno> {
    let bytes = count.wrapping_sub(1).div_ceil(WORD) * 8;
    if bytes > MOST_BITS / 8 {
        return Err(Errno::EINVAL);
    }
    for word in 0..bytes / 8 {
        let value = if word == 0 { nodes.bits() } else { 0 };
        context.write_value(address + 8 * word, &value)?;
    }
    Ok(())
}
