//! Swap charges of memcgs: groups of address spaces, each with its own limit (Linux 7.3 `mm/memcontrol.c`,
//! `__mem_cgroup_try_charge_swap`).
//!
//! A slot is charged to the memcg of the address space that swapped the page out and to the memcgs above that one,
//! until the slot is freed. The charge stays when other entries name the slot, and when the address space joins another
//! memcg. To charge a slot, the code visits the memcg and each memcg above it. For an address space without a memcg, it
//! makes one comparison.
//!
//! A closed memcg keeps its number while a slot, an object, an address space or another memcg refers to it. Its charges
//! also remain in the memcgs above it.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use memwright_table::sync::{Lock, LockGuard, Rank, Threads};
use memwright_table::{OutOfMemory, TryPush};

use crate::types::memcg::{MAX_MEMCGS, Memcg, NoMemcg};

/// The number of [`SwapCharge`]s that are allocated together.
const TOGETHER: usize = 64;

/// The swap charge and the swap limit of one memcg. The counts include those of the memcgs below it.
struct SwapCharge {
    /// The parent memcg, or [`Memcg::NOBODY`] if the memcg has no parent.
    parent: Memcg,
    /// The number of memcgs above this one, plus one.
    level: u32,
    /// Whether the memcg is open.
    open: bool,
    /// The number of users of the memcg's number: slots, objects and address spaces that name it, and memcgs directly
    /// below it. The memcg's number stays allocated while it has users.
    users: u64,
    slots: u64,
    most: u64,
    /// The number of objects charged to this memcg or one below.
    objects: u64,
    /// The number of slot allocations, for this memcg or one below, that failed because of a memcg limit.
    refused: u64,
    /// The number of slot allocations, for this memcg or one below, that failed because no slot was free.
    full: u64,
    /// The next number in the list of free numbers. Used only while this number is free.
    next_free: Memcg,
}

/// The swap charges of all memcgs, by number.
struct Table {
    chunks: Vec<Vec<SwapCharge>>,
    /// The first number in the list of free numbers, all of which were used before.
    free: Memcg,
    /// The number of memcg numbers that were ever used.
    length: usize,
}

impl Table {
    fn get(&self, memcg: Memcg) -> Option<&SwapCharge> {
        let index = usize::from(memcg.raw()).checked_sub(1)?;
        self.chunks.get(index / TOGETHER)?.get(index % TOGETHER)
    }

    fn get_mut(&mut self, memcg: Memcg) -> Option<&mut SwapCharge> {
        let index = usize::from(memcg.raw()).checked_sub(1)?;
        let chunk = self.chunks.get_mut(index / TOGETHER)?;
        chunk.get_mut(index % TOGETHER)
    }

    /// Calls `act` with the [`SwapCharge`] of `memcg` and of each memcg above it.
    fn each(&mut self, memcg: Memcg, mut act: impl FnMut(&mut SwapCharge)) {
        let mut next = memcg;
        while let Some(bill) = self.get_mut(next) {
            act(bill);
            next = bill.parent;
        }
    }

    fn add_user(&mut self, memcg: Memcg) {
        if let Some(bill) = self.get_mut(memcg) {
            bill.users += 1;
        }
    }

    /// Removes a user of `memcg`. If `memcg` is closed and has no users any more, frees its number. Freeing the number
    /// removes a user of the memcg above it, for which the same check follows.
    fn remove_user(&mut self, memcg: Memcg) {
        let mut next = memcg;
        while let Some(bill) = self.get_mut(next) {
            bill.users -= 1;
            if bill.open || bill.users > 0 {
                return;
            }
            next = self.free_number(next);
        }
    }

    /// Adds the number `memcg` to the list of free numbers. Returns the memcg directly above it.
    fn free_number(&mut self, memcg: Memcg) -> Memcg {
        let free = self.free;
        let above = self.get_mut(memcg).map_or(Memcg::NOBODY, |bill| {
            bill.next_free = free;
            core::mem::replace(&mut bill.parent, Memcg::NOBODY)
        });
        self.free = memcg;
        above
    }

    fn put(&mut self, bill: SwapCharge) -> Result<Memcg, NoMemcg> {
        let reused = self.free;
        if let Some(free) = self.get_mut(reused) {
            let next = free.next_free;
            *free = bill;
            self.free = next;
            return Ok(reused);
        }
        if self.length == MAX_MEMCGS {
            return Err(NoMemcg::TooMany);
        }
        self.append(bill).map_err(|_| NoMemcg::OutOfMemory)?;
        self.length += 1;
        Ok(Memcg::new(self.length - 1))
    }

    fn append(&mut self, bill: SwapCharge) -> Result<(), OutOfMemory> {
        if self.length / TOGETHER == self.chunks.len() {
            let mut chunk = Vec::new();
            chunk.try_make_room(TOGETHER)?;
            self.chunks.try_push(chunk)?;
        }
        self.chunks[self.length / TOGETHER].try_push(bill)
    }
}

/// The charges of all memcgs.
pub(crate) struct SwapCharges<H> {
    table: Lock<Table, H>,
    /// Whether a memcg was ever opened.
    open: AtomicBool,
}

impl<H: Threads> SwapCharges<H> {
    pub(super) fn new() -> Self {
        let table = Table {
            chunks: Vec::new(),
            free: Memcg::NOBODY,
            length: 0,
        };
        Self {
            table: Lock::new(Rank::Lists, table),
            open: AtomicBool::new(false),
        }
    }

    /// Returns whether a memcg was ever opened.
    pub(super) fn are_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Locks the table for a charge to `memcg`. Returns `None` if `memcg` is `Memcg::NOBODY`, which is never charged.
    fn table_for(&self, memcg: Memcg) -> Option<LockGuard<'_, Table, H>> {
        (memcg != Memcg::NOBODY).then(|| self.table.lock())
    }

    fn value(&self, memcg: Memcg, read: impl FnOnce(&SwapCharge) -> u64) -> u64 {
        let table = self.table_for(memcg);
        table.map_or(0, |table| table.get(memcg).map_or(0, read))
    }

    /// Returns whether one more slot may be charged to `memcg` and to the memcgs above it. If not, counts the refusal
    /// in each of these memcgs.
    pub(super) fn allows(&self, memcg: Memcg) -> bool {
        let Some(mut table) = self.table_for(memcg) else {
            return true;
        };
        let mut allowed = true;
        table.each(memcg, |bill| allowed &= bill.slots < bill.most);
        if !allowed {
            table.each(memcg, |bill| bill.refused += 1);
        }
        allowed
    }

    pub(super) fn charge(&self, memcg: Memcg) {
        if let Some(mut table) = self.table_for(memcg) {
            table.add_user(memcg);
            table.each(memcg, |bill| bill.slots += 1);
        }
    }

    pub(super) fn release(&self, memcg: Memcg) {
        if let Some(mut table) = self.table_for(memcg) {
            table.each(memcg, |bill| bill.slots -= 1);
            table.remove_user(memcg);
        }
    }

    pub(super) fn slots(&self, memcg: Memcg) -> u64 {
        self.value(memcg, |bill| bill.slots)
    }

    pub(super) fn refused(&self, memcg: Memcg) -> u64 {
        self.value(memcg, |bill| bill.refused)
    }

    /// Counts a slot allocation for `memcg` that failed because no slot was free.
    pub(super) fn note_full(&self, memcg: Memcg) {
        if let Some(mut table) = self.table_for(memcg) {
            table.each(memcg, |bill| bill.full += 1);
        }
    }

    pub(super) fn full(&self, memcg: Memcg) -> u64 {
        self.value(memcg, |bill| bill.full)
    }

    pub(super) fn limit(&self, memcg: Memcg, most: u64) {
        if let Some(mut table) = self.table_for(memcg) {
            if let Some(bill) = table.get_mut(memcg) {
                bill.most = most;
            }
        }
    }

    /// Records that an object is charged to `memcg`.
    pub(crate) fn charge_object(&self, memcg: Memcg) {
        if let Some(mut table) = self.table_for(memcg) {
            table.add_user(memcg);
            table.each(memcg, |bill| bill.objects += 1);
        }
    }

    /// Records that an object that was charged to `memcg` was dropped.
    pub(crate) fn release_object(&self, memcg: Memcg) {
        if let Some(mut table) = self.table_for(memcg) {
            table.each(memcg, |bill| bill.objects -= 1);
            table.remove_user(memcg);
        }
    }

    /// Returns the number of objects that are charged to `memcg` or to a memcg below it.
    pub(super) fn objects(&self, memcg: Memcg) -> u64 {
        self.value(memcg, |bill| bill.objects)
    }

    /// Records that an address space has moved from memcg `from` to memcg `to`.
    pub(crate) fn rename_space(&self, from: Memcg, to: Memcg) {
        if let Some(mut table) = self.table_for(to) {
            table.add_user(to);
        }
        if let Some(mut table) = self.table_for(from) {
            table.remove_user(from);
        }
    }

    /// Returns whether `memcg` is `above` itself or a memcg below `above`.
    pub(crate) fn is_within(&self, memcg: Memcg, above: Memcg) -> bool {
        if memcg == above {
            return true;
        }
        let Some(table) = self.table_for(memcg) else {
            return false;
        };
        let level = table.get(above).map_or(u32::MAX, |bill| bill.level);
        let mut next = memcg;
        while let Some(bill) = table.get(next).filter(|bill| bill.level > level) {
            next = bill.parent;
        }
        next == above && level != u32::MAX
    }

    /// Opens a memcg below `parent`, with no charge and no limit.
    pub(crate) fn open(&self, parent: Memcg) -> Result<Memcg, NoMemcg> {
        self.open.store(true, Ordering::Relaxed);
        let mut table = self.table.lock();
        let above = table.get(parent).map_or(0, |bill| bill.level);
        let opened = table.put(SwapCharge {
            parent,
            level: above + 1,
            open: true,
            users: 0,
            slots: 0,
            most: u64::MAX,
            objects: 0,
            refused: 0,
            full: 0,
            next_free: Memcg::NOBODY,
        })?;
        table.add_user(parent);
        Ok(opened)
    }

    /// Closes a memcg. Its number can be used again once nothing refers to it.
    pub(crate) fn close(&self, memcg: Memcg) {
        if let Some(mut table) = self.table_for(memcg) {
            if let Some(bill) = table.get_mut(memcg) {
                bill.open = false;
                bill.users += 1;
                bill.most = u64::MAX;
                table.remove_user(memcg);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memwright_table::OneCpu;

    #[test]
    fn a_memcg_has_no_more_than_its_limit() {
        let bills = SwapCharges::<OneCpu>::new();
        let [one, other] = [(); 2].map(|()| bills.open(Memcg::NOBODY).unwrap());
        bills.limit(one, 2);
        for (slots, allowed) in [(0, true), (1, true), (2, false)] {
            assert_eq!((bills.slots(one), bills.allows(one)), (slots, allowed));
            if allowed {
                bills.charge(one);
            }
        }
        assert_eq!((bills.refused(one), bills.refused(other)), (1, 0));
        bills.note_full(one);
        bills.note_full(Memcg::NOBODY);
        assert_eq!((bills.full(one), bills.full(other)), (1, 0));
        assert!(bills.allows(other) && bills.allows(Memcg::NOBODY));
        bills.release(one);
        assert!(bills.allows(one));
        bills.charge(Memcg::NOBODY);
        assert_eq!(bills.slots(Memcg::NOBODY), 0);
    }

    #[test]
    fn a_slot_is_charged_to_each_memcg_above() {
        let bills = SwapCharges::<OneCpu>::new();
        let top = bills.open(Memcg::NOBODY).unwrap();
        let [left, right] = [(); 2].map(|()| bills.open(top).unwrap());
        bills.limit(top, 3);
        for (memcg, slots) in [(left, [1, 1, 0]), (right, [2, 1, 1]), (right, [3, 1, 2])] {
            assert!(bills.allows(memcg));
            bills.charge(memcg);
            assert_eq!([top, left, right].map(|memcg| bills.slots(memcg)), slots);
        }
        assert!(!bills.allows(left));
        assert_eq!([top, left, right].map(|of| bills.refused(of)), [1, 1, 0]);
        bills.note_full(right);
        assert_eq!([top, left, right].map(|of| bills.full(of)), [1, 0, 1]);
        bills.charge_object(right);
        assert_eq!([top, left, right].map(|of| bills.objects(of)), [1, 0, 1]);
        for (memcg, above, within) in [
            (right, top, true),
            (top, right, false),
            (left, right, false),
            (top, top, true),
            (Memcg::NOBODY, top, false),
            (top, Memcg::NOBODY, false),
        ] {
            assert_eq!(bills.is_within(memcg, above), within, "{memcg:?} {above:?}");
        }
    }

    #[test]
    fn a_number_is_reused_when_nothing_refers_to_it() {
        let bills = SwapCharges::<OneCpu>::new();
        let top = bills.open(Memcg::NOBODY).unwrap();
        let low = bills.open(top).unwrap();
        bills.charge(low);
        bills.rename_space(Memcg::NOBODY, low);
        bills.close(low);
        bills.close(top);
        let new = bills.open(Memcg::NOBODY).unwrap();
        assert!(new != top && new != low);
        // The slot of the closed memcg stays charged to the memcg `top` above it.
        assert_eq!(bills.slots(top), 1);
        bills.release(low);
        bills.rename_space(low, new);
        let again = [(); 2].map(|()| bills.open(Memcg::NOBODY).unwrap());
        assert_eq!(again, [top, low]);
        assert_eq!(again.map(|memcg| bills.slots(memcg)), [0, 0]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "65,535 memcgs: minutes; nothing here is unsafe")]
    fn numbers_run_out() {
        let bills = SwapCharges::<OneCpu>::new();
        let mut deepest = Memcg::NOBODY;
        for _ in 0..MAX_MEMCGS {
            deepest = bills.open(deepest).unwrap();
        }
        assert_eq!(bills.open(deepest), Err(NoMemcg::TooMany));
        bills.close(deepest);
        assert_eq!(bills.open(Memcg::NOBODY), Ok(deepest));
    }
}
