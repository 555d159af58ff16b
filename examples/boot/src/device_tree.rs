//! The device tree (Devicetree Specification, "Flattened Devicetree (DTB) Format"), which describes the machine.

use core::ops::Range;

use crate::MEMORY_BASE;

/// The memory that the device tree at this physical address names: the property `reg` of the node `memory@...`.
pub fn memory(tree: u64) -> Range<u64> {
    let read = |offset| {
        let pointer = (MEMORY_BASE + tree + u64::from(offset)) as *const u32;
        // SAFETY: the machine has the tree at this address, and all memory is mapped.
        u32::from_be(unsafe { pointer.read_unaligned() })
    };
    let number = |offset| u64::from(read(offset)) << 32 | u64::from(read(offset + 4));
    let (mut at, names) = (read(8), read(12));
    let mut is_memory = false;
    loop {
        at += 4;
        match read(at - 4) {
            // A node: its name, which a zero byte ends.
            1 => {
                is_memory = read(at).to_be_bytes() == *b"memo" && read(at + 4) >> 8 == 0x72_7940; // "ry@"
                while !read(at).to_be_bytes().contains(&0) {
                    at += 4;
                }
                at += 4;
            }
            // A property: its length, the offset of its name, and its value.
            3 if is_memory && read(names + read(at + 4)).to_be_bytes() == *b"reg\0" => {
                return number(at + 8)..number(at + 8) + number(at + 16);
            }
            3 => at += 8 + read(at).next_multiple_of(4),
            // The end of a node, or nothing.
            2 | 4 => {}
            _ => panic!("the device tree names no memory"),
        }
    }
}
