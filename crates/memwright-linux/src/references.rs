//! A list of weak references. The references to freed objects are removed when the list grows.

use crate::sweep::Sweep;
use alloc::sync::Weak;
use memwright_table::{OutOfMemory, Rising};

/// Weak references in the order in which they were added. Most lists have at most one live reference, which needs no
/// memory from the heap. Each reference has a number, so that an iteration can continue after a change of the list.
pub struct References<T: ?Sized> {
    /// The first reference, whose number is 0.
    first: Option<Weak<T>>,
    /// The references that were added while the list had a live one. Their numbers here are lower by 1.
    further: Rising<Weak<T>>,
    sweep: Sweep,
}

impl<T: ?Sized> References<T> {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self {
            first: None,
            further: Rising::new(),
            sweep: Sweep::new(),
        }
    }

    /// Returns the number of references, including those to freed objects.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.further.len()
    }

    /// Returns whether there is no reference, not even to a freed object.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Adds a reference if that needs no memory, because the list has no live one. Otherwise returns the reference as
    /// the error, and sweeps the list if that is due: the caller then makes room in [`Self::further`] and calls
    /// [`Self::add`].
    ///
    /// # Errors
    /// The reference.
    pub fn add_first(&mut self, reference: Weak<T>) -> Result<(), Weak<T>> {
        if self.sweep.is_due(self.further.len()) {
            self.further.retain(|other| other.strong_count() > 0);
            self.sweep.done(self.further.len());
        }
        // A reference in place of the first one would otherwise come before older ones.
        let is_alone = self.further.is_empty();
        if is_alone && self.first.as_ref().is_none_or(|first| is_gone(first)) {
            self.first = Some(reference);
            return Ok(());
        }
        Err(reference)
    }

    /// The list that must have room for one more reference before [`Self::add`].
    pub fn further(&mut self) -> &mut Rising<Weak<T>> {
        &mut self.further
    }

    /// Adds a reference.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn add(&mut self, reference: Weak<T>) -> Result<(), OutOfMemory> {
        if self.first.is_none() {
            self.first = Some(reference);
            return Ok(());
        }
        self.further.try_push(reference).map(drop)
    }

    /// Returns the reference with this number, or the first one after it.
    pub fn first_from(&self, number: u64) -> Option<(u64, &Weak<T>)> {
        match number.checked_sub(1) {
            None => self.first.as_ref().map(|first| (0, first)),
            Some(number) => {
                let (number, reference) = self.further.first_from(number)?;
                Some((number + 1, reference))
            }
        }
    }

    /// Removes the reference with this number, unless it is the first: that one stays to be replaced.
    pub fn remove(&mut self, number: u64) -> Option<Weak<T>> {
        self.further.remove(number.checked_sub(1)?)
    }

    /// Removes the last reference.
    pub fn pop(&mut self) -> Option<Weak<T>> {
        self.further.pop().or_else(|| self.first.take())
    }

    /// Returns whether any object of the list still exists. Drops the references to freed objects from the end of the
    /// list.
    pub fn has_live(&mut self) -> bool {
        while let Some(last) = self.further.last().or(self.first.as_ref()) {
            if !is_gone(last) {
                return true;
            }
            self.pop();
        }
        false
    }

    /// Iterates over the references.
    pub fn iter(&self) -> impl Iterator<Item = &Weak<T>> {
        self.first.iter().chain(self.further.iter())
    }
}

/// Returns whether the object was freed.
fn is_gone<T: ?Sized>(reference: &Weak<T>) -> bool {
    reference.strong_count() == 0
}

#[cfg(test)]
mod tests {
    use super::References;
    use alloc::{sync::Arc, vec::Vec};

    fn add(list: &mut References<u64>, object: &Arc<u64>) {
        if let Err(reference) = list.add_first(Arc::downgrade(object)) {
            list.add(reference).unwrap();
        }
    }

    #[test]
    fn live_objects_are_listed_in_the_order_of_their_arrival() {
        let (mut list, mut live) = (References::new(), Vec::new());
        let mut random = 1_u64;
        for step in 0..20_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let draw = (random >> 33) as usize;
            let most = if step % 2000 < 1000 { 3 } else { 100 };
            if live.len() < most && !draw.is_multiple_of(4) {
                live.push(Arc::new(step));
                add(&mut list, &live[live.len() - 1]);
            } else if !live.is_empty() {
                live.remove(draw % live.len());
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
            assert!(list.add_first(Arc::downgrade(&object)).is_ok());
            let second = Arc::new(number);
            assert!(list.add_first(Arc::downgrade(&second)).is_err());
        }
        assert_eq!(list.len(), 1);
    }
}
