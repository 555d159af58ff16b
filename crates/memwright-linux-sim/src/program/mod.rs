//! The programs that run in user mode. Instead of instructions, a program has a list of operations, which are decoded
//! from arbitrary bytes.

mod recipes;
mod uapi;

/// The address of the first operation. Operations are two bytes apart, the length of the `syscall` instruction. To
/// restart a call, the kernel moves the instruction pointer back by two bytes, to the same operation.
pub const CODE: u64 = 0x40_0000;
/// The address of the program's data, which is mapped when the program starts ([`Argument::Data`]).
pub const DATA: u64 = 0x60_0000;
/// The size of the data in bytes.
pub const DATA_BYTES: u64 = 0x1_0000;
/// The start of the arena: the addresses at which programs map memory.
pub const ARENA: u64 = 0x20_0000_0000;

/// Names and paths that operations can use as arguments. Each has a slot of `NAME_ROOM` bytes at the start of the
/// program's data.
pub const NAMES: [&str; 44] = [
    "/",
    "/tmp",
    "/tmp/a",
    "/tmp/b",
    "/tmp/a/b",
    "a",
    ".",
    "..",
    "",
    "/dev/null",
    "/dev/zero",
    "/dev/shm/a",
    "/dev/userfaultfd",
    "/proc/self/maps",
    "/proc/self/smaps",
    "/proc/self/pagemap",
    "/proc/self/clear_refs",
    "/proc/self/mem",
    "/proc/self/status",
    "/proc/self/exe",
    "/proc/self/fd/1",
    "/proc/self/oom_score_adj",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/max_map_count",
    "/proc/meminfo",
    "/proc/vmstat",
    "/proc/1/stat",
    "/proc/swaps",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    "/sys/kernel/mm/ksm/run",
    "/program",
    "/dev/zram0",
    "/proc/self/smaps_rollup",
    "/proc/self/numa_maps",
    "/proc/kpageflags",
    "/proc/kpagecount",
    "/proc/sys/vm/overcommit_ratio",
    "/proc/sys/vm/nr_hugepages",
    "/proc/sys/vm/drop_caches",
    "/sys/kernel/mm/ksm/pages_to_scan",
    "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
    "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
    "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled",
];

/// The size in bytes of the slot of one name.
pub const NAME_ROOM: u64 = 64;

/// One argument of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// This number, as it is.
    Value(u64),
    /// An address in the program's data.
    Data(u16),
    /// An address in the arena: the number of a 4 KiB page, and an offset in bytes.
    Arena(u8, u16),
    /// The result of one of the last five calls. The number is taken modulo 5; 0 is the last call, 1 the one before it,
    /// and so on.
    Result(u8),
}

/// One operation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes the system call with this number.
    Call(u16, [Argument; 6]),
    /// Stores eight bytes.
    Store(Argument, u64),
    /// Loads eight bytes.
    Load(Argument),
    /// Raises the processor exception with this vector.
    Exception(u8),
}

/// The maximum number of operations of a program, which keeps a run short.
const MOST: usize = 256;

/// Decodes a program from bytes. All bytes are valid. The first operation maps the arena.
pub fn decode(bytes: &[u8]) -> Vec<Operation> {
    let mut bytes = Bytes(bytes);
    let mut operations = vec![recipes::arena()];
    while let Some(tag) = bytes.next().filter(|_| operations.len() < MOST) {
        if (49..200).contains(&tag) {
            recipes::cook(&mut bytes, &mut operations);
            continue;
        }
        operations.push(match tag {
            0..=31 => Operation::Store(bytes.argument(), bytes.number(8)),
            32..=47 => Operation::Load(bytes.argument()),
            48 => Operation::Exception(bytes.next().unwrap_or(6) % 32),
            _ => {
                // The number of the call has only one byte in the input, so an odd tag adds 256 to it.
                let number = u16::from(bytes.next().unwrap_or(0));
                let number = if tag & 1 == 0 { number } else { number + 256 };
                Operation::Call(number, std::array::from_fn(|_| bytes.argument()))
            }
        });
    }
    operations
}

/// The bytes that have not been decoded yet. After the last byte, numbers and arguments are zero.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Reads a little-endian number of `bytes` bytes.
    fn number(&mut self, bytes: u32) -> u64 {
        (0..bytes).fold(0, |number, place| {
            number | u64::from(self.next().unwrap_or(0)) << (8 * place)
        })
    }

    fn argument(&mut self) -> Argument {
        match self.next().unwrap_or(0) {
            tag @ 0..=127 => Argument::Value(u64::from(tag)),
            128..=159 => Argument::Value(self.number(1) << 12),
            160..=175 => Argument::Value(1 << (self.number(1) % 64)),
            176..=183 => Argument::Value(self.number(8)),
            184..=187 => Argument::Value(self.number(1).wrapping_neg()),
            188..=203 => Argument::Data((self.number(1) % NAMES.len() as u64 * NAME_ROOM) as u16),
            204..=219 => Argument::Data(self.number(2) as u16),
            220..=243 => {
                let page = self.number(1) as u8;
                // Only one page number in four has an offset, so most addresses are page-aligned.
                let odd = page & 0xc0 == 0xc0;
                let offset = if odd { self.number(2) as u16 } else { 0 };
                Argument::Arena(page & 0x3f, offset)
            }
            244..=255 => Argument::Result(self.number(1) as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_a_program_and_the_same_bytes_the_same() {
        let mut bytes = Vec::new();
        for round in 0..40u32 {
            bytes.extend((0..60).map(|place| (round * 97 + place * 31) as u8));
            let operations = decode(&bytes);
            assert!(operations.len() > 1 && operations.len() < MOST + 16);
            assert_eq!(operations, decode(&bytes));
        }
        assert_eq!(decode(&[]), [recipes::arena()]);
        let getpid = [200, 39, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            decode(&getpid)[1..],
            [Operation::Call(39, [Argument::Value(0); 6])]
        );
    }
}
