//! The NUMA policy of a machine.

use core::sync::atomic::{AtomicPtr, Ordering};

use super::rust_alloc::boxed::Box;
use super::rust_alloc::sync::Arc;

use super::topology::NodeChoice;
use crate::addr::CpuId;

/// A NUMA policy. It selects the nodes of a data allocation unless [`Frames::choose_next`](super::Frames::choose_next)
/// made a choice for that allocation.
pub trait Chooser: Send + Sync {
    /// Returns the nodes that serve an allocation on `cpu`, the calling CPU, or `None` for the CPU's own node first and
    /// then the nearest ones.
    ///
    /// # Locks
    /// The caller can hold page-table locks, and holds the lock of the CPU's cache.
    fn choose(&self, cpu: CpuId) -> Option<NodeChoice>;
}

/// The policy of a machine; null until it is set.
pub(super) struct Choosing(AtomicPtr<Arc<dyn Chooser>>);

impl Choosing {
    pub(super) const fn nobody() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    pub(super) fn get(&self) -> Option<&dyn Chooser> {
        let chooser = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or points to a box that `set` stored once and only `drop` frees.
        unsafe { chooser.as_ref() }.map(|chooser| &**chooser)
    }

    /// Sets the policy, unless one is set already. Returns whether it was set.
    pub(super) fn set(&self, chooser: Arc<dyn Chooser>) -> bool {
        let new = Box::into_raw(Box::new(chooser));
        let (null, order) = (core::ptr::null_mut(), Ordering::AcqRel);
        let stored = self.0.compare_exchange(null, new, order, Ordering::Acquire);
        if stored.is_err() {
            // SAFETY: the box was created above, and its pointer was not shared.
            drop(unsafe { Box::from_raw(new) });
        }
        stored.is_ok()
    }
}

impl Drop for Choosing {
    fn drop(&mut self) {
        let chooser = *self.0.get_mut();
        if !chooser.is_null() {
            // SAFETY: `set` created the box, and no borrow of the policy exists any more.
            drop(unsafe { Box::from_raw(chooser) });
        }
    }
}
