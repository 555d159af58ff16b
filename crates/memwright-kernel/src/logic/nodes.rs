//! Finds the NUMA nodes in the system resource affinity table and the system locality information table (ACPI 6.5,
//! 5.2.16 and 5.2.17).

use memwright_table::{CpuId, MAX_NODES, Topology};

use crate::acpi::{HEADER_LENGTH, Memory, find, number};

/// The maximum number of memory ranges in a `NodeMap`, and the maximum number of processors.
const MOST: usize = 64;

/// A half-open range of physical memory and its proximity domain.
#[derive(Clone, Copy)]
struct Affinity {
    start: u64,
    end: u64,
    domain: u32,
}

/// The NUMA topology that the firmware describes. The firmware calls nodes proximity domains and numbers them
/// arbitrarily.
#[derive(Clone, Copy)]
pub struct NodeMap {
    domains: [u32; MAX_NODES],
    nodes: usize,
    memory: [Affinity; MOST],
    ranges: usize,
    /// The APIC ID and the domain of each processor.
    processors: [(u32, u32); MOST],
    count: usize,
    distances: [[u8; MAX_NODES]; MAX_NODES],
}

impl NodeMap {
    /// Creates a map of a single node with all memory and all processors.
    #[must_use]
    pub const fn single() -> Self {
        let nothing = Affinity {
            start: 0,
            end: 0,
            domain: 0,
        };
        Self {
            domains: [0; MAX_NODES],
            nodes: 1,
            memory: [nothing; MOST],
            ranges: 0,
            processors: [(0, 0); MOST],
            count: 0,
            distances: [[0; MAX_NODES]; MAX_NODES],
        }
    }

    /// Reads the tables. `pointer` is the address of the root pointer; 0 if it is unknown. Returns a map of a single
    /// node if tables are missing or damaged, or if there are too many nodes.
    #[must_use]
    pub fn read(memory: &impl Memory, pointer: u64) -> Self {
        let Ok(affinity) = find(memory, pointer, b"SRAT") else {
            return Self::single();
        };
        let mut map = Self::single();
        map.nodes = 0;
        if map.read_affinity(affinity).is_none() || map.nodes == 0 || map.ranges == 0 {
            return Self::single();
        }
        let nodes = map.nodes;
        map.domains[..nodes].sort_unstable();
        if let Ok(localities) = find(memory, pointer, b"SLIT") {
            map.read_distances(localities);
        }
        map
    }

    /// Returns the number of nodes.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// Adds all ranges of memory and all processors of the affinity table. Returns `None` if there are too many of
    /// either.
    fn read_affinity(&mut self, table: &[u8]) -> Option<()> {
        /// Offset of the entries, after the header and reserved bytes.
        const ENTRIES_AT: usize = HEADER_LENGTH + 12;
        const ENABLED: u8 = 1;
        let mut rest = table.get(ENTRIES_AT..).unwrap_or(&[]);
        while let [kind, length, ..] = *rest {
            let Some((entry, next)) = rest.split_at_checked(usize::from(length.max(2))) else {
                break;
            };
            match kind {
                // A processor, identified by its local APIC ID.
                0 if entry.len() >= 16 && entry[4] & ENABLED != 0 => {
                    let high = number(&entry[9..12]) as u32;
                    self.add_processor(u32::from(entry[3]), u32::from(entry[2]) | high << 8)?;
                }
                1 if entry.len() >= 40 && entry[28] & ENABLED != 0 => {
                    let start = number(&entry[8..16]);
                    let length = number(&entry[16..24]);
                    self.add_memory(start, length, number(&entry[2..6]) as u32)?;
                }
                // A processor, identified by its local x2APIC ID.
                2 if entry.len() >= 24 && entry[12] & ENABLED != 0 => {
                    let id = number(&entry[8..12]) as u32;
                    self.add_processor(id, number(&entry[4..8]) as u32)?;
                }
                _ => {}
            }
            rest = next;
        }
        Some(())
    }

    fn add_processor(&mut self, id: u32, domain: u32) -> Option<()> {
        self.add_domain(domain)?;
        *self.processors.get_mut(self.count)? = (id, domain);
        self.count += 1;
        Some(())
    }

    fn add_memory(&mut self, start: u64, length: u64, domain: u32) -> Option<()> {
        if length == 0 {
            return Some(());
        }
        self.add_domain(domain)?;
        *self.memory.get_mut(self.ranges)? = Affinity {
            start,
            end: start.saturating_add(length),
            domain,
        };
        self.ranges += 1;
        Some(())
    }

    fn add_domain(&mut self, domain: u32) -> Option<()> {
        if self.domains[..self.nodes].contains(&domain) {
            return Some(());
        }
        *self.domains.get_mut(self.nodes)? = domain;
        self.nodes += 1;
        Some(())
    }

    fn read_distances(&mut self, table: &[u8]) {
        let Some(count) = table.get(HEADER_LENGTH..HEADER_LENGTH + 8) else {
            return;
        };
        let count = number(count) as usize;
        for from in 0..self.nodes {
            for to in 0..self.nodes {
                let (row, column) = (self.domains[from] as usize, self.domains[to] as usize);
                let place = row
                    .checked_mul(count)
                    .and_then(|place| place.checked_add(column));
                let place = place.and_then(|place| place.checked_add(HEADER_LENGTH + 8));
                let distance = place.and_then(|place| table.get(place));
                self.distances[from][to] = distance.copied().unwrap_or(0);
            }
        }
    }

    fn node_of_domain(&self, domain: u32) -> u8 {
        let known = &self.domains[..self.nodes];
        known.iter().position(|one| *one == domain).unwrap_or(0) as u8
    }

    /// Returns the node of the physical memory at `address`. Also returns the end of the range from `address` on that
    /// is entirely on this node.
    #[must_use]
    pub fn memory_at(&self, address: u64) -> (u8, u64) {
        let ranges = &self.memory[..self.ranges];
        let inside = |range: &&Affinity| range.start <= address && address < range.end;
        if let Some(range) = ranges.iter().find(inside) {
            return (self.node_of_domain(range.domain), range.end);
        }
        let next = ranges.iter().map(|range| range.start);
        let end = next.filter(|start| *start > address).min();
        (0, end.unwrap_or(u64::MAX))
    }

    /// Returns the topology for the memory manager. `apic_id` returns the APIC ID of a CPU from 0 to `cpus` - 1.
    #[must_use]
    pub fn topology(&self, cpus: usize, apic_id: impl Fn(usize) -> u32) -> Topology {
        let mut topology = Topology::new(self.nodes);
        for cpu in 0..cpus {
            let id = apic_id(cpu);
            let known = self.processors[..self.count].iter();
            let found = known.clone().find(|(one, _)| *one == id);
            let node = found.map_or(0, |(_, domain)| self.node_of_domain(*domain));
            topology.set_cpu(CpuId::new(cpu as u16), node);
        }
        for from in 0..self.nodes {
            for to in 0..self.nodes {
                // The distance of a node to itself is 10, and 255 means unreachable.
                if let distance @ Topology::LOCAL.. = self.distances[from][to] {
                    topology.set_distance(from as u8, to as u8, distance);
                }
            }
        }
        topology
    }
}

#[cfg(test)]
mod tests {
    use super::NodeMap;
    use crate::acpi::tests::Bios;
    use memwright_table::{CpuId, Topology};

    fn processor(id: u8, domain: u8) -> Vec<u8> {
        let mut entry = vec![0; 16];
        (entry[0], entry[1], entry[2], entry[3], entry[4]) = (0, 16, domain, id, 1);
        entry
    }

    fn x2_processor(id: u32, domain: u8) -> Vec<u8> {
        let mut entry = vec![0; 24];
        (entry[0], entry[1], entry[4], entry[12]) = (2, 24, domain, 1);
        entry[8..12].copy_from_slice(&id.to_le_bytes());
        entry
    }

    fn memory(start: u64, length: u64, domain: u8, flags: u8) -> Vec<u8> {
        let mut entry = vec![0; 40];
        (entry[0], entry[1], entry[2], entry[28]) = (1, 40, domain, flags);
        entry[8..16].copy_from_slice(&start.to_le_bytes());
        entry[16..24].copy_from_slice(&length.to_le_bytes());
        entry
    }

    fn affinity(entries: &[Vec<u8>]) -> Vec<u8> {
        [vec![0; 12], entries.concat()].concat()
    }

    fn localities(rows: &[&[u8]]) -> Vec<u8> {
        [&(rows.len() as u64).to_le_bytes()[..], &rows.concat()].concat()
    }

    #[test]
    fn nodes_have_memory_processors_and_distances() {
        let bios = Bios::with(&[
            (
                b"SRAT",
                affinity(&[
                    processor(0, 3),
                    x2_processor(300, 1),
                    memory(0, 0xa_0000, 1, 1),
                    memory(0x10_0000, 0x1000_0000, 1, 1),
                    memory(0x1010_0000, 0x1000_0000, 3, 1),
                    memory(0x8000_0000, 0x1000, 7, 0), // not enabled
                ]),
            ),
            (
                b"SLIT",
                localities(&[&[0; 4], &[0, 10, 0, 31], &[0; 4], &[0, 21, 0, 10]]),
            ),
        ]);
        let map = NodeMap::read(&bios, 0);
        assert_eq!(map.nodes(), 2);
        assert_eq!(map.memory_at(0x20_0000), (0, 0x1010_0000));
        assert_eq!(map.memory_at(0x1010_0000), (1, 0x2010_0000));
        assert_eq!(map.memory_at(0xb_0000), (0, 0x10_0000));
        assert_eq!(map.memory_at(0x9000_0000), (0, u64::MAX));
        let topology = map.topology(3, |cpu| [0, 300, 5][cpu]);
        let nodes = [0, 1, 2].map(|cpu| topology.node_of(CpuId::new(cpu)));
        assert_eq!(nodes, [1, 0, 0]);
        assert_eq!((topology.distance(0, 1), topology.distance(1, 0)), (31, 21));
        assert_eq!(topology.distance(1, 1), 10);
    }

    #[test]
    fn without_usable_tables_there_is_one_node() {
        let many: Vec<Vec<u8>> = (0..20).map(|one| memory(one, 1, one as u8, 1)).collect();
        for entries in [vec![], vec![processor(0, 0)], many] {
            let bios = Bios::with(&[(b"SRAT", affinity(&entries))]);
            assert_eq!(NodeMap::read(&bios, 0).nodes(), 1);
        }
        let map = NodeMap::read(&Bios::with(&[]), 0);
        assert_eq!(map.topology(1, |_| 0), Topology::new(1));
        assert_eq!(map.memory_at(0), (0, u64::MAX));
    }

    #[test]
    fn entries_that_leave_the_table_end_it() {
        let mut entries = vec![memory(0, 0x1000, 0, 1), memory(0x1000, 0x1000, 1, 1)];
        entries.push(vec![1, 40, 2]);
        let bios = Bios::with(&[(b"SRAT", affinity(&entries))]);
        assert_eq!(NodeMap::read(&bios, 0).nodes(), 2);
    }
}
