//! The addresses that an address space may use.

use memwright_table::VirtAddr;

/// The addresses at which areas may be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The lowest mappable address (`vm.mmap_min_addr`).
    pub lowest: VirtAddr,
    /// The address from which get_unmapped_area searches downwards if there is no hint.
    pub mmap_top: VirtAddr,
    /// The first address past the mappable range.
    pub highest: VirtAddr,
}

impl Layout {
    /// Whether the addresses are multiples of the page size, in user memory, and in ascending order. At least one page
    /// is mappable.
    pub(crate) const fn is_valid(&self) -> bool {
        let (lowest, top, highest) = (
            self.lowest.as_u64(),
            self.mmap_top.as_u64(),
            self.highest.as_u64(),
        );
        self.lowest.is_aligned()
            && self.mmap_top.is_aligned()
            && self.highest.is_aligned()
            && lowest < highest
            && lowest <= top
            && top <= highest
            && highest <= VirtAddr::USER_END.as_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;
    use memwright_table::VirtAddr;

    #[test]
    fn layouts() {
        let end = VirtAddr::USER_END.as_u64();
        let table = [
            ("usual", [0x1_0000, 0x7fff_f000_0000, end], true),
            ("everything", [0, end, end], true),
            ("one page, no gap below", [0x1000, 0x1000, 0x2000], true),
            ("empty", [0x1000, 0x1000, 0x1000], false),
            ("upside down", [0x2000, 0x2000, 0x1000], false),
            ("top below the lowest", [0x2000, 0x1000, 0x4000], false),
            ("top above the highest", [0x1000, 0x5000, 0x4000], false),
            ("lowest unaligned", [0x1001, 0x2000, 0x4000], false),
            ("top unaligned", [0x1000, 0x2001, 0x4000], false),
            ("highest unaligned", [0x1000, 0x2000, 0x4001], false),
            ("kernel memory", [0x1000, 0x2000, end + 0x1000], false),
        ];
        for (name, [lowest, top, highest], valid) in table {
            let layout = Layout {
                lowest: VirtAddr::new(lowest),
                mmap_top: VirtAddr::new(top),
                highest: VirtAddr::new(highest),
            };
            assert_eq!(layout.is_valid(), valid, "{name}");
        }
    }
}
