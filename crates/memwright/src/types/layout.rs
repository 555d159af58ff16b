//! The addresses that an address space may use.

use memwright_table::{Architecture, PAGE_SIZE, VirtAddr};

use crate::types::error_text::error_text;

/// The rule that a [`Layout`] breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// An address is not a multiple of the page size.
    Misaligned(VirtAddr),
    /// `mmap_top` is below `lowest` or above `highest`.
    TopOutside(VirtAddr),
    /// `lowest` is not below `highest`, so no page is mappable.
    Empty(VirtAddr),
    /// `highest` is above the end of user memory, which depends on the architecture.
    BeyondUser {
        /// The `highest` address of the layout.
        highest: VirtAddr,
        /// The first address beyond user memory.
        end: VirtAddr,
    },
}

error_text!(LayoutError {
    Self::Misaligned(address) => "the layout has the address {address}, which is not a multiple of the page size";
    Self::TopOutside(top) => "`mmap_top` of the layout is {top}, which is not between `lowest` and `highest`";
    Self::Empty(highest) => "`highest` of the layout is {highest}, which is not above `lowest`";
    Self::BeyondUser { highest, end } => "`highest` of the layout is {highest}, but user memory ends at {end}";
});

/// The addresses at which areas may be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The lowest mappable address (`vm.mmap_min_addr`).
    pub lowest: VirtAddr,
    /// The address from which get_unmapped_area searches downwards if there is no hint.
    pub mmap_top: VirtAddr,
    /// The first address past the mappable range. It is at most the end of user memory, which is
    /// `A::USER.end.address()` for the architecture `A`: one page below 2^47 on x86-64.
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

    /// Checks that the addresses are multiples of the page size, at most `end`, and in ascending order, and that at least
    /// one page is mappable. `end` is the first address beyond user memory.
    pub(crate) fn check(&self, end: VirtAddr) -> Result<(), LayoutError> {
        let Self {
            lowest,
            mmap_top,
            highest,
        } = *self;
        for address in [lowest, mmap_top, highest] {
            if !address.is_aligned() {
                return Err(LayoutError::Misaligned(address));
            }
        }
        if lowest >= highest {
            Err(LayoutError::Empty(highest))
        } else if mmap_top < lowest || mmap_top > highest {
            Err(LayoutError::TopOutside(mmap_top))
        } else if highest > end {
            Err(LayoutError::BeyondUser { highest, end })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, LayoutError};
    use memwright_table::{Riscv64Sv39, VirtAddr, X86_64};
    use std::string::ToString;

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
        let end = of_three_levels.highest;
        assert_eq!(of_three_levels.check(end), Ok(()));
        let error = LayoutError::BeyondUser {
            highest: of_four_levels.highest,
            end,
        };
        assert_eq!(of_four_levels.check(end), Err(error));
        assert_eq!(
            error.to_string(),
            "`highest` of the layout is 0x7ffffffff000, but user memory ends at 0x3ffffff000"
        );
    }

    #[test]
    fn layouts() {
        let end = VirtAddr::USER_END.as_u64();
        let at = VirtAddr::new;
        #[rustfmt::skip]
        let table = [
            ([0x1_0000, 0x7fff_f000_0000, end], Ok(())),
            ([0, end, end], Ok(())),
            ([0x1000, 0x1000, 0x2000], Ok(())),
            ([0x1000, 0x1000, 0x1000], Err(LayoutError::Empty(at(0x1000)))),
            ([0x2000, 0x2000, 0x1000], Err(LayoutError::Empty(at(0x1000)))),
            ([0x2000, 0x1000, 0x4000], Err(LayoutError::TopOutside(at(0x1000)))),
            ([0x1000, 0x5000, 0x4000], Err(LayoutError::TopOutside(at(0x5000)))),
            ([0x1001, 0x2000, 0x4000], Err(LayoutError::Misaligned(at(0x1001)))),
            ([0x1000, 0x2001, 0x4000], Err(LayoutError::Misaligned(at(0x2001)))),
            ([0x1000, 0x2000, 0x4001], Err(LayoutError::Misaligned(at(0x4001)))),
            (
                [0x1000, 0x2000, end + 0x1000],
                Err(LayoutError::BeyondUser { highest: at(end + 0x1000), end: at(end) }),
            ),
        ];
        for (addresses, expected) in table {
            let [lowest, mmap_top, highest] = addresses.map(VirtAddr::new);
            let layout = Layout {
                lowest,
                mmap_top,
                highest,
            };
            assert_eq!(layout.check(VirtAddr::USER_END), expected);
        }
    }
}
