//! Types for addresses, pages and frames, so that the compiler rejects code that confuses one with another.

use core::fmt;

/// The size in bytes of the smallest page and of a frame.
pub const PAGE_SIZE: usize = 4096;
/// The base-2 logarithm of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// The maximum number of CPUs of a machine.
pub const MAX_CPUS: usize = 64;

/// A virtual address: any 64-bit value, canonical or not, mapped or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VirtAddr(u64);

impl VirtAddr {
    /// The first address beyond user memory if page tables have four levels, as on x86-64, on AArch64, and
    /// on RISC-V with Sv48. User memory of Sv39 ends lower: code for any architecture uses
    /// [`Architecture::USER`](crate::Architecture::USER). The last page of the lower half stays unused, as on Linux
    /// (`TASK_SIZE_MAX`, 7.2).
    pub const USER_END: VirtAddr = VirtAddr(0x7fff_ffff_f000);

    /// The address `value`.
    #[inline]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The address as a number.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The page that contains the address.
    #[inline]
    pub const fn page(self) -> Page {
        Page(self.0 >> PAGE_SHIFT)
    }

    /// The offset of the address in its page, in bytes.
    #[inline]
    pub const fn offset(self) -> usize {
        (self.0 & (PAGE_SIZE as u64 - 1)) as usize
    }

    /// Whether the address is the first of a page.
    #[inline]
    pub const fn is_aligned(self) -> bool {
        self.offset() == 0
    }

    /// Returns the address plus `bytes`, or `None` if the sum overflows.
    #[inline]
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }
}

impl fmt::Debug for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A physical address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PhysAddr(u64);

impl PhysAddr {
    /// The address `value`.
    #[inline]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The address as a number.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The frame that contains the address.
    ///
    /// # Panics
    /// If the address is beyond the 16 TiB that frame numbers cover.
    #[inline]
    pub const fn frame(self) -> Frame {
        let number = self.0 >> PAGE_SHIFT;
        assert!(
            number <= u32::MAX as u64,
            "the physical address is not below 16 TiB"
        );
        Frame(number as u32)
    }
}

impl fmt::Debug for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The number of a frame of physical memory. Owning a number does not own the frame or hold a reference to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Frame(u32);

impl Frame {
    /// The frame with this number.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number of the frame: its physical address divided by [`PAGE_SIZE`].
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The physical address of the first byte of the frame.
    #[inline]
    pub const fn address(self) -> PhysAddr {
        PhysAddr((self.0 as u64) << PAGE_SHIFT)
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {:#x}", self.0)
    }
}

/// A range of consecutive frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRange {
    /// The first frame.
    pub start: Frame,
    /// The number of frames.
    pub count: u32,
}

impl FrameRange {
    /// The number of the last frame plus 1.
    #[inline]
    pub const fn end_number(self) -> u64 {
        self.start.0 as u64 + self.count as u64
    }

    /// Whether the range contains `frame`.
    #[inline]
    pub const fn contains(self, frame: Frame) -> bool {
        frame.0 >= self.start.0 && (frame.0 as u64) < self.end_number()
    }

    /// Whether all of `other` is inside the range.
    #[inline]
    pub const fn covers(self, other: FrameRange) -> bool {
        other.start.0 >= self.start.0 && other.end_number() <= self.end_number()
    }
}

/// A page of virtual memory, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Page(u64);

impl Page {
    /// The page with this number.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of the page: its virtual address divided by [`PAGE_SIZE`].
    #[inline]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The address of the first byte of the page.
    #[inline]
    pub const fn address(self) -> VirtAddr {
        VirtAddr(self.0 << PAGE_SHIFT)
    }

    /// Returns the page that is `pages` pages after this one.
    #[inline]
    #[must_use]
    pub const fn add(self, pages: u64) -> Self {
        Self(self.0 + pages)
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {:#x}", self.0)
    }
}

/// The pages from `start` up to but not including `end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PageRange {
    /// The first page.
    pub start: Page,
    /// The page after the last.
    pub end: Page,
}

impl PageRange {
    /// Creates the range from `start` up to but not including `end`. The range is empty if `end` is not after `start`.
    #[inline]
    pub const fn new(start: Page, end: Page) -> Self {
        let end = if end.0 < start.0 { start } else { end };
        Self { start, end }
    }

    /// Returns the pages that contain the `length` bytes from `address` on, or `None` if these bytes wrap around the
    /// address space.
    pub const fn from_addresses(address: VirtAddr, length: u64) -> Option<Self> {
        if length == 0 {
            return Some(Self::new(address.page(), address.page()));
        }
        match address.checked_add(length - 1) {
            Some(last) => Some(Self::new(address.page(), last.page().add(1))),
            None => None,
        }
    }

    /// Creates the range of the single page `page`.
    #[inline]
    pub const fn single(page: Page) -> Self {
        Self::new(page, page.add(1))
    }

    /// The number of pages.
    #[inline]
    pub const fn len(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether the range is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.end.0 <= self.start.0
    }

    /// Whether the range contains `page`.
    #[inline]
    pub const fn contains(self, page: Page) -> bool {
        page.0 >= self.start.0 && page.0 < self.end.0
    }

    /// Whether all of `other` is inside the range.
    #[inline]
    pub const fn covers(self, other: PageRange) -> bool {
        other.is_empty() || (other.start.0 >= self.start.0 && other.end.0 <= self.end.0)
    }

    /// Returns the pages that are in both ranges.
    #[inline]
    #[must_use]
    pub const fn intersect(self, other: PageRange) -> Self {
        let start = if self.start.0 > other.start.0 {
            self.start
        } else {
            other.start
        };
        let end = if self.end.0 < other.end.0 {
            self.end
        } else {
            other.end
        };
        Self::new(start, end)
    }

    /// Iterates over the pages in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Page> {
        (self.start.0..self.end.0).map(Page)
    }
}

impl fmt::Debug for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pages {:#x}..{:#x}", self.start.0, self.end.0)
    }
}

/// The size of the page that a leaf entry maps.
// The value of a variant is the number of levels by which its table is above the lowest table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PageSize {
    /// 4 KiB: one frame.
    Size4K = 0,
    /// 2 MiB: 512 frames.
    Size2M = 1,
    /// 1 GiB: 262,144 frames.
    Size1G = 2,
}

impl PageSize {
    /// The size in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.pages() << PAGE_SHIFT
    }

    /// The size in pages of 4 KiB.
    #[inline]
    pub const fn pages(self) -> u64 {
        1 << (9 * self.level_above_leaf())
    }

    /// The buddy order of a page of this size.
    #[inline]
    pub const fn order(self) -> u8 {
        9 * self.level_above_leaf()
    }

    /// The number of levels by which the table with entries of this size is above the lowest table: 0 for 4 KiB, 1 for
    /// 2 MiB, 2 for 1 GiB.
    #[inline]
    pub(crate) const fn level_above_leaf(self) -> u8 {
        self as u8
    }
}

/// A CPU, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuId(u16);

impl CpuId {
    /// The CPU with this number.
    ///
    /// # Panics
    /// If the number is not below [`MAX_CPUS`].
    #[inline]
    pub const fn new(number: u16) -> Self {
        let is_known = (number as usize) < MAX_CPUS;
        assert!(is_known, "the CPU number is not below 64");
        Self(number)
    }

    /// The CPU with this number, without a check that can panic. The machine must number its CPUs below [`MAX_CPUS`]; a
    /// larger number is reduced modulo [`MAX_CPUS`].
    #[inline(always)]
    pub const fn known(number: u32) -> Self {
        Self((number % MAX_CPUS as u32) as u16)
    }

    /// The number of the CPU, for use as an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuSet(u64);

impl CpuSet {
    /// No CPU.
    pub const EMPTY: CpuSet = CpuSet(0);

    /// The set of the CPUs whose bits are set in `bits`. Bit `n` stands for CPU `n`.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The set as a bit mask.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The set with `cpu` as its only member.
    #[inline]
    pub const fn single(cpu: CpuId) -> Self {
        Self(1 << cpu.0)
    }

    /// Whether the set has no member.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set has more than one member.
    #[inline]
    pub const fn has_several(self) -> bool {
        self.0 & self.0.wrapping_sub(1) != 0
    }

    /// The number of members.
    #[inline]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether `cpu` is a member.
    #[inline]
    pub const fn contains(self, cpu: CpuId) -> bool {
        self.0 & (1 << cpu.0) != 0
    }

    /// The set with `cpu` added.
    #[inline]
    #[must_use]
    pub const fn with(self, cpu: CpuId) -> Self {
        Self(self.0 | (1 << cpu.0))
    }

    /// The set without `cpu`.
    #[inline]
    #[must_use]
    pub const fn without(self, cpu: CpuId) -> Self {
        Self(self.0 & !(1 << cpu.0))
    }

    /// Iterates over the members in ascending order.
    pub fn iter(self) -> impl Iterator<Item = CpuId> {
        (0..MAX_CPUS as u16)
            .filter(move |n| self.0 & (1 << n) != 0)
            .map(CpuId)
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(CpuId::index))
            .finish()
    }
}
