//! Parses the profile that the plugin writes: call chains by address, and how often each block of instructions ran in
//! them.
//!
//! `plugin/profile.c` documents the format.

use std::collections::BTreeMap;

/// How control entered a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By a CALL instruction.
    Called,
    /// From user mode: a system call or an exception.
    FromUser,
    /// By an exception in the kernel.
    Exception,
    /// By an interrupt, in user mode or in the kernel.
    Interrupt,
    /// By a switch to a task that the plugin had not observed before.
    Task,
}

/// A call chain: its innermost frame, and the node of its outer frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The index of the node of the outer frames, which is lower than this node's index. `None` for the root.
    pub parent: Option<u32>,
    /// How control entered the frame.
    pub kind: Kind,
    /// For a call, the return address. For an exception in the kernel, the address of the second byte of the
    /// interrupted instruction. Otherwise 0.
    pub from: u64,
    /// The address of the frame's first instruction; 0 for a task that the plugin had not observed before.
    pub start: u64,
}

/// Consecutive instructions in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The address of the first instruction.
    pub start: u64,
    /// The length of each instruction in bytes.
    pub sizes: Vec<u8>,
}

/// How often a block ran in a call chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// The index of the call chain.
    pub node: u32,
    /// The index of the block. Block [`ENTERED`] has no instructions: the count of its cells is how often the chain's
    /// innermost frame was entered.
    pub block: u32,
    /// How often the block ran in the call chain.
    pub count: u64,
}

/// The index of the block whose cells count how often frames were entered.
pub const ENTERED: u32 = 0;

/// A complete profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// The number of frames that ended without a return.
    pub left_open: u64,
    /// The call chains; the root is the first.
    pub nodes: Vec<Node>,
    /// Blocks of instructions.
    pub blocks: Vec<Block>,
    /// The counts that are not zero.
    pub cells: Vec<Cell>,
}

impl Raw {
    /// Returns whether both profiles have the same counts. Instructions are compared by address, because the boundaries
    /// of QEMU's blocks can depend on the host.
    pub fn equals(&self, other: &Self) -> bool {
        self.left_open == other.left_open
            && self.nodes == other.nodes
            && self.by_address() == other.by_address()
    }

    /// Returns how often each instruction ran in each call chain, by chain and address. The entry with address 0 is how
    /// often the chain's innermost frame was entered.
    fn by_address(&self) -> BTreeMap<(u32, u64), u64> {
        let mut counts = BTreeMap::new();
        for cell in &self.cells {
            if cell.block == ENTERED {
                *counts.entry((cell.node, 0)).or_default() += cell.count;
            }
            let block = &self.blocks[cell.block as usize];
            let mut address = block.start;
            for size in &block.sizes {
                *counts.entry((cell.node, address)).or_default() += cell.count;
                address += u64::from(*size);
            }
        }
        counts
    }
}

/// Why a file is not a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// It does not begin with the magic of a profile.
    NoProfile,
    /// It ends too early, at this offset.
    Truncated(usize),
    /// The index at this offset is not that of an earlier node or block.
    Reference(usize),
    /// After the end of the run, more blocks ran than the plugin's journal can remove from the profile.
    Forgotten,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoProfile => write!(formatter, "the plugin wrote no profile"),
            Self::Truncated(at) => write!(formatter, "the plugin's profile ends at byte {at}"),
            Self::Reference(at) => {
                write!(formatter, "the plugin's profile is wrong at byte {at}")
            }
            Self::Forgotten => write!(
                formatter,
                "the end of the run is too far back to be cut from the profile"
            ),
        }
    }
}

impl std::error::Error for Malformed {}

const MAGIC: &[u8] = b"MWPROF1\n";

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.get(..length).ok_or(Malformed::Truncated(self.at))?;
        self.at += length;
        Ok(taken)
    }

    fn number(&mut self, length: usize) -> Result<u64, Malformed> {
        let bytes = self.take(length)?.iter().rev();
        Ok(bytes.fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    /// Reads an index, which must be less than `limit`.
    fn reference(&mut self, limit: u64) -> Result<u32, Malformed> {
        let at = self.at;
        let number = self.number(4)?;
        let known = u32::try_from(number).ok().filter(|_| number < limit);
        known.ok_or(Malformed::Reference(at))
    }
}

/// Parses a profile.
///
/// # Errors
/// If the plugin cannot have written the file.
pub fn parse(bytes: &[u8]) -> Result<Raw, Malformed> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(Malformed::NoProfile)?;
    let mut reader = Reader { bytes: rest, at: 0 };
    let left_open = reader.number(8)?;
    if reader.number(8)? != 0 {
        return Err(Malformed::Forgotten);
    }
    let [nodes, blocks, cells] = [reader.number(8)?, reader.number(8)?, reader.number(8)?];
    let node = |index: u64, reader: &mut Reader<'_>| {
        let parent = match index {
            0 => reader.number(4).map(|_| None),
            _ => reader.reference(index).map(Some),
        }?;
        let at = reader.at;
        let kind = match reader.number(4)? {
            0 => Kind::Called,
            1 => Kind::FromUser,
            2 => Kind::Exception,
            3 => Kind::Interrupt,
            4 => Kind::Task,
            _ => return Err(Malformed::Reference(at)),
        };
        Ok(Node {
            parent,
            kind,
            from: reader.number(8)?,
            start: reader.number(8)?,
        })
    };
    let block = |reader: &mut Reader<'_>| {
        let start = reader.number(8)?;
        let count = reader.number(4)?;
        let sizes = reader.take(usize::try_from(count).unwrap_or(usize::MAX))?;
        Ok(Block {
            start,
            sizes: sizes.to_vec(),
        })
    };
    let cell = |reader: &mut Reader<'_>| {
        Ok(Cell {
            node: reader.reference(nodes)?,
            block: reader.reference(blocks)?,
            count: reader.number(8)?,
        })
    };
    Ok(Raw {
        left_open,
        nodes: (0..nodes)
            .map(|index| node(index, &mut reader))
            .collect::<Result<_, _>>()?,
        blocks: (0..blocks)
            .map(|_| block(&mut reader))
            .collect::<Result<_, _>>()?,
        cells: (0..cells)
            .map(|_| cell(&mut reader))
            .filter(|cell| !matches!(cell, Ok(Cell { count: 0, .. })))
            .collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for word in [3_u64, 0, 2, 2, 2] {
            bytes.extend(word.to_le_bytes());
        }
        for (parent, kind, from, start) in [(u32::MAX, 4_u32, 0_u64, 0_u64), (0, 1, 5, 0x10)] {
            bytes.extend(parent.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(from.to_le_bytes());
            bytes.extend(start.to_le_bytes());
        }
        for (start, sizes) in [(0_u64, &[][..]), (0x10, &[1, 4])] {
            bytes.extend(start.to_le_bytes());
            bytes.extend((sizes.len() as u32).to_le_bytes());
            bytes.extend(sizes);
        }
        for (node, block, count) in [(1_u32, 1_u32, 7_u64), (1, 0, 0)] {
            bytes.extend(node.to_le_bytes());
            bytes.extend(block.to_le_bytes());
            bytes.extend(count.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn profiles_parse() {
        let bytes = file();
        let raw = parse(&bytes).unwrap();
        assert_eq!((raw.left_open, raw.nodes.len()), (3, 2));
        let node = Node {
            parent: Some(0),
            kind: Kind::FromUser,
            from: 5,
            start: 0x10,
        };
        assert_eq!((raw.nodes[0].parent, raw.nodes[1]), (None, node));
        assert_eq!(raw.blocks[1].sizes, [1, 4]);
        let cell = Cell {
            node: 1,
            block: 1,
            count: 7,
        };
        assert_eq!(raw.cells, [cell]);
        let mut divided = raw.clone();
        divided.blocks = [(0, &[][..]), (0x10, &[1]), (0x11, &[4])]
            .map(|(start, sizes)| Block {
                start,
                sizes: sizes.to_vec(),
            })
            .to_vec();
        divided.cells = vec![cell, Cell { block: 2, ..cell }];
        assert!(raw.equals(&divided) && raw != divided);
        divided.cells[1].count = 8;
        assert!(!raw.equals(&divided));
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_err(), "cut at {length}");
        }
        for (at, value, expected) in [
            (0, b'X', Malformed::NoProfile),
            (16, 1, Malformed::Forgotten),
            (48 + 24, 1, Malformed::Reference(40 + 24)),
            (48 + 28, 9, Malformed::Reference(40 + 28)),
        ] {
            let mut other = bytes.clone();
            other[at] = value;
            assert_eq!(parse(&other), Err(expected), "{at}");
        }
    }
}
