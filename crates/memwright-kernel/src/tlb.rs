//! The one place that loads roots and drops translations: tags (PCID) would come in here.
//!
//! Without tags a change of the root drops every translation but the kernel's, which are global.

use crate::arch;

/// Makes `root` this CPU's table and drops the translations of the old one.
///
/// # Safety
/// As for [`arch::load_root`].
#[inline(always)]
pub unsafe fn load(root: u64) {
    // SAFETY: as the caller vouches.
    unsafe { arch::load_root(root) };
}

/// Drops one page's translation, and the upper-level entries cached for the current table.
#[inline(always)]
pub fn invalidate_page(address: u64) {
    arch::invalidate_page(address);
}

/// Drops every translation of user memory and every cached upper-level entry.
#[inline(always)]
pub fn invalidate_all() {
    // SAFETY: the current table stays current.
    unsafe { arch::load_root(arch::root()) };
}

/// Drops every translation, the kernel's global ones too.
pub fn invalidate_kernel() {
    // SAFETY: turning global translations off and on again drops them all (Intel SDM volume 3A,
    // invalidation of TLBs); the next access walks the tables.
    unsafe {
        arch::clear_cr4(arch::CR4_PAGE_GLOBAL);
        arch::set_cr4(arch::CR4_PAGE_GLOBAL);
    }
}
