//! Reads the addresses of a guest's exception and interrupt handlers from its interrupt descriptor table.

use crate::count::tables::{Physical, translate};

/// The number of interrupt vectors.
pub const COUNT: usize = 256;
/// Linux's vector for system calls of 32-bit programs, which the INT instruction raises.
const SYSTEM_CALL: usize = 0x80;
/// The size of a gate in bytes (Intel SDM volume 3, 7.14.1).
const SIZE: usize = 16;
/// The bits of an address that contain the offset within its page.
const PAGE_OFFSET: u64 = 4096 - 1;
/// The present bit of a gate.
const PRESENT: u8 = 1 << 7;

/// Returns the address of each vector's handler, which is 0 for a vector without a handler. Returns `None` if the table
/// cannot be read.
pub fn read(memory: &impl Physical, cr3: u64, table: u64) -> Option<[u64; COUNT]> {
    let mut bytes = [0; COUNT * SIZE];
    let mut read = 0;
    while read < bytes.len() {
        let address = table.checked_add(read as u64)?;
        let page = memory.page(translate(memory, cr3, address)? & !PAGE_OFFSET)?;
        let here = &page[(address & PAGE_OFFSET) as usize..];
        let size = here.len().min(bytes.len() - read);
        bytes[read..read + size].copy_from_slice(&here[..size]);
        read += size;
    }
    let gates = bytes.chunks_exact(SIZE).enumerate();
    let begins = |(vector, gate): (usize, &[u8])| {
        if vector == SYSTEM_CALL || gate[5] & PRESENT == 0 {
            return 0;
        }
        let part = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0, |all, byte| all << 8 | u64::from(*byte))
        };
        part(&gate[0..2]) | part(&gate[6..8]) << 16 | part(&gate[8..12]) << 32
    };
    let mut places = gates.map(begins);
    Some(std::array::from_fn(|_| places.next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct Fake(BTreeMap<u64, [u8; 4096]>);

    impl Physical for Fake {
        fn page(&self, address: u64) -> Option<[u8; 4096]> {
            self.0.get(&address).copied()
        }
    }

    #[test]
    fn handlers_are_where_the_gates_say() {
        let mut memory = Fake(BTreeMap::new());
        for (table, next) in [
            (0x1000, 0x2000),
            (0x2000, 0x3000),
            (0x3000, 0x4000),
            (0x4000, 0x5000),
        ] {
            let mut page = [0; 4096];
            page[..8].copy_from_slice(&(next | 7_u64).to_le_bytes());
            memory.0.insert(table, page);
        }
        let mut page = [0; 4096];
        let gate = [
            0x34, 0x12, 0x10, 0, 0, 0x8e, 0x78, 0x56, 0xbc, 0x9a, 0xff, 0xff, 0, 0, 0, 0,
        ];
        for vector in [14, SYSTEM_CALL, 255] {
            page[SIZE * vector..SIZE * (vector + 1)].copy_from_slice(&gate);
        }
        memory.0.insert(0x5000, page);
        let found = read(&memory, 0x1000, 0).unwrap();
        let there: Vec<usize> = (0..COUNT).filter(|index| found[*index] != 0).collect();
        assert_eq!(there, [14, COUNT - 1]);
        assert_eq!(found[14], 0xffff_9abc_5678_1234);
        assert_eq!(read(&memory, 0x1000, 0x20_0000), None);
        // A table that does not begin at a page boundary continues in the next page.
        assert_eq!(read(&memory, 0x1000, 0x10), None);
        memory.0.insert(0x4000, [0; 4096]);
        for (index, page) in [(0, 0x6000_u64), (1, 0x7000)] {
            let table = memory.0.get_mut(&0x4000).unwrap();
            table[8 * index..8 * index + 8].copy_from_slice(&(page | 7).to_le_bytes());
        }
        let mut pages = [[0; 4096]; 2];
        for (vector, page) in [(14, 0), (255, 1)] {
            let place = (0x10 + SIZE * vector) % 4096;
            pages[page][place..place + SIZE].copy_from_slice(&gate);
        }
        memory.0.insert(0x6000, pages[0]);
        memory.0.insert(0x7000, pages[1]);
        let found = read(&memory, 0x1000, 0x10).unwrap();
        let there: Vec<usize> = (0..COUNT).filter(|index| found[*index] != 0).collect();
        assert_eq!(there, [14, COUNT - 1]);
    }
}
