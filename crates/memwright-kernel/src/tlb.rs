//! Loads roots and invalidates translations. Two modules do this without calling this one: `memory::paging` loads the
//! first root at boot, and `context` invalidates pages of kernel stacks on the calling CPU.
//!
//! Without tags, loading another root invalidates all translations except the kernel's, which are global. With tags
//! (PCIDs), loading a root invalidates nothing by itself. Each root has a tag, and the memory manager decides whether
//! the translations that were kept under the tag are still valid. QEMU's TCG has no PCIDs. The choice of tags is tested
//! on the simulated machine, which uses the same code for it.

use core::sync::atomic::{AtomicBool, Ordering};

use memwright_table::machine::Invalidation;
use memwright_table::{Frame, MOST_TAGS};

use crate::{arch, percpu};

/// Whether the processors have PCIDs.
static TAGS: AtomicBool = AtomicBool::new(false);

/// Enables PCIDs if `tags` is set. Called on each CPU before it loads a root of a program.
pub fn setup(tags: bool) {
    if percpu::current().index.load(Ordering::Relaxed) == 0 {
        TAGS.store(tags, Ordering::Relaxed);
    }
    assert!(tags == has_tags(), "not all processors have PCIDs");
    if tags {
        // SAFETY: the processor has PCIDs. The loaded root's address is page-aligned, so its low bits are tag 0, as the
        // architecture requires here.
        unsafe { arch::set_cr4(arch::CR4_PCID) };
    }
}

/// Returns whether translations of a root can survive the load of another root.
#[inline(always)]
pub fn has_tags() -> bool {
    TAGS.load(Ordering::Relaxed)
}

/// Loads `root` on this CPU. If `keep` is not set, invalidates the translations of `root` that were kept from an
/// earlier use. If it is set, the caller guarantees that these translations agree with the tables.
///
/// # Safety
/// The requirements of [`arch::load_root`] apply.
#[inline(always)]
pub unsafe fn load(root: Frame, keep: bool) {
    let address = root.address().as_u64();
    let tagged = if has_tags() { tagged(root, keep) } else { 0 };
    // SAFETY: guaranteed by the caller.
    unsafe { arch::load_root(address | tagged) };
}

/// Returns the bits for CR3 that are added to the address of `root`: the tag, and the bit that keeps translations.
fn tagged(root: Frame, keep: bool) -> u64 {
    let choice = percpu::current().tags.choose(root, MOST_TAGS, keep);
    let keep = if choice.kept {
        arch::KEEP_TRANSLATIONS
    } else {
        0
    };
    choice.tag as u64 | keep
}

/// Invalidates the translations of `root` that this CPU has kept. The root must not be loaded on this CPU.
pub fn forget(root: Frame) {
    if has_tags() {
        percpu::current().tags.forget(root);
    }
}

/// Invalidates one page's translation, and the upper-level entries that are cached for the current tag.
#[inline(always)]
pub fn invalidate_page(address: u64) {
    arch::invalidate_page(address);
}

/// Invalidates all translations of the current table's user memory, and all cached upper-level entries.
#[inline(always)]
pub fn invalidate_all() {
    // SAFETY: the current table stays loaded, under its tag. A value read from CR3 never contains the bit that keeps
    // translations.
    unsafe { arch::load_root(arch::root()) };
}

/// Invalidates translations of this CPU's current root.
#[inline]
pub fn invalidate(what: &Invalidation) {
    match *what {
        Invalidation::Pages {
            first,
            count,
            stride,
        } => {
            let mut address = first.address().as_u64();
            if count == 1 {
                return invalidate_page(address);
            }
            for _ in 0..count {
                invalidate_page(address);
                address = address.wrapping_add(stride.bytes());
            }
        }
        Invalidation::All | Invalidation::AllAndTables => invalidate_all(),
    }
}

/// Invalidates all translations, including the kernel's global ones, under all tags.
pub fn invalidate_kernel() {
    // SAFETY: disabling global translations and enabling them again invalidates all of them (Intel SDM volume 3A,
    // invalidation of TLBs); the next access walks the tables.
    unsafe {
        arch::clear_cr4(arch::CR4_PAGE_GLOBAL);
        arch::set_cr4(arch::CR4_PAGE_GLOBAL);
    }
}
