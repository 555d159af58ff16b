//! Marks of a region of interest: `memwright run --kernel` counts between them, from outside; they have no effect on
//! the program.
//!
//! A mark is the 7-byte NOP with a 32-bit displacement that `include/memwright/mark.h` describes. On processors other
//! than x86-64 it is empty. A region may be executed many times, and regions may be nested.
//!
//! ```
//! memwright_mark::begin::<1>();
//! let sum: u64 = (0..1000).sum();
//! memwright_mark::end::<1>();
//! assert_eq!(sum, 499_500);
//! ```
#![no_std]

/// The largest number of a region that a program may use.
pub const LARGEST_REGION: u16 = 32_766;

/// Marks the beginning of a region. The compiler does not move memory accesses across it.
#[inline(always)]
pub fn begin<const REGION: u16>() {
    const { assert!(REGION <= LARGEST_REGION) }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a NOP changes neither registers nor flags nor memory.
    unsafe {
        core::arch::asm!(
            ".byte 0x0f, 0x1f, 0x80",
            ".long {code}",
            code = const 0x4d57_0000 | (REGION as u32) << 1,
            options(nostack, preserves_flags)
        );
    }
}

/// Marks the end of a region. The compiler does not move memory accesses across it.
#[inline(always)]
pub fn end<const REGION: u16>() {
    const { assert!(REGION <= LARGEST_REGION) }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a NOP changes neither registers nor flags nor memory.
    unsafe {
        core::arch::asm!(
            ".byte 0x0f, 0x1f, 0x80",
            ".long {code}",
            code = const 0x4d57_0000 | (REGION as u32) << 1 | 1,
            options(nostack, preserves_flags)
        );
    }
}
