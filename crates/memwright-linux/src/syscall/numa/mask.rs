//! Node masks in user memory (Linux 7.2 `mm/mempolicy.c`, `get_nodes` and `copy_nodes_to_user`).

use memwright_linux_abi::errno::Errno;
use memwright_linux_memory::numa::MOST_NODES;
use memwright_linux_vfs::user::UserMemory;
use memwright_table::NodeSet;

/// Maximum number of bits in a mask, which is the number of bits of a page.
const MOST_BITS: u64 = 4096 * 8;
/// Number of bits in a word.
const WORD: u64 = 64;

/// The node numbers that a mask in user memory contains. The machine need not have these nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named([u64; (MOST_NODES / WORD) as usize]);

impl Named {
    const NONE: Self = Self([0; (MOST_NODES / WORD) as usize]);

    /// Returns the contained nodes below 64. No machine has nodes with higher numbers.
    pub fn low(&self) -> NodeSet {
        NodeSet::from_bits(self.0[0])
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// Returns whether all contained nodes are in `nodes`.
    pub fn are_among(&self, nodes: NodeSet) -> bool {
        self.low().without(nodes).is_empty() && self.0[1..].iter().all(|word| *word == 0)
    }

    /// Iterates over the contained node numbers in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        (0..MOST_NODES)
            .filter(|number| self.0[(number / WORD) as usize] >> (number % WORD) & 1 != 0)
    }
}

impl From<NodeSet> for Named {
    fn from(nodes: NodeSet) -> Self {
        let mut named = Self::NONE;
        named.0[0] = nodes.bits();
        named
    }
}

/// Reads the mask at `address`. Its size is `count - 1` bits.
///
/// # Errors
/// `EINVAL` if the mask is larger than a page or contains a node beyond the largest possible one; `EFAULT`.
pub(super) fn read(user: UserMemory<'_>, address: u64, count: u64) -> Result<Named, Errno> {
    let mut named = Named::NONE;
    let bits = count.wrapping_sub(1);
    if bits == 0 || address == 0 {
        return Ok(named);
    }
    if bits > MOST_BITS {
        return Err(Errno::EINVAL);
    }
    for word in 0..bits.div_ceil(WORD) {
        let value: u64 = user.read_value(address + 8 * word)?;
        let used = (bits - word * WORD).min(WORD);
        let value = value & (u64::MAX >> (WORD - used));
        match named.0.get_mut(word as usize) {
            Some(place) => *place = value,
            None if value == 0 => {}
            None => return Err(Errno::EINVAL),
        }
    }
    Ok(named)
}

/// Writes `nodes` as a mask of `count - 1` bits. Writes nothing if the number of words overflows.
///
/// # Errors
/// `EINVAL` if the mask would be larger than a page; `EFAULT`.
pub(super) fn write(
    user: UserMemory<'_>,
    address: u64,
    count: u64,
    nodes: NodeSet,
) -> Result<(), Errno> {
    let bits = count.wrapping_sub(1).checked_next_multiple_of(WORD);
    let words = bits.unwrap_or(0) / WORD;
    if words > MOST_BITS / WORD {
        return Err(Errno::EINVAL);
    }
    for word in 0..words {
        let value = if word == 0 { nodes.bits() } else { 0 };
        user.write_value(address + 8 * word, &value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_could_be_and_are_not_are_named_too() {
        let all = NodeSet::from_bits(0b11);
        let mut beyond = Named::from(NodeSet::single(1));
        assert!(beyond.are_among(all) && !beyond.is_empty());
        beyond.0[2] = 0b100;
        assert!(!beyond.are_among(all));
        assert_eq!(beyond.low(), NodeSet::single(1));
        assert!(beyond.numbers().eq([1, 130]));
        assert!(Named::NONE.is_empty() && Named::NONE.are_among(NodeSet::EMPTY));
        assert!(!Named::from(NodeSet::single(2)).are_among(all));
    }
}
