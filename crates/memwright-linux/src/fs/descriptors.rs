//! Descriptor numbers: which are taken, and by what.

use crate::errno::Errno;
use alloc::vec::Vec;

/// Largest number of descriptors a table can hold (Linux's `sysctl_nr_open`).
pub const DESCRIPTORS_MAX: usize = 1 << 20;

#[derive(Clone, Debug)]
struct Slot<F> {
    file: F,
    close_on_exec: bool,
}

/// A table of descriptors, whatever they stand for.
#[derive(Clone, Debug)]
pub struct Descriptors<F> {
    slots: Vec<Option<Slot<F>>>,
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
            slots: Vec::new(),
            lowest_free: 0,
        }
    }

    fn slot(&self, descriptor: i32) -> Option<&Slot<F>> {
        self.slots.get(usize::try_from(descriptor).ok()?)?.as_ref()
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
        let slot = self.slots.get_mut(usize::try_from(descriptor).ok()?)?;
        slot.as_mut()?.close_on_exec = close_on_exec;
        Some(())
    }

    fn make_room(&mut self, descriptor: usize) -> Result<(), Errno> {
        if descriptor >= self.slots.len() {
            let more = descriptor + 1 - self.slots.len();
            self.slots.try_reserve(more).map_err(|_| Errno::ENOMEM)?;
            self.slots.resize_with(descriptor + 1, || None);
        }
        Ok(())
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
        while self.slots.get(number).is_some_and(Option::is_some) {
            number += 1;
        }
        if number >= limit {
            return Err(Errno::EMFILE);
        }
        self.make_room(number)?;
        self.slots[number] = Some(Slot {
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
        self.make_room(number)?;
        let old = self.slots[number].replace(Slot {
            file,
            close_on_exec,
        });
        Ok(old.map(|slot| slot.file))
    }

    /// Frees `descriptor` and returns what it stood for.
    pub fn remove(&mut self, descriptor: i32) -> Option<F> {
        let number = usize::try_from(descriptor).ok()?;
        let slot = self.slots.get_mut(number)?.take()?;
        self.lowest_free = self.lowest_free.min(number);
        Some(slot.file)
    }

    /// The lowest open descriptor that is at least `from`.
    #[must_use]
    pub fn next_open(&self, from: usize) -> Option<(i32, &F)> {
        let (number, slot) = self
            .slots
            .iter()
            .enumerate()
            .skip(from)
            .find_map(|(number, slot)| Some((number, slot.as_ref()?)))?;
        Some((i32::try_from(number).ok()?, &slot.file))
    }

    /// Frees the lowest descriptor that `execve` closes.
    pub fn take_close_on_exec(&mut self) -> Option<F> {
        let number = self
            .slots
            .iter()
            .position(|slot| slot.as_ref().is_some_and(|slot| slot.close_on_exec))?;
        self.remove(i32::try_from(number).ok()?)
    }

    /// Number of slots the table has room for, as `FDSize` in `/proc/PID/status` shows it.
    #[must_use]
    pub fn size(&self) -> usize {
        self.slots.len().next_multiple_of(64).max(64)
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
        assert_eq!(table.take_close_on_exec(), Some(1));
        assert_eq!(table.take_close_on_exec(), Some(2));
        assert_eq!(table.take_close_on_exec(), Some(3));
        assert_eq!(table.take_close_on_exec(), None);
        assert_eq!(table.next_open(0), Some((0, &0)));
        assert_eq!(table.next_open(1), None);
        assert_eq!(table.allocate(0, 16, 9, false), Ok(1));
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
