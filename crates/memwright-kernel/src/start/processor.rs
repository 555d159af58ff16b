//! The features of the processor that the kernel uses.

use crate::arch::{self, fpu};
use crate::tlb;
use crate::trap::entry;

/// Enables on this CPU the processor features on which the kernel relies.
///
/// # Panics
/// If the processor lacks one of these features.
pub fn setup() {
    const UMIP: u64 = 1 << 11;
    const FSGSBASE: u64 = 1 << 16;
    const SMEP: u64 = 1 << 20;
    const SMAP: u64 = 1 << 21;
    let features = arch::features();
    for (present, name) in [
        (features.smep, "SMEP"),
        (features.smap, "SMAP"),
        (features.fsgsbase, "FSGSBASE"),
        (features.xsave, "XSAVE"),
        (features.avx, "AVX"),
    ] {
        assert!(present, "the processor lacks {name}");
    }
    let umip = if features.umip { UMIP } else { 0 };
    // SAFETY: the processor was just checked for the features. The kernel accesses user memory only between STAC and
    // CLAC, and never executes it.
    unsafe { arch::set_cr4(arch::CR4_PAGE_GLOBAL | FSGSBASE | SMEP | SMAP | umip) };
    tlb::setup(features.pcid);
    entry::setup();
    fpu::start();
}
