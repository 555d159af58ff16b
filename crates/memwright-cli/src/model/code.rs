//! The addresses of the code of a kernel that runs without a program.

use std::ops::Range;

/// The entry point of a kernel, and the addresses at which it is loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Code {
    /// The address of the first instruction, at which paging is off.
    pub entry: u64,
    /// The physical and virtual address ranges into which the image is loaded, in ascending order.
    pub ranges: Vec<Range<u64>>,
}

impl Code {
    /// Returns whether an instruction at `address` is the kernel's. It is if the address is in the upper half, or where
    /// the kernel is loaded.
    pub fn has(&self, address: u64) -> bool {
        address >> 63 != 0 || self.ranges.iter().any(|range| range.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_half_is_always_the_kernels() {
        let code = Code {
            entry: 0x10_0000,
            ranges: vec![0x10_0000..0x10_2000, 0xc010_0000..0xc010_2000],
        };
        for (address, expected) in [
            (0xf_ffff, false),
            (0x10_0000, true),
            (0x10_1fff, true),
            (0x10_2000, false),
            (0xc010_1000, true),
            (0xffff_ffff_8000_0000, true),
        ] {
            assert_eq!(code.has(address), expected, "{address:x}");
        }
        assert!(!Code::default().has(0x10_0000));
    }
}
