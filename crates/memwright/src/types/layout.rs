//! The addresses that an address space may use.

use memwright_table::{Architecture, PAGE_SIZE, VirtAddr};

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
    /// The layout of a process on the architecture `A`: all user memory except its first 64 KiB. The upper 256 MiB are for
    /// stacks: without a hint, areas are mapped below them.
    #[must_use]
    pub const fn of<A: Architecture>() -> Self {
        let highest = A::USER.end.address();
        // User memory ends one page before a power of two.
        let end = highest.as_u64() + PAGE_SIZE as u64;
        Self {
            lowest: VirtAddr::new(64 << 10),
            mmap_top: VirtAddr::new(end - (256 << 20)),
            highest,
        }
    }

    /// Whether the addresses are multiples of the page size, at most `end`, and in ascending order. At least one page is
    /// mappable. `end` is the first address beyond user memory.
    pub(crate) const fn is_valid(&self, end: VirtAddr) -> bool {
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
            && highest <= end.as_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;
    use memwright_table::{Riscv64Sv39, VirtAddr, X86_64};

    #[test]
    fn layouts_of_architectures() {
        let of_four_levels = Layout {
            lowest: VirtAddr::new(0x1_0000),
            mmap_top: VirtAddr::new(0x7fff_f000_0000),
            highest: VirtAddr::USER_END,
        };
        assert_eq!(Layout::of::<X86_64>(), of_four_levels);
        let of_three_levels = Layout {
            mmap_top: VirtAddr::new(0x3f_f000_0000),
            highest: VirtAddr::new(0x3f_ffff_f000),
            ..of_four_levels
        };
        assert_eq!(Layout::of::<Riscv64Sv39>(), of_three_levels);
        assert!(of_three_levels.is_valid(of_three_levels.highest));
        assert!(!of_four_levels.is_valid(of_three_levels.highest));
    }

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
            assert_eq!(layout.is_valid(VirtAddr::USER_END), valid, "{name}");
        }
    }
}
