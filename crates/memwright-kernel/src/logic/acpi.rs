//! Finds the CPUs in the multiple APIC description table (ACPI 6.5, 5.2.12), which it finds through the root system
//! description pointer (5.2.5).
//!
//! The firmware's tables are not trusted: every access is checked to be in readable memory, and every checksum is
//! verified.

/// Reads physical memory.
pub trait Memory {
    /// Returns the `length` bytes at the physical address `address`; `None` if they cannot be read.
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]>;
}

/// The maximum number of CPUs that the kernel uses.
pub const MOST_CPUS: usize = memwright_table::addr::MAX_CPUS;

/// The APIC IDs of the enabled processors, in the table's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApicIds {
    ids: [u32; MOST_CPUS],
    count: usize,
    /// The number of enabled processors beyond the first [`MOST_CPUS`].
    pub left_out: usize,
}

impl ApicIds {
    const NONE: Self = Self {
        ids: [0; MOST_CPUS],
        count: 0,
        left_out: 0,
    };

    /// Creates a list that contains only the processor with the APIC ID `id`.
    pub fn single(id: u32) -> Self {
        Self::NONE.with_first(id)
    }

    /// Returns the IDs in order.
    pub fn as_slice(&self) -> &[u32] {
        &self.ids[..self.count]
    }

    fn add(&mut self, id: u32) {
        // The table can list a processor twice: as a local APIC and as a local x2APIC.
        if self.as_slice().contains(&id) {
            return;
        }
        match self.ids.get_mut(self.count) {
            Some(slot) => {
                *slot = id;
                self.count += 1;
            }
            None => self.left_out += 1,
        }
    }

    /// Returns the IDs with `first` in front. `first` is the ID of the calling processor, which the table may lack.
    pub fn with_first(&self, first: u32) -> Self {
        let mut ordered = Self::NONE;
        ordered.add(first);
        for &id in self.as_slice() {
            ordered.add(id);
        }
        ordered.left_out += self.left_out;
        ordered
    }
}

/// The reason why the processors could not be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcpiError {
    /// No root system description pointer with a valid checksum was found.
    NoPointer,
    /// The table at the contained address is unreadable or too short, or its checksum is wrong.
    Damaged(u64),
    /// The required table was not found.
    NoTable,
}

/// The addresses at which a BIOS stores the root pointer, which is aligned to 16 bytes.
const BIOS_AREA: core::ops::Range<u64> = 0xe_0000..0x10_0000;
/// The length in bytes of the first version of the root pointer. Its first checksum covers this length.
const ROOT_POINTER_LENGTH: usize = 20;
/// Length in bytes of the header of every table.
pub(crate) const HEADER_LENGTH: usize = 36;
/// The maximum length in bytes of a table that is accepted.
const LONGEST: usize = 1 << 20;
/// The offset of the entries in the table. They follow the header, the local APIC address and the flags.
const ENTRIES_AT: usize = HEADER_LENGTH + 8;

/// Lists the enabled processors. `pointer` is the address of the root pointer; 0 if it is unknown.
///
/// # Errors
/// If a required table is missing or damaged.
pub fn processors(memory: &impl Memory, pointer: u64) -> Result<ApicIds, AcpiError> {
    Ok(enabled(find(memory, pointer, b"APIC")?))
}

/// Finds the table `name`, verifies its checksum, and returns it.
pub(crate) fn find<'a>(
    memory: &'a impl Memory,
    pointer: u64,
    name: &[u8; 4],
) -> Result<&'a [u8], AcpiError> {
    let root = root_table(memory, pointer).ok_or(AcpiError::NoPointer)?;
    let description = table(memory, root)?;
    // The extended root table, "XSDT", contains 64-bit addresses.
    let width = if description.starts_with(b"XSDT") {
        8
    } else {
        4
    };
    for address in description[HEADER_LENGTH..].chunks_exact(width) {
        let address = number(address);
        if memory.bytes(address, 4) == Some(name) {
            return table(memory, address);
        }
    }
    Err(AcpiError::NoTable)
}

/// Finds a valid root pointer, and returns the address of the root table that it contains.
fn root_table(memory: &impl Memory, pointer: u64) -> Option<u64> {
    if pointer != 0 {
        return root_pointer(memory, pointer);
    }
    BIOS_AREA
        .step_by(16)
        .find_map(|address| root_pointer(memory, address))
}

fn root_pointer(memory: &impl Memory, address: u64) -> Option<u64> {
    let bytes = memory.bytes(address, ROOT_POINTER_LENGTH)?;
    if !bytes.starts_with(b"RSD PTR ") || sum(bytes) != 0 {
        return None;
    }
    let revision = bytes[15];
    // From its second revision on, the root pointer also contains the address of the extended root table.
    let extended = (revision >= 2)
        .then(|| memory.bytes(address, 36))
        .flatten()
        .filter(|bytes| sum(bytes) == 0)
        .map(|bytes| number(&bytes[24..32]))
        .filter(|&table| table != 0);
    Some(extended.unwrap_or_else(|| number(&bytes[16..20])))
}

/// Verifies the checksum of the table at `address`, and returns the table.
fn table(memory: &impl Memory, address: u64) -> Result<&[u8], AcpiError> {
    let damaged = AcpiError::Damaged(address);
    let header = memory.bytes(address, HEADER_LENGTH).ok_or(damaged)?;
    let length = number(&header[4..8]) as usize;
    if !(HEADER_LENGTH..=LONGEST).contains(&length) {
        return Err(damaged);
    }
    memory
        .bytes(address, length)
        .filter(|bytes| sum(bytes) == 0)
        .ok_or(damaged)
}

/// Returns the enabled processors of a multiple APIC description table.
fn enabled(table: &[u8]) -> ApicIds {
    const ENABLED: u8 = 1;
    let mut ids = ApicIds::NONE;
    let mut rest = table.get(ENTRIES_AT..).unwrap_or(&[]);
    while let [kind, length, ..] = *rest {
        let Some((entry, next)) = rest.split_at_checked(usize::from(length.max(2))) else {
            break;
        };
        match (kind, entry) {
            // Type 0 is a local APIC, and type 9 is a local x2APIC with a 32-bit ID.
            (0, &[_, _, _, id, flags, ..]) if flags & ENABLED != 0 => ids.add(u32::from(id)),
            (9, &[_, _, _, _, a, b, c, d, flags, ..]) if flags & ENABLED != 0 => {
                ids.add(u32::from_le_bytes([a, b, c, d]));
            }
            _ => {}
        }
        rest = next;
    }
    ids
}

/// Reads a little-endian number of at most eight bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, &byte| sum.wrapping_add(byte))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{AcpiError, HEADER_LENGTH, Memory, processors, sum};

    /// Physical memory that starts at address 0xe0000.
    pub(crate) struct Bios(Vec<u8>);

    const BASE: u64 = 0xe_0000;
    const ROOT: u64 = BASE + 0x100;
    const APIC: u64 = BASE + 0x200;

    impl Memory for Bios {
        fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
            let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
            self.0.get(start..start.checked_add(length)?)
        }
    }

    impl Bios {
        /// Creates memory that contains `tables`, each with a name and a body.
        pub(crate) fn with(tables: &[(&[u8; 4], Vec<u8>)]) -> Self {
            let mut bios = Self(vec![0; 0x4000]);
            bios.put(BASE + 0x20, &root_pointer(ROOT));
            let mut at = ROOT + 0x100;
            let mut addresses = Vec::new();
            for (name, body) in tables {
                let whole = table(name, body);
                bios.put(at, &whole);
                addresses.extend((at as u32).to_le_bytes());
                at += whole.len() as u64;
            }
            bios.put(ROOT, &table(b"RSDT", &addresses));
            bios
        }

        fn put(&mut self, address: u64, bytes: &[u8]) {
            let start = (address - BASE) as usize;
            self.0[start..start + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Builds a table with a header and a valid checksum.
    fn table(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let mut table = vec![0; HEADER_LENGTH];
        table.extend_from_slice(body);
        table[..4].copy_from_slice(name);
        let length = (table.len() as u32).to_le_bytes();
        table[4..8].copy_from_slice(&length);
        table[9] = 0u8.wrapping_sub(sum(&table));
        table
    }

    fn root_pointer(root: u64) -> Vec<u8> {
        let mut pointer = b"RSD PTR \0MEMWRI\0".to_vec();
        pointer.extend_from_slice(&(root as u32).to_le_bytes());
        pointer[8] = 0u8.wrapping_sub(sum(&pointer));
        pointer
    }

    /// Builds the body of a table of processors from its entries.
    fn body(entries: &[&[u8]]) -> Vec<u8> {
        [&[0, 0, 0xe0, 0xfe, 1, 0, 0, 0][..], &entries.concat()].concat()
    }

    fn bios(entries: &[&[u8]]) -> Bios {
        let mut bios = Bios(vec![0; 0x1000]);
        bios.put(BASE + 0x20, &root_pointer(ROOT));
        bios.put(ROOT, &table(b"RSDT", &(APIC as u32).to_le_bytes()));
        bios.put(APIC, &table(b"APIC", &body(entries)));
        bios
    }

    #[test]
    fn enabled_processors_are_listed_once() {
        let found = processors(
            &bios(&[
                &[0, 8, 0, 0, 1, 0, 0, 0],
                &[1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0], // an I/O APIC
                &[0, 8, 1, 4, 1, 0, 0, 0],
                &[0, 8, 2, 6, 0, 0, 0, 0], // not enabled
                &[9, 16, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
                &[9, 16, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], // the second processor again
            ]),
            0,
        )
        .unwrap();
        assert_eq!(found.as_slice(), [0, 4, 256]);
        assert_eq!(found.with_first(4).as_slice(), [4, 0, 256]);
        assert_eq!(found.with_first(9).as_slice(), [9, 0, 4, 256]);
    }

    #[test]
    fn more_than_can_be_kept_are_counted() {
        let entries: Vec<[u8; 8]> = (0..70).map(|id| [0, 8, id, id, 1, 0, 0, 0]).collect();
        let entries: Vec<&[u8]> = entries.iter().map(|entry| &entry[..]).collect();
        let found = processors(&bios(&entries), 0).unwrap();
        assert_eq!((found.as_slice().len(), found.left_out), (64, 6));
    }

    #[test]
    fn entries_that_leave_the_table_end_the_list() {
        for last in [&[0u8, 8, 1][..], &[0, 0, 1, 1, 1], &[0, 4, 1, 1], &[0]] {
            let found = processors(&bios(&[&[0, 8, 0, 3, 1, 0, 0, 0], last]), 0).unwrap();
            assert_eq!(found.as_slice(), [3], "after {last:?}");
        }
    }

    #[test]
    fn the_extended_table_is_preferred() {
        let mut bios = bios(&[&[0, 8, 0, 5, 1, 0, 0, 0]]);
        let mut pointer = root_pointer(0);
        pointer[15] = 2;
        pointer[8] = 0;
        pointer[8] = 0u8.wrapping_sub(sum(&pointer));
        pointer.extend_from_slice(&36u32.to_le_bytes());
        pointer.extend_from_slice(&ROOT.to_le_bytes());
        pointer.extend_from_slice(&[0; 4]);
        pointer[32] = 0u8.wrapping_sub(sum(&pointer));
        bios.put(BASE + 0x40, &pointer);
        bios.put(ROOT, &table(b"XSDT", &APIC.to_le_bytes()));
        let found = processors(&bios, BASE + 0x40).unwrap();
        assert_eq!(found.as_slice(), [5]);
    }

    #[test]
    fn damage_is_an_error() {
        let whole = || bios(&[&[0, 8, 0, 0, 1, 0, 0, 0]]);
        type Damage = fn(&mut Bios);
        let cases: [(Damage, AcpiError); 6] = [
            (|bios| bios.put(BASE + 0x20, b"X"), AcpiError::NoPointer),
            (|bios| bios.put(BASE + 0x30, &[1]), AcpiError::NoPointer),
            (|bios| bios.put(ROOT + 10, b"X"), AcpiError::Damaged(ROOT)),
            (|bios| bios.put(ROOT + 6, &[255]), AcpiError::Damaged(ROOT)),
            (|bios| bios.put(APIC + 10, b"X"), AcpiError::Damaged(APIC)),
            (|bios| bios.put(APIC, b"FACP"), AcpiError::NoTable),
        ];
        for (damage, expected) in cases {
            let mut bios = whole();
            damage(&mut bios);
            assert_eq!(processors(&bios, 0), Err(expected));
        }
        assert_eq!(processors(&Bios(Vec::new()), 0), Err(AcpiError::NoPointer));
        assert_eq!(processors(&whole(), u64::MAX), Err(AcpiError::NoPointer));
    }
}
