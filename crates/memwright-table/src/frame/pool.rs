//! The huge page pool: folios set aside for hugetlb memory (Linux 7.2 `mm/hugetlb.c`;
//! Documentation/admin-guide/mm/hugetlbpage.rst).
//!
//! A page of the pool is a folio that is never parted. Its kind says how it is used: a [`FrameKind::Pool`] page is
//! free, a [`FrameKind::PoolAnonymous`] page belongs to private memory, and a [`FrameKind::PoolObject`] page to an
//! object. When its last reference is dropped, it returns to the pool or, if the pool has surplus pages, to the free
//! frames.
//!
//! A reservation guarantees that a page will be available. The pool only counts reservations; their holders keep track
//! of them.

use core::sync::atomic::Ordering;

use super::meta::{END, Meta, UNLINKED};
use super::{FOLIO_FRAMES, FOLIO_ORDER, FrameKind, FrameRef, Frames, NodeChoice};
use crate::addr::Frame;
use crate::machine::Machine;

/// The pool has no page to allocate or to reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHugePage;

/// The counters of the pool, in huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// All pages, free or in use (`nr_hugepages`).
    pub total: u64,
    /// Free pages (`free_hugepages`).
    pub free: u64,
    /// Free pages that are reserved (`resv_hugepages`).
    pub reserved: u64,
    /// Pages beyond the configured size of the pool, which are freed when they are no longer used
    /// (`surplus_hugepages`).
    pub surplus: u64,
    /// The limit on surplus pages (`nr_overcommit_hugepages`).
    pub most_surplus: u64,
}

impl PoolCounts {
    /// Free pages that are not reserved.
    fn unpromised(&self) -> u64 {
        self.free - self.reserved
    }

    /// Pages that are not surplus (`persistent_huge_pages`).
    fn lasting(&self) -> u64 {
        self.total - self.surplus
    }
}

/// The state that the lock of the pool protects.
pub(super) struct Pool {
    counts: PoolCounts,
    /// The first free page. The others are linked through the metadata of their first frames.
    head: u32,
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self {
            counts: PoolCounts {
                total: 0,
                free: 0,
                reserved: 0,
                surplus: 0,
                most_surplus: 0,
            },
            head: END,
        }
    }

    fn push(&mut self, head: Frame, meta: &Meta) {
        meta.set_link(self.head);
        self.head = head.number();
        self.counts.free += 1;
    }
}

impl<M: Machine> Frames<M> {
    /// Returns the counters of the pool.
    pub fn pool(&self) -> PoolCounts {
        self.pool.lock().counts
    }

    /// Sets the size of the pool in pages (`set_max_huge_pages`). It grows as far as memory is available, and shrinks
    /// as far as pages are free and not reserved; pages that it cannot free become surplus.
    pub fn resize_pool(&self, pages: u64) {
        let mut pool = self.pool.lock();
        // Growing the pool first turns surplus pages into persistent ones.
        let kept = pages.saturating_sub(pool.counts.lasting());
        pool.counts.surplus -= kept.min(pool.counts.surplus);
        while pool.counts.lasting() < pages {
            let Some(head) = self.new_page() else {
                break;
            };
            pool.counts.total += 1;
            pool.push(head, self.meta(head));
        }
        while pool.counts.lasting() > pages && pool.counts.unpromised() > 0 {
            self.give_up(&mut pool);
        }
        pool.counts.surplus += pool.counts.lasting().saturating_sub(pages);
    }

    /// Sets the limit on surplus pages. Existing surplus pages stay.
    pub fn set_pool_surplus(&self, pages: u64) {
        self.pool.lock().counts.most_surplus = pages;
    }

    /// Reserves `pages` pages (`hugetlb_acct_memory`).
    ///
    /// # Errors
    /// [`NoHugePage`] if not enough pages are free or can be added as surplus; nothing is reserved then.
    pub fn reserve_huge(&self, pages: u64) -> Result<(), NoHugePage> {
        let mut pool = self.pool.lock();
        let before = pool.counts.free;
        while pool.counts.unpromised() < pages {
            if !self.add_surplus(&mut pool) {
                while pool.counts.free > before {
                    self.give_up_surplus(&mut pool);
                }
                return Err(NoHugePage);
            }
        }
        pool.counts.reserved += pages;
        Ok(())
    }

    /// Reserves one page that is free, without adding surplus pages.
    ///
    /// # Errors
    /// [`NoHugePage`] if no free page is unreserved.
    pub fn reserve_free_huge(&self) -> Result<(), NoHugePage> {
        let mut pool = self.pool.lock();
        if pool.counts.unpromised() == 0 {
            return Err(NoHugePage);
        }
        pool.counts.reserved += 1;
        Ok(())
    }

    /// Releases the reservation of `pages` pages, and frees as many surplus pages (`return_unused_surplus_pages`).
    pub fn unreserve_huge(&self, pages: u64) {
        let mut pool = self.pool.lock();
        pool.counts.reserved -= pages;
        for _ in 0..pages.min(pool.counts.surplus) {
            if pool.counts.unpromised() > 0 {
                self.give_up_surplus(&mut pool);
            }
        }
    }

    /// Takes a page: a reserved one if `promised`, else an unreserved one. Its contents are undefined.
    ///
    /// # Errors
    /// [`NoHugePage`] if no page is left and no surplus page can be added.
    ///
    /// # Panics
    /// If `kind` is not that of a pool page in use.
    pub fn take_huge(
        &self,
        promised: bool,
        kind: FrameKind,
    ) -> Result<FrameRef<'_, M>, NoHugePage> {
        assert!(
            kind.is_pool() && kind != FrameKind::Pool,
            "no page of the pool is of this kind"
        );
        let mut pool = self.pool.lock();
        if promised {
            pool.counts.reserved -= 1;
        } else if pool.counts.unpromised() == 0 && !self.add_surplus(&mut pool) {
            return Err(NoHugePage);
        }
        let head = self.pop(&mut pool);
        drop(pool);
        let meta = self.meta(head);
        meta.set_state(meta.state().become_folio(kind));
        meta.set_link(UNLINKED);
        meta.owner.store(0, Ordering::Relaxed);
        meta.index.store(0, Ordering::Relaxed);
        self.count_kind(FrameKind::Pool, kind);
        meta.whole.store(1, Ordering::Release);
        Ok(FrameRef::from_raw(self, head, true))
    }

    /// Allocates a surplus page on the nodes that `choice` names, to replace a page that the caller is about to free.
    /// When that page returns to the pool, the surplus is gone again (`alloc_migrate_hugetlb_folio`). Its contents are
    /// undefined.
    ///
    /// # Errors
    /// [`NoHugePage`] if these nodes have no memory for it.
    ///
    /// # Panics
    /// If `kind` is not that of a pool page in use.
    pub fn add_huge_on(
        &self,
        kind: FrameKind,
        choice: NodeChoice,
    ) -> Result<FrameRef<'_, M>, NoHugePage> {
        assert!(
            kind.is_pool() && kind != FrameKind::Pool,
            "no page of the pool is of this kind"
        );
        let page = self.allocate_on(FOLIO_ORDER, kind, choice);
        let page = page.map_err(|_| NoHugePage)?;
        let mut pool = self.pool.lock();
        pool.counts.total += 1;
        pool.counts.surplus += 1;
        Ok(page)
    }

    /// Puts a page back into the pool after its last reference was dropped.
    #[cold]
    pub(super) fn return_to_pool(&self, head: Frame, meta: &Meta) {
        let mut pool = self.pool.lock();
        self.count_kind(meta.kind(), FrameKind::Pool);
        meta.set_state(meta.state().become_folio(FrameKind::Pool));
        pool.push(head, meta);
        if pool.counts.surplus > 0 {
            self.give_up_surplus(&mut pool);
        }
    }

    /// Allocates memory for one more page.
    fn new_page(&self) -> Option<Frame> {
        let head = self.allocate(FOLIO_ORDER, FrameKind::Pool).ok()?.into_raw();
        self.meta(head).whole.store(0, Ordering::Relaxed);
        Some(head)
    }

    /// Adds one surplus page. Returns `false` if the limit is reached or there is no memory.
    fn add_surplus(&self, pool: &mut Pool) -> bool {
        if pool.counts.surplus >= pool.counts.most_surplus {
            return false;
        }
        let Some(head) = self.new_page() else {
            return false;
        };
        pool.counts.total += 1;
        pool.counts.surplus += 1;
        pool.push(head, self.meta(head));
        true
    }

    fn give_up_surplus(&self, pool: &mut Pool) {
        pool.counts.surplus -= 1;
        self.give_up(pool);
    }

    /// Turns a free page of the pool into ordinary free frames.
    fn give_up(&self, pool: &mut Pool) {
        let head = self.pop(pool);
        pool.counts.total -= 1;
        let meta = self.meta(head);
        meta.set_link(UNLINKED);
        self.free_folio(head, meta, meta.state());
    }

    fn pop(&self, pool: &mut Pool) -> Frame {
        assert!(pool.head != END, "the pool has fewer pages than it counts");
        let head = Frame::new(pool.head);
        pool.head = self.meta(head).link();
        pool.counts.free -= 1;
        head
    }

    fn count_kind(&self, from: FrameKind, to: FrameKind) {
        let mut cache = self.cache().lock();
        cache.count_freed(from, i64::from(FOLIO_FRAMES));
        cache.count_allocated(to, i64::from(FOLIO_FRAMES));
    }
}
