//! The huge page pool: folios that are reserved for hugetlb memory (Linux 7.2 `mm/hugetlb.c`;
//! Documentation/admin-guide/mm/hugetlbpage.rst).
//!
//! A page of the pool is a folio that is never parted. Its kind is its use: a [`FrameKind::Pool`] page is free, a
//! [`FrameKind::PoolAnonymous`] page belongs to private memory, and a [`FrameKind::PoolObject`] page to an object. When
//! the last reference to a page is dropped, the page returns to the pool or, if the pool has surplus pages, to the free
//! frames.
//!
//! A reservation guarantees that a page will be available. The pool stores only the number of reservations. Each holder
//! records its own.

use core::sync::atomic::Ordering;

use super::meta::{END, Meta, UNLINKED};
use super::pool_state::{NoHugePage, Pool, PoolCounts};
use super::subpool::{SubpoolCounts, SubpoolId};
use super::{FOLIO_FRAMES, FOLIO_ORDER, FrameKind, FrameRef, Frames, NodeChoice};
use crate::addr::Frame;
use crate::machine::Machine;

impl<M: Machine> Frames<M> {
    /// Returns the counters of the pool.
    pub fn pool(&self) -> PoolCounts {
        self.pool.lock().counts
    }

    /// Sets the size of the pool in pages (`set_max_huge_pages`). The pool grows as far as memory is available, and
    /// shrinks as far as pages are free and not reserved. Pages that cannot be freed become surplus.
    pub fn resize_pool(&self, pages: u64) {
        let mut pool = self.pool.lock();
        // A growing pool first converts surplus pages into persistent ones.
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

    /// Creates a subpool with a limit of `most` pages and a guarantee of `least` pages, which are reserved in the pool
    /// (`hugepage_new_subpool`).
    ///
    /// # Errors
    /// [`NoHugePage`] if `least` pages cannot be reserved, or if the subpool cannot be allocated on the heap.
    pub fn open_subpool(
        &self,
        most: Option<u64>,
        least: Option<u64>,
    ) -> Result<SubpoolId, NoHugePage> {
        let mut pool = self.pool.lock();
        self.reserve_in(&mut pool, least.unwrap_or(0))?;
        let opened = pool.subpools.open(most, least);
        opened.map_err(|_| {
            self.unreserve_in(&mut pool, least.unwrap_or(0));
            NoHugePage
        })
    }

    /// Closes a subpool when its mount is destroyed. The subpool is freed with its last page (`hugepage_put_subpool`).
    pub fn close_subpool(&self, id: SubpoolId) {
        let mut pool = self.pool.lock();
        pool.subpools.close(id);
        self.finish_subpool(&mut pool, id);
    }

    /// Returns the counters of a subpool; `None` for [`SubpoolId::NONE`].
    pub fn subpool(&self, id: SubpoolId) -> Option<SubpoolCounts> {
        self.pool.lock().subpools.read(id)
    }

    /// Assigns the page `new`, which replaces the page `old`, to the subpool of `old`. `old` then is in no subpool
    /// (`move_hugetlb_state`).
    pub fn follow_subpool(&self, old: Frame, new: Frame) {
        let _pool = self.pool.lock();
        let owner = self.meta(old).owner.swap(0, Ordering::Relaxed);
        self.meta(new).owner.store(owner, Ordering::Relaxed);
    }

    fn finish_subpool(&self, pool: &mut Pool, id: SubpoolId) {
        let spare = pool.subpools.finish(id);
        self.unreserve_in(pool, spare);
    }

    /// Reserves `pages` pages in a subpool. Pages that the guarantee of the subpool does not cover are also reserved in
    /// the pool (`hugepage_subpool_get_pages` and `hugetlb_acct_memory`).
    ///
    /// # Errors
    /// [`NoHugePage`] if the limit of the subpool is reached, or if not enough pages are free or can be added as
    /// surplus; no page is reserved then.
    pub fn reserve_huge(&self, within: SubpoolId, pages: u64) -> Result<(), NoHugePage> {
        let mut pool = self.pool.lock();
        let before = pool.subpools.read(within);
        let wanted = pool.subpools.get(within, pages)?;
        let reserved = self.reserve_in(&mut pool, wanted);
        if reserved.is_err() {
            pool.subpools.restore(within, before);
        }
        reserved
    }

    fn reserve_in(&self, pool: &mut Pool, pages: u64) -> Result<(), NoHugePage> {
        let before = pool.counts.free;
        while pool.counts.unpromised() < pages {
            if !self.add_surplus(pool) {
                while pool.counts.free > before {
                    self.give_up_surplus(pool);
                }
                return Err(NoHugePage);
            }
        }
        pool.counts.reserved += pages;
        Ok(())
    }

    /// Reserves one free page, without adding a surplus page.
    ///
    /// # Errors
    /// [`NoHugePage`] if the limit of the subpool is reached, or if all free pages are reserved.
    pub fn reserve_free_huge(&self, within: SubpoolId) -> Result<(), NoHugePage> {
        let mut pool = self.pool.lock();
        let before = pool.subpools.read(within);
        let wanted = pool.subpools.get(within, 1)?;
        if pool.counts.unpromised() < wanted {
            pool.subpools.restore(within, before);
            return Err(NoHugePage);
        }
        pool.counts.reserved += wanted;
        Ok(())
    }

    /// Releases the reservation of `pages` pages, and frees as many surplus pages as the pool no longer needs
    /// (`return_unused_surplus_pages`).
    pub fn unreserve_huge(&self, within: SubpoolId, pages: u64) {
        let mut pool = self.pool.lock();
        let unneeded = pool.subpools.put(within, pages);
        self.unreserve_in(&mut pool, unneeded);
        self.finish_subpool(&mut pool, within);
    }

    fn unreserve_in(&self, pool: &mut Pool, pages: u64) {
        pool.counts.reserved -= pages;
        for _ in 0..pages.min(pool.counts.surplus) {
            if pool.counts.unpromised() > 0 {
                self.give_up_surplus(pool);
            }
        }
    }

    /// Allocates a page of the pool for a subpool: a reserved page if `promised` is true, otherwise a page from the
    /// guarantee of the subpool or an unreserved one (`alloc_hugetlb_folio`). The contents of the page are undefined.
    ///
    /// # Errors
    /// [`NoHugePage`] if the limit of the subpool is reached, or if no page is free and no surplus page can be added.
    ///
    /// # Panics
    /// If `kind` is neither `PoolAnonymous` nor `PoolObject`.
    pub fn take_huge(
        &self,
        promised: bool,
        kind: FrameKind,
        within: SubpoolId,
    ) -> Result<FrameRef<'_, M>, NoHugePage> {
        assert!(
            kind.is_pool() && kind != FrameKind::Pool,
            "no page of the pool is of this kind"
        );
        let mut pool = self.pool.lock();
        let before = pool.subpools.read(within);
        if promised || pool.subpools.get(within, 1)? == 0 {
            pool.counts.reserved -= 1;
        } else if pool.counts.unpromised() == 0 && !self.add_surplus(&mut pool) {
            pool.subpools.restore(within, before);
            return Err(NoHugePage);
        }
        let head = self.pop(&mut pool);
        drop(pool);
        let meta = self.meta(head);
        meta.set_state(meta.state().become_folio(kind));
        meta.set_link(UNLINKED);
        meta.owner.store(within.to_owner(), Ordering::Relaxed);
        meta.index.store(0, Ordering::Relaxed);
        self.count_kind(FrameKind::Pool, kind);
        meta.whole.store(1, Ordering::Release);
        Ok(FrameRef::from_raw(self, head, true))
    }

    /// Allocates a surplus page on the nodes that `choice` names, to replace a page that the caller is about to free.
    /// When the replaced page returns to the pool, the pool frees it as surplus (`alloc_migrate_hugetlb_folio`). The
    /// contents of the new page are undefined.
    ///
    /// # Errors
    /// [`NoHugePage`] if the nodes that `choice` names have no free block for the page.
    ///
    /// # Panics
    /// If `kind` is neither `PoolAnonymous` nor `PoolObject`.
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

    /// Returns a page to the pool after its last reference was dropped. If its subpool then has fewer pages than its
    /// guarantee, the page stays reserved for the subpool (`free_huge_folio`).
    #[cold]
    pub(super) fn return_to_pool(&self, head: Frame, meta: &Meta) {
        let mut pool = self.pool.lock();
        self.count_kind(meta.kind(), FrameKind::Pool);
        meta.set_state(meta.state().become_folio(FrameKind::Pool));
        pool.push(head, meta);
        let within = SubpoolId::from_owner(meta.owner.swap(0, Ordering::Relaxed));
        pool.counts.reserved += 1 - pool.subpools.put(within, 1);
        if pool.counts.surplus > 0 && pool.counts.unpromised() > 0 {
            self.give_up_surplus(&mut pool);
        }
        self.finish_subpool(&mut pool, within);
    }

    /// Allocates a folio for one more page of the pool.
    fn new_page(&self) -> Option<Frame> {
        let head = self.allocate(FOLIO_ORDER, FrameKind::Pool).ok()?.into_raw();
        self.meta(head).whole.store(0, Ordering::Relaxed);
        Some(head)
    }

    /// Adds one surplus page. Returns `false` if the limit is reached or no folio can be allocated.
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

    /// Removes a free page from the pool and frees its frames.
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
