//! Descriptor numbers: which are taken, and by what.

use crate::{errno::Errno, paged::Paged};
use alloc::vec::Vec;
use memwright_table::{OutOfMemory, TryPush};

/// Largest number of descriptors a table can hold (Linux's `sysctl_nr_open`).
pub const DESCRIPTORS_MAX: usize = 1 << 20;

#[derive(Clone, Debug)]
struct Slot<F> {
    file: F,
    close_on_exec: bool,
}

/// Numbers below this one are near: their slots stand in one piece.
const NEAR: usize = 1024;

/// A table of descriptors, whatever they stand for. A program may ask for the last number of a million, and for room for
/// all before it: but for the near ones slots stand in blocks of a page.
#[derive(Debug)]
pub struct Descriptors<F> {
    near: Vec<Option<Slot<F>>>,
    /// Those from [`NEAR`] on; none while fewer are near.
    far: Paged<Option<Slot<F>>>,
    /// No free slot stands below this one.
    lowest_free: usize,
}

impl<F> Default for Descriptors<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F> Descriptors<F> {
    /// An empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            near: Vec::new(),
            far: Paged::new(),
            lowest_free: 0,
        }
    }

    /// Slots there are.
    fn len(&self) -> usize {
        self.near.len() + self.far.len()
    }

    #[inline]
    fn at(&self, number: usize) -> Option<&Option<Slot<F>>> {
        match self.near.get(number) {
            Some(slot) => Some(slot),
            None => self.far.get(number.checked_sub(NEAR)?),
        }
    }

    fn at_mut(&mut self, number: usize) -> Option<&mut Option<Slot<F>>> {
        if number < NEAR {
            self.near.get_mut(number)
        } else {
            self.far.get_mut(number - NEAR)
        }
    }

    #[inline]
    fn slot(&self, descriptor: i32) -> Option<&Slot<F>> {
        self.at(usize::try_from(descriptor).ok()?)?.as_ref()
    }

    /// What `descriptor` stands for.
    #[must_use]
    pub fn get(&self, descriptor: i32) -> Option<&F> {
        self.slot(descriptor).map(|slot| &slot.file)
    }

    /// Whether `descriptor` is closed by `execve`.
    #[must_use]
    pub fn close_on_exec(&self, descriptor: i32) -> Option<bool> {
        self.slot(descriptor).map(|slot| slot.close_on_exec)
    }

    /// Sets whether `descriptor` is closed by `execve`; `None` if it is not open.
    pub fn set_close_on_exec(&mut self, descriptor: i32, close_on_exec: bool) -> Option<()> {
        let slot = self.at_mut(usize::try_from(descriptor).ok()?)?;
        slot.as_mut()?.close_on_exec = close_on_exec;
        Some(())
    }

    /// The slot of this number, which may be beyond the end.
    fn make_slot(&mut self, number: usize) -> Result<&mut Option<Slot<F>>, Errno> {
        let near = (number + 1).min(NEAR);
        while self.near.len() < near {
            self.near.try_push(None).map_err(|_| Errno::ENOMEM)?;
        }
        let far = (number + 1).saturating_sub(NEAR);
        let filled = self.far.try_fill_with(far, || None);
        filled.map_err(|_| Errno::ENOMEM)?;
        self.at_mut(number).ok_or(Errno::ENOMEM)
    }

    /// A table in which the same numbers stand for the same.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    #[allow(clippy::disallowed_methods, reason = "room was made")]
    pub fn try_clone(&self) -> Result<Self, OutOfMemory>
    where
        F: Clone,
    {
        let mut near = Vec::new();
        near.try_make_room(self.near.len())?;
        near.extend(self.near.iter().cloned());
        let mut far = Paged::new();
        for slot in self.far.iter() {
            far.try_push(slot.clone())?;
        }
        Ok(Self {
            near,
            far,
            lowest_free: self.lowest_free,
        })
    }

    /// The slots from this number on, with their numbers.
    fn slots_from(&self, from: usize) -> impl Iterator<Item = (usize, &Option<Slot<F>>)> {
        let near = self.near.get(from..).unwrap_or_default();
        let far = self.far.iter_from(from.saturating_sub(NEAR));
        (from..).zip(near.iter().chain(far))
    }

    /// Gives `file` the lowest free number that is at least `from` and below `limit`.
    ///
    /// # Errors
    /// `EMFILE` when no such number is free, `ENOMEM` when the table cannot grow.
    pub fn allocate(
        &mut self,
        from: usize,
        limit: usize,
        file: F,
        close_on_exec: bool,
    ) -> Result<i32, Errno> {
        let limit = limit.min(DESCRIPTORS_MAX);
        let mut number = from.max(self.lowest_free);
        while self.at(number).is_some_and(Option::is_some) {
            number += 1;
        }
        if number >= limit {
            return Err(Errno::EMFILE);
        }
        *self.make_slot(number)? = Some(Slot {
            file,
            close_on_exec,
        });
        if from <= self.lowest_free {
            self.lowest_free = number + 1;
        }
        i32::try_from(number).map_err(|_| Errno::EMFILE)
    }

    /// Puts `file` at exactly this number and returns what stood there.
    ///
    /// # Errors
    /// `EBADF` when the number is negative or not below `limit`, `ENOMEM` when the table cannot
    /// grow.
    pub fn replace(
        &mut self,
        descriptor: i32,
        limit: usize,
        file: F,
        close_on_exec: bool,
    ) -> Result<Option<F>, Errno> {
        let number = usize::try_from(descriptor).map_err(|_| Errno::EBADF)?;
        if number >= limit.min(DESCRIPTORS_MAX) {
            return Err(Errno::EBADF);
        }
        let old = self.make_slot(number)?.replace(Slot {
            file,
            close_on_exec,
        });
        Ok(old.map(|slot| slot.file))
    }

    /// Frees `descriptor` and returns what it stood for.
    pub fn remove(&mut self, descriptor: i32) -> Option<F> {
        let number = usize::try_from(descriptor).ok()?;
        let slot = self.at_mut(number)?.take()?;
        self.lowest_free = self.lowest_free.min(number);
        Some(slot.file)
    }

    /// The lowest open descriptor that is at least `from`.
    #[must_use]
    pub fn next_open(&self, from: usize) -> Option<(i32, &F)> {
        let mut slots = self.slots_from(from);
        let (number, slot) = slots.find_map(|(number, slot)| Some((number, slot.as_ref()?)))?;
        Some((i32::try_from(number).ok()?, &slot.file))
    }

    /// Frees the lowest open descriptor from `from` on, and returns its number too.
    pub fn take_open(&mut self, from: usize) -> Option<(usize, F)> {
        self.take_where(from, |_| true)
    }

    /// Frees the lowest descriptor from `from` on that `execve` closes, and returns its number too.
    pub fn take_close_on_exec(&mut self, from: usize) -> Option<(usize, F)> {
        self.take_where(from, |slot| slot.close_on_exec)
    }

    fn take_where(&mut self, from: usize, wanted: impl Fn(&Slot<F>) -> bool) -> Option<(usize, F)> {
        let wanted = |slot: &Option<Slot<F>>| slot.as_ref().is_some_and(&wanted);
        let (number, _) = self.slots_from(from).find(|(_, slot)| wanted(slot))?;
        let file = self.remove(i32::try_from(number).ok()?)?;
        Some((number, file))
    }

    /// Number of slots the table has room for, as `FDSize` in `/proc/PID/status` shows it.
    #[must_use]
    pub fn size(&self) -> usize {
        self.len().next_multiple_of(64).max(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_given() {
        let mut table = Descriptors::new();
        for number in 0..5 {
            assert_eq!(table.allocate(0, 1024, number, false), Ok(number));
        }
        assert_eq!(table.remove(1), Some(1));
        assert_eq!(table.remove(3), Some(3));
        assert_eq!(table.remove(3), None);
        assert_eq!(table.allocate(2, 1024, 30, false), Ok(3));
        assert_eq!(table.allocate(0, 1024, 10, true), Ok(1));
        assert_eq!(table.allocate(0, 1024, 50, false), Ok(5));
        assert_eq!(table.allocate(10, 1024, 100, false), Ok(10));
        assert_eq!(table.allocate(0, 1024, 60, false), Ok(6));
        assert_eq!(table.close_on_exec(1), Some(true));
        assert_eq!(table.close_on_exec(7), None);
    }

    #[test]
    fn limits_are_kept() {
        let mut table = Descriptors::new();
        assert_eq!(table.allocate(0, 2, 'a', false), Ok(0));
        assert_eq!(table.allocate(5, 2, 'b', false), Err(Errno::EMFILE));
        assert_eq!(table.allocate(0, 2, 'b', false), Ok(1));
        assert_eq!(table.allocate(0, 2, 'c', false), Err(Errno::EMFILE));
        assert_eq!(table.replace(2, 2, 'c', false), Err(Errno::EBADF));
        assert_eq!(table.replace(-1, 2, 'c', false), Err(Errno::EBADF));
        assert_eq!(table.replace(1, 2, 'c', true), Ok(Some('b')));
        assert_eq!(table.get(1), Some(&'c'));
        assert_eq!(table.get(-1), None);
        assert_eq!(table.get(i32::MAX), None);
    }

    #[test]
    fn exec_closes_what_is_marked() {
        let mut table = Descriptors::new();
        for (number, marked) in [false, true, false, true].into_iter().enumerate() {
            table.allocate(0, 16, number, marked).unwrap();
        }
        assert_eq!(table.set_close_on_exec(2, true), Some(()));
        assert_eq!(table.take_close_on_exec(0), Some((1, 1)));
        assert_eq!(table.take_close_on_exec(1), Some((2, 2)));
        assert_eq!(table.take_close_on_exec(0), Some((3, 3)));
        assert_eq!(table.take_close_on_exec(0), None);
        assert_eq!(table.next_open(0), Some((0, &0)));
        assert_eq!(table.next_open(1), None);
        assert_eq!(table.allocate(0, 16, 9, false), Ok(1));
    }

    #[test]
    fn far_descriptors_are_like_near_ones() {
        let most = DESCRIPTORS_MAX as i32;
        let far = [1023, 1024, 1025, 5000, most - 1];
        let mut table = Descriptors::new();
        for number in far {
            assert_eq!(table.replace(number, usize::MAX, number, true), Ok(None));
        }
        assert_eq!(table.replace(most, usize::MAX, 0, true), Err(Errno::EBADF));
        assert_eq!(table.size(), DESCRIPTORS_MAX);
        let mut other = table.try_clone().unwrap();
        assert_eq!(table.remove(1024), Some(1024));
        let mut from = 0;
        let mut found = Vec::new();
        while let Some((number, &file)) = other.next_open(from) {
            assert_eq!(number, file);
            found.push(number);
            from = number as usize + 1;
        }
        assert_eq!(found, far);
        assert_eq!(table.get(1024), None);
        assert_eq!(table.allocate(1023, usize::MAX, 7, false), Ok(1024));
        assert_eq!(other.get(1024), Some(&1024));
        let mut from = 0;
        let mut closed = Vec::new();
        while let Some((number, _)) = other.take_close_on_exec(from) {
            closed.push(number as i32);
            from = number;
        }
        assert_eq!(closed, far);
    }

    #[test]
    fn replacing_beyond_the_end_keeps_the_lowest_free() {
        let mut table = Descriptors::new();
        assert_eq!(table.replace(3, 16, 'x', false), Ok(None));
        assert_eq!(table.replace(0, 16, 'y', false), Ok(None));
        assert_eq!(table.allocate(0, 16, 'a', false), Ok(1));
        assert_eq!(table.allocate(0, 16, 'b', false), Ok(2));
        assert_eq!(table.allocate(0, 16, 'c', false), Ok(4));
    }
}
