//! The pool of huge pages: folios set aside for memory that asks for huge pages by name
//! (Linux 7.2 `mm/hugetlb.c`; Documentation/admin-guide/mm/hugetlbpage.rst).
//!
//! A page of the pool is a folio that is never parted. Its kind says who has it: [`FrameKind::Pool`] nobody,
//! [`FrameKind::PoolAnonymous`] private memory, [`FrameKind::PoolObject`] an object. With its last reference it goes
//! back to the pool, or, if the pool has pages in surplus, to the free frames.
//!
//! A promise that a page will be there is a reservation: a number here, and kept by whoever was promised.

use core::sync::atomic::Ordering;

use super::meta::{END, Meta, UNLINKED};
use super::{FOLIO_FRAMES, FOLIO_ORDER, FrameKind, FrameRef, Frames, NodeChoice};
use crate::addr::Frame;
use crate::machine::Machine;

/// The pool has no page to give, or to promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHugePage;

/// The numbers of the pool, in huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// All, whoever has them (`nr_hugepages`).
    pub total: u64,
    /// Those that nobody has (`free_hugepages`).
    pub free: u64,
    /// Of the free ones, those that are promised (`resv_hugepages`).
    pub reserved: u64,
    /// Those beyond what the pool was set to, which go when they are free (`surplus_hugepages`).
    pub surplus: u64,
    /// The most of these (`nr_overcommit_hugepages`).
    pub most_surplus: u64,
}

impl PoolCounts {
    /// Free pages that nobody was promised.
    fn unpromised(&self) -> u64 {
        self.free - self.reserved
    }

    /// Pages that stay (`persistent_huge_pages`).
    fn lasting(&self) -> u64 {
        self.total - self.surplus
    }
}

/// What the lock of the pool guards.
pub(super) struct Pool {
    counts: PoolCounts,
    /// The first free page; the others follow by the links of their first frames.
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
    /// The numbers of the pool.
    pub fn pool(&self) -> PoolCounts {
        self.pool.lock().counts
    }

    /// Sets how many pages the pool has (`set_max_huge_pages`), as far as memory reaches, and as far as they are free
    /// and not promised; what it cannot give up is in surplus.
    pub fn resize_pool(&self, pages: u64) {
        let mut pool = self.pool.lock();
        // What was in surplus stays, if more are wanted.
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

    /// Sets how many pages in surplus there may be; those that there are stay.
    pub fn set_pool_surplus(&self, pages: u64) {
        self.pool.lock().counts.most_surplus = pages;
    }

    /// Promises `pages` pages (`hugetlb_acct_memory`).
    ///
    /// # Errors
    /// [`NoHugePage`] if so many are neither free nor may be made in surplus; nothing is promised.
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

    /// The same for one page that is free, without making any.
    ///
    /// # Errors
    /// [`NoHugePage`] if none is.
    pub fn reserve_free_huge(&self) -> Result<(), NoHugePage> {
        let mut pool = self.pool.lock();
        if pool.counts.unpromised() == 0 {
            return Err(NoHugePage);
        }
        pool.counts.reserved += 1;
        Ok(())
    }

    /// Takes the promise of `pages` pages back; as many in surplus go (`return_unused_surplus_pages`).
    pub fn unreserve_huge(&self, pages: u64) {
        let mut pool = self.pool.lock();
        pool.counts.reserved -= pages;
        for _ in 0..pages.min(pool.counts.surplus) {
            if pool.counts.unpromised() > 0 {
                self.give_up_surplus(&mut pool);
            }
        }
    }

    /// Takes a page, one that was promised if `promised`, else one that nobody was promised. Its contents are
    /// undefined.
    ///
    /// # Errors
    /// [`NoHugePage`] if none is left, and none may be made in surplus.
    ///
    /// # Panics
    /// If `kind` is not that of a page of the pool that somebody has.
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

    /// Takes one page more than the pool was set to, of the nodes that `choice` names, for one that goes back to the
    /// pool: with that one the surplus goes (`alloc_migrate_hugetlb_folio`). Its contents are undefined.
    ///
    /// # Errors
    /// [`NoHugePage`] if these nodes have no memory for it.
    ///
    /// # Panics
    /// If `kind` is not that of a page of the pool that somebody has.
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

    /// The last reference of a page went.
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

    /// Memory for one more page.
    fn new_page(&self) -> Option<Frame> {
        let head = self.allocate(FOLIO_ORDER, FrameKind::Pool).ok()?.into_raw();
        self.meta(head).whole.store(0, Ordering::Relaxed);
        Some(head)
    }

    /// One more page, in surplus.
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

    /// Makes a free page frames like any other.
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
