//! A roster: the threads of a process in order of age, each with a value. For threads, the value is their signal state.
//!
//! The members are stored without gaps in a vector of page-sized blocks: when a member is removed, the last member of
//! the vector moves into its slot. Each entry is linked to the next older and the next younger member, and each member
//! stores the index of its slot. So the cost of adding, finding and removing a member does not depend on the number of
//! members.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use memwright_linux_base::paged::Paged;
use memwright_table::OutOfMemory;

/// The index of a slot; [`NONE`] for none.
type Slot = u32;

/// No slot.
const NONE: Slot = Slot::MAX;

/// The slot of a member, stored in the member. Read and written under the lock of the roster.
#[derive(Debug)]
pub struct Seat {
    slot: AtomicU32,
    /// The number of the addition with which the member entered the roster. It is kept after the removal, so that an
    /// iteration can continue after a removed member.
    number: AtomicU64,
}

impl Default for Seat {
    fn default() -> Self {
        Self {
            slot: AtomicU32::new(NONE),
            number: AtomicU64::new(0),
        }
    }
}

/// An object that is a member of at most one roster.
pub trait Seated {
    /// Returns the field in which the roster stores the slot.
    fn seat(&self) -> &Seat;
}

struct Member<M, V> {
    member: Arc<M>,
    value: V,
    older: Slot,
    younger: Slot,
}

/// Members in order of age, each with a value.
pub struct Roster<M, V> {
    members: Paged<Member<M, V>>,
    oldest: Slot,
    youngest: Slot,
    /// The number of the next addition.
    next: u64,
}

impl<M, V> Default for Roster<M, V> {
    fn default() -> Self {
        Self {
            members: Paged::new(),
            oldest: NONE,
            youngest: NONE,
            next: 0,
        }
    }
}

impl<M, V> Roster<M, V> {
    /// Returns the number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn at(&self, slot: Slot) -> Option<&Member<M, V>> {
        self.members.get(slot as usize)
    }

    /// Iterates over the members from the one in `slot` to the youngest one.
    fn iter_at(&self, mut slot: Slot) -> impl Iterator<Item = (&Arc<M>, &V)> {
        core::iter::from_fn(move || {
            let found = self.at(slot)?;
            slot = found.younger;
            Some((&found.member, &found.value))
        })
    }

    /// Iterates over the members, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<M>, &V)> {
        self.iter_at(self.oldest)
    }

    /// Iterates over the values mutably, in no particular order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.members.iter_mut().map(|member| &mut member.value)
    }

    /// Makes `slot` the next younger member of `older`. If `older` is `NONE`, makes `slot` the oldest member.
    fn link_older(&mut self, older: Slot, slot: Slot) {
        match self.members.get_mut(older as usize) {
            Some(older) => older.younger = slot,
            None => self.oldest = slot,
        }
    }

    /// Makes `slot` the next older member of `younger`. If `younger` is `NONE`, makes `slot` the youngest member.
    fn link_younger(&mut self, younger: Slot, slot: Slot) {
        match self.members.get_mut(younger as usize) {
            Some(younger) => younger.older = slot,
            None => self.youngest = slot,
        }
    }
}

impl<M: Seated, V> Roster<M, V> {
    /// Adds a member that is in no roster, as the youngest one.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the roster is then unchanged.
    pub fn try_push(&mut self, member: &Arc<M>, value: V) -> Result<(), OutOfMemory> {
        let slot = Slot::try_from(self.len()).map_err(|_| OutOfMemory)?;
        let older = self.youngest;
        self.members.try_push(Member {
            member: member.clone(),
            value,
            older,
            younger: NONE,
        })?;
        self.link_older(older, slot);
        self.youngest = slot;
        let seat = member.seat();
        seat.slot.store(slot, Ordering::Relaxed);
        seat.number.store(self.next, Ordering::Relaxed);
        self.next += 1;
        Ok(())
    }

    /// Returns the slot of a member; `None` for an object that is not a member of this roster.
    fn slot_of(&self, member: &M) -> Option<Slot> {
        let slot = member.seat().slot.load(Ordering::Relaxed);
        let found = &self.at(slot)?.member;
        core::ptr::eq(Arc::as_ptr(found), member).then_some(slot)
    }

    /// Returns whether an object is a member.
    #[must_use]
    pub fn contains(&self, member: &M) -> bool {
        self.slot_of(member).is_some()
    }

    /// Returns the value of a member.
    pub fn get_mut(&mut self, member: &M) -> Option<&mut V> {
        let slot = self.slot_of(member)?;
        let found = self.members.get_mut(slot as usize);
        found.map(|member| &mut member.value)
    }

    /// Returns the oldest member that is younger than `member`, which may have been removed. Without `member`, returns
    /// the oldest one.
    #[must_use]
    pub fn younger_than(&self, member: Option<&M>) -> Option<&Arc<M>> {
        let Some(member) = member else {
            return self.iter().next().map(|(oldest, _)| oldest);
        };
        if let Some(slot) = self.slot_of(member) {
            let younger = self.at(self.at(slot)?.younger);
            return younger.map(|younger| &younger.member);
        }
        let number = |member: &M| member.seat().number.load(Ordering::Relaxed);
        let removed = number(member);
        let mut members = self.iter().map(|(member, _)| member);
        members.find(|member| number(member) > removed)
    }

    /// Removes a member. Returns it with its value.
    pub fn remove(&mut self, member: &M) -> Option<(Arc<M>, V)> {
        let slot = self.slot_of(member)?;
        let Member { older, younger, .. } = *self.at(slot)?;
        self.link_older(older, younger);
        self.link_younger(younger, older);
        let removed = self.members.swap_remove(slot as usize)?;
        // The last member was moved into this slot.
        if let Some(moved) = self.at(slot) {
            let (older, younger) = (moved.older, moved.younger);
            moved.member.seat().slot.store(slot, Ordering::Relaxed);
            self.link_older(older, slot);
            self.link_younger(younger, slot);
        }
        removed.member.seat().slot.store(NONE, Ordering::Relaxed);
        Some((removed.member, removed.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[derive(Default)]
    struct Thing(Seat);

    impl Seated for Thing {
        fn seat(&self) -> &Seat {
            &self.0
        }
    }

    impl Roster<Thing, u64> {
        /// Checks that the roster contains the members of the model, in the same order when read from the oldest and
        /// from the youngest one.
        fn check(&self, model: &[(Arc<Thing>, u64)]) {
            assert_eq!(
                (self.len(), self.is_empty()),
                (model.len(), model.is_empty())
            );
            let same = |(one, value): (&Arc<Thing>, &u64), other: &(Arc<Thing>, u64)| {
                Arc::ptr_eq(one, &other.0) && *value == other.1
            };
            let forward = self
                .iter()
                .zip(model)
                .filter(|(one, other)| same(*one, other));
            assert_eq!(
                (forward.count(), self.iter().count()),
                (model.len(), model.len())
            );
            let mut slot = self.youngest;
            for (thing, _) in model.iter().rev() {
                let member = self.at(slot).unwrap();
                assert!(Arc::ptr_eq(&member.member, thing));
                slot = member.older;
            }
            assert_eq!(slot, NONE);
        }
    }

    #[test]
    fn it_is_a_list_in_order_of_age() {
        let (mut roster, mut model) = (Roster::default(), Vec::new());
        let mut removed = Vec::new();
        let mut random = 1_u64;
        for step in 0..4000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let place = (random >> 33) as usize % model.len().max(1);
            // The roster grows for 500 steps and then shrinks for 500, alternately.
            if (random >> 60) % 4 < if step / 500 % 2 == 0 { 3 } else { 1 } {
                let thing = Arc::new(Thing::default());
                roster.try_push(&thing, step).unwrap();
                model.push((thing, step));
            } else if !model.is_empty() {
                let (thing, value): (Arc<Thing>, u64) = model.remove(place);
                let found = roster.remove(&thing).unwrap();
                assert!(Arc::ptr_eq(&found.0, &thing));
                assert_eq!((found.1, roster.get_mut(&thing)), (value, None));
                assert!(roster.remove(&thing).is_none() && !roster.contains(&thing));
                removed.push((thing, place));
            }
            if let Some((thing, value)) = model.get_mut(place) {
                *value += 1;
                *roster.get_mut(thing).unwrap() += 1;
            }
            if let Some((thing, _)) = model.get(place) {
                let younger = roster.younger_than(Some(thing));
                let expected = model.get(place + 1).map(|(thing, _)| thing);
                assert_eq!(younger.map(Arc::as_ptr), expected.map(Arc::as_ptr));
            }
            roster.check(&model);
        }
        assert_eq!(roster.values_mut().count(), model.len());
    }

    #[test]
    fn a_removed_member_still_has_a_place_in_the_order() {
        let mut roster = Roster::default();
        let things: Vec<Arc<Thing>> = (0..5).map(|_| Arc::default()).collect();
        for thing in &things {
            roster.try_push(thing, ()).unwrap();
        }
        roster.remove(&things[1]).unwrap();
        roster.remove(&things[2]).unwrap();
        roster.remove(&things[4]).unwrap();
        let next = |after: Option<usize>| {
            let younger = roster.younger_than(after.map(|after| &*things[after]))?;
            things.iter().position(|thing| Arc::ptr_eq(thing, younger))
        };
        assert_eq!(next(None), Some(0));
        assert_eq!([0, 1, 2].map(|after| next(Some(after))), [Some(3); 3]);
        assert_eq!([3, 4].map(|after| next(Some(after))), [None; 2]);
    }

    #[test]
    fn without_memory_nothing_changes() {
        let mut roster = Roster::default();
        for number in 0..200 {
            let thing = Arc::new(Thing::default());
            memwright_table::handle::fail_heap_after(Some(0));
            let pushed = roster.try_push(&thing, number);
            memwright_table::handle::fail_heap_after(None);
            assert_eq!(roster.contains(&thing), pushed.is_ok());
            if pushed.is_err() {
                roster.try_push(&thing, number).unwrap();
            }
            assert!(roster.iter().map(|(_, value)| *value).eq(0..=number));
        }
    }
}
