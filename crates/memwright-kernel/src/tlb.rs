//! The one place that loads roots and drops translations.
//!
//! Without tags a change of the root drops every translation but the kernel's, which are global. With
//! tags (PCIDs) it drops none: each root has a tag, and the memory manager says whether what is kept
//! under it may still be used. QEMU's TCG has no PCIDs: the choice of tags is proved on the simulated
//! machine, which makes the same.

use core::sync::atomic::{AtomicBool, Ordering};

use memwright_table::{Frame, MOST_TAGS};

use crate::{arch, percpu};

/// Whether the processors have tags.
static TAGS: AtomicBool = AtomicBool::new(false);

/// Turns tags on, if the processor has them. Called on each CPU before it loads a root of a program.
pub fn setup(tags: bool) {
    if percpu::current().index.load(Ordering::Relaxed) == 0 {
        TAGS.store(tags, Ordering::Relaxed);
    }
    assert!(tags == has_tags(), "not all processors have PCIDs");
    if tags {
        // SAFETY: the processor has them; the root that is loaded lies at a page's start, which
        // names tag 0, as the architecture asks.
        unsafe { arch::set_cr4(arch::CR4_PCID) };
    }
}

/// Whether translations of a root may outlive a change to another.
#[inline(always)]
pub fn has_tags() -> bool {
    TAGS.load(Ordering::Relaxed)
}

/// Makes `root` this CPU's table. What was kept of it from before is dropped unless `keep` says that it
/// is as the tables say.
///
/// # Safety
/// As for [`arch::load_root`].
#[inline(always)]
pub unsafe fn load(root: Frame, keep: bool) {
    let address = root.address().as_u64();
    let tagged = if has_tags() { tagged(root, keep) } else { 0 };
    // SAFETY: as the caller vouches.
    unsafe { arch::load_root(address | tagged) };
}

/// What CR3 holds beside the address of `root`.
fn tagged(root: Frame, keep: bool) -> u64 {
    let choice = percpu::current().tags.choose(root, MOST_TAGS, keep);
    let keep = if choice.kept {
        arch::KEEP_TRANSLATIONS
    } else {
        0
    };
    choice.tag as u64 | keep
}

/// Drops what is kept of `root`, which is not loaded.
pub fn forget(root: Frame) {
    if has_tags() {
        percpu::current().tags.forget(root);
    }
}

/// Drops one page's translation, and the upper-level entries cached for the current tag.
#[inline(always)]
pub fn invalidate_page(address: u64) {
    arch::invalidate_page(address);
}

/// Drops every translation of the current table's user memory and every cached upper-level entry.
#[inline(always)]
pub fn invalidate_all() {
    // SAFETY: the current table stays current, under its tag; the value read never asks to keep anything.
    unsafe { arch::load_root(arch::root()) };
}

/// Drops every translation, the kernel's global ones too, under every tag.
pub fn invalidate_kernel() {
    // SAFETY: turning global translations off and on again drops them all (Intel SDM volume 3A,
    // invalidation of TLBs); the next access walks the tables.
    unsafe {
        arch::clear_cr4(arch::CR4_PAGE_GLOBAL);
        arch::set_cr4(arch::CR4_PAGE_GLOBAL);
    }
}
