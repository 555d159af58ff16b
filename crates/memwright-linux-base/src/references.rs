//! A list of weak references. References to freed objects are removed when the list grows.

use crate::{sweep::Sweep, sync::Grows};
use alloc::{boxed::Box, sync::Weak};
use memwright_table::{OutOfMemory, Rising};

/// Weak references in the order in which they were added. Most lists have at most one live reference, which needs no
/// memory from the heap. Each reference has a number, so that an iteration can continue after the list has changed.
pub struct References<T: ?Sized> {
    /// The first reference, whose number is 0.
    first: Option<Weak<T>>,
    /// The references after the first; `None` before one of them is added.
    further: Option<Box<Further<T>>>,
}

/// The references after the first.
struct Further<T: ?Sized> {
    /// The references. The reference with the number `n` in the complete list has the number `n - 1` here.
    list: Rising<Weak<T>>,
    sweep: Sweep,
}

/// Memory for another reference, which is allocated before the lock of the list is acquired.
pub struct Room<T: ?Sized> {
    further: Option<Box<Further<T>>>,
    list: <Rising<Weak<T>> as Grows>::Room,
}

impl<T: ?Sized> Default for References<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: ?Sized> References<T> {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self {
            first: None,
            further: None,
        }
    }

    /// Returns the references after the first.
    fn further(&self) -> Option<&Rising<Weak<T>>> {
        self.further.as_ref().map(|further| &further.list)
    }

    /// Returns the number of references, including those to freed objects.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.further().map_or(0, Rising::len)
    }

    /// Returns whether there is no reference, not even to a freed object.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns whether the next reference to be added can be stored as the first. This is the case if the first is
    /// absent or its object was freed, and no other references exist. If others existed, the new reference would
    /// precede older ones.
    fn can_replace_first(&self) -> bool {
        self.first.as_ref().is_none_or(is_gone) && self.further().is_none_or(Rising::is_empty)
    }

    /// Adds a reference. The list must [have room](Grows) for it.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn add(&mut self, reference: Weak<T>) -> Result<(), OutOfMemory> {
        if self.can_replace_first() {
            self.first = Some(reference);
            return Ok(());
        }
        let further = self.further.as_mut().ok_or(OutOfMemory)?;
        further.list.try_push(reference).map(drop)
    }

    /// Returns the reference with the number `number`, or the first reference after it. Also returns the number of that
    /// reference.
    pub fn first_from(&self, number: u64) -> Option<(u64, &Weak<T>)> {
        match number.checked_sub(1) {
            None => self.first.as_ref().map(|first| (0, first)),
            Some(number) => {
                let (number, reference) = self.further()?.first_from(number)?;
                Some((number + 1, reference))
            }
        }
    }

    /// Removes the reference with the number `number` and returns it. The first reference is not removed: `add`
    /// replaces it once its object is freed.
    pub fn remove(&mut self, number: u64) -> Option<Weak<T>> {
        self.further.as_mut()?.list.remove(number.checked_sub(1)?)
    }

    /// Removes the last reference.
    pub fn pop(&mut self) -> Option<Weak<T>> {
        let further = self.further.as_mut();
        let last = further.and_then(|further| further.list.pop());
        last.or_else(|| self.first.take())
    }

    /// Returns the last reference.
    fn last(&self) -> Option<&Weak<T>> {
        self.further()
            .and_then(Rising::last)
            .or(self.first.as_ref())
    }

    /// Returns whether the list has a reference to an object that still exists. Removes references to freed objects
    /// from the end of the list until it finds a live one.
    pub fn has_live(&mut self) -> bool {
        while let Some(last) = self.last() {
            if !is_gone(last) {
                return true;
            }
            self.pop();
        }
        false
    }

    /// Iterates over the references.
    pub fn iter(&self) -> impl Iterator<Item = &Weak<T>> {
        let further = self.further().into_iter().flat_map(Rising::iter);
        self.first.iter().chain(further)
    }
}

/// A list that is due for a sweep reports that it has no room. As a result, it is swept before it grows.
impl<T: ?Sized> Grows for References<T> {
    type Room = Room<T>;

    fn has_room(&self, _more: usize) -> bool {
        let has_room = |further: &Further<T>| !further.is_to_be_swept() && further.list.has_room();
        self.can_replace_first() || self.further.as_deref().is_some_and(has_room)
    }

    fn wanted(&self, _more: usize) -> usize {
        self.further().map_or(0, Rising::len)
    }

    fn with_room(length: usize) -> Result<Room<T>, OutOfMemory> {
        let list = <Rising<Weak<T>> as Grows>::with_room(length)?;
        let further = (length == 0).then(|| Box::new(Further::new()));
        Ok(Room { further, list })
    }

    fn take_room(&mut self, room: &mut Room<T>) {
        if self.further.is_none() {
            self.further = room.further.take();
        }
        if let Some(further) = &mut self.further {
            // Sweep before using the memory that was allocated for growth, because the sweep may free enough entries.
            further.sweep_if_due();
            further.list.take_room(&mut room.list);
        }
    }
}

impl<T: ?Sized> Further<T> {
    const fn new() -> Self {
        Self {
            list: Rising::new(),
            sweep: Sweep::new(),
        }
    }

    fn is_to_be_swept(&self) -> bool {
        self.sweep.is_due(self.list.len())
    }

    fn sweep_if_due(&mut self) {
        if self.is_to_be_swept() {
            self.list.retain(|reference| !is_gone(reference));
            self.sweep.done(self.list.len());
        }
    }
}

/// Returns whether the object of a reference was freed.
fn is_gone<T: ?Sized>(reference: &Weak<T>) -> bool {
    reference.strong_count() == 0
}

#[cfg(test)]
mod tests {
    use super::References;
    use crate::{draws::draws, sync::Grows};
    use alloc::{sync::Arc, vec::Vec};

    fn add(list: &mut References<u64>, object: &Arc<u64>) {
        while !list.has_room(1) {
            let room = References::with_room(list.wanted(1));
            list.take_room(&mut room.ok().unwrap());
        }
        list.add(Arc::downgrade(object)).unwrap();
    }

    #[test]
    fn live_objects_are_listed_in_the_order_of_their_arrival() {
        let (mut list, mut live) = (References::new(), Vec::new());
        let mut below = draws(1);
        for step in 0..20_000_u64 {
            let most = if step % 2000 < 1000 { 3 } else { 100 };
            if live.len() < most && below(4) != 0 {
                live.push(Arc::new(step));
                add(&mut list, &live[live.len() - 1]);
            } else if !live.is_empty() {
                live.remove(below(live.len()));
            }
            assert!(list.len() <= 2 * live.len().max(100) + 8);
            let (mut found, mut from) = (Vec::new(), 0);
            while let Some((number, object)) = list.first_from(from) {
                from = number + 1;
                found.extend(object.upgrade());
            }
            assert_eq!(found, live);
            assert!(
                list.iter()
                    .filter_map(|object| object.upgrade())
                    .eq(live.iter().cloned())
            );
        }
        live.truncate(1);
        assert_eq!(list.has_live(), !live.is_empty());
        live.clear();
        drop(live);
        assert!(!list.has_live() && list.is_empty());
    }

    #[test]
    fn one_live_reference_needs_no_memory() {
        let mut list = References::new();
        for number in 0..100 {
            let object = Arc::new(number);
            assert!(list.has_room(1));
            list.add(Arc::downgrade(&object)).unwrap();
            assert!(!list.has_room(1));
        }
        assert_eq!(list.len(), 1);
    }
}
