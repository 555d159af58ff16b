//! Marks of a region of interest, between which `memwright run --kernel` counts. QEMU detects the marks, which have no
//! effect on the program.
//!
//! A mark is the 7-byte NOP with a 32-bit displacement that `include/memwright/mark.h` describes. On architectures
//! other than x86-64, the functions do nothing. A region may be executed many times, and regions may be nested.
//!
//! ```
//! # #![allow(clippy::needless_doctest_main)]
//! memwright_mark::name!(1, "sum");
//!
//! fn main() {
//!     memwright_mark::begin::<1>();
//!     let sum: u64 = (0..1000).sum();
//!     memwright_mark::end::<1>();
//!     assert_eq!(sum, 499_500);
//! }
//! ```
#![no_std]
#![deny(missing_docs)]

/// The largest number that a program may give a region.
pub const LARGEST_REGION: u16 = 32_766;

/// Marks the beginning of a region. The compiler does not move memory accesses across the mark.
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

/// Marks the end of a region. The compiler does not move memory accesses across the mark.
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

/// Names a region in every report. `name!(1, "toggle");` must be among the items of a module, not in a function.
///
/// The region must be a constant, and the name a string literal: a letter, then up to 63 letters, digits, `_` or `-`.
/// Anything else does not compile. The command rejects two names for one region, and one name for two regions.
///
/// A name adds no instruction and is not loaded into memory. It is an entry of the section `.memwright.regions`, which
/// is not allocated, in the format that `include/memwright/mark.h` describes.
///
/// ```compile_fail
/// memwright_mark::name!(1, "a name");
/// ```
/// ```compile_fail
/// memwright_mark::name!(32767, "name");
/// ```
#[macro_export]
macro_rules! name {
    ($region:expr, $name:literal) => {
        const _: () = {
            assert!(
                $region <= $crate::LARGEST_REGION,
                "the largest region is 32766"
            );
            assert!(
                $crate::is_name($name),
                "a name is a letter, then up to 63 letters, digits, _ and -"
            );
        };
        #[cfg(target_arch = "x86_64")]
        ::core::arch::global_asm!(
            ".pushsection .memwright.regions,\"\",@progbits",
            ".long {region}",
            concat!(".asciz \"", $name, "\""),
            ".popsection",
            region = const $region,
        );
    };
}

/// Returns whether a text is valid as a region's name.
#[doc(hidden)]
#[must_use]
pub const fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.is_empty() || bytes.len() > 64 || !bytes[0].is_ascii_alphabetic() {
        return false;
    }
    let mut at = 1;
    while at < bytes.len() {
        if !(bytes[at].is_ascii_alphanumeric() || matches!(bytes[at], b'_' | b'-')) {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names_are_those_that_the_command_takes() {
        const LONGEST: &str = "a123456789012345678901234567890123456789012345678901234567890123";
        for (text, expected) in [
            ("a", true),
            ("first_file-2", true),
            (LONGEST, true),
            ("", false),
            ("1a", false),
            ("_a", false),
            ("a b", false),
            ("a=b", false),
            ("\u{e4}", false),
        ] {
            assert_eq!(is_name(text), expected, "{text:?}");
        }
        let mut longer = [b'a'; 65];
        longer[0] = b'b';
        assert!(!is_name(core::str::from_utf8(&longer).unwrap()));
    }
}
