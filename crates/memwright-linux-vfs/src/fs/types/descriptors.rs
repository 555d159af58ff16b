//! Descriptor tables, which map descriptors (numbers) to open files.

use alloc::vec::Vec;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::PausePoints;
use memwright_table::{OutOfMemory, TryPush};

/// Maximum number of descriptors in a table (Linux's `sysctl_nr_open`).
pub const DESCRIPTORS_MAX: usize = 1 << 20;

#[derive(Clone, Debug)]
struct Slot<F> {
    file: F,
    close_on_exec: bool,
}

/// Numbers below this one are called near, the others far. One array contains the slots of all near numbers.
const NEAR: usize = 1024;
/// Number of slots in a block, which contains the slots of consecutive far numbers.
const TOGETHER: usize = 256;
/// Number of descriptors that are copied or marked between two scheduling points.
const SLOTS: u32 = 1024;

/// A table of descriptors that refer to values of type `F`. A program can use any number below [`DESCRIPTORS_MAX`], so
/// that a single array could be huge although most of its slots are free. The slots of far numbers are therefore stored
/// in blocks. A block has memory for its slots only while one of them is in use. A search skips blocks that are full or
/// empty.
#[derive(Debug)]
pub struct Descriptors<F> {
    near: Vec<Option<Slot<F>>>,
    /// The blocks of the far numbers, in order.
    far: Vec<Block<F>>,
    /// A lower bound of the lowest free number: all slots below this number are in use.
    lowest_free: usize,
}

/// A block of [`TOGETHER`] slots. It has memory for them only while one of them is in use.
#[derive(Debug)]
struct Block<F> {
    slots: Vec<Option<Slot<F>>>,
    /// Number of slots in use.
    open: usize,
}

impl<F> Block<F> {
    const fn new() -> Self {
        Self {
            slots: Vec::new(),
            open: 0,
        }
    }

    fn make_slots(&mut self) -> Result<(), OutOfMemory> {
        self.slots.try_make_room(TOGETHER - self.slots.len())?;
        while self.slots.len() < TOGETHER {
            self.slots.try_push(None)?;
        }
        Ok(())
    }

    /// Returns the smallest index, starting at `from`, of a free slot of the block.
    fn first_free(&self, from: usize) -> Option<usize> {
        if self.open == TOGETHER {
            return None;
        }
        let slots = self.slots.get(from..).unwrap_or_default();
        let free = slots.iter().position(Option::is_none);
        match free {
            None if self.slots.is_empty() => Some(from),
            found => Some(from + found?),
        }
    }

    /// Returns the smallest index, starting at `from`, of a slot that is in use and for which `wanted` returns true.
    fn first_open(&self, from: usize, wanted: &impl Fn(&Slot<F>) -> bool) -> Option<usize> {
        if self.open == 0 {
            return None;
        }
        first_open(&self.slots, from, wanted)
    }
}

fn first_open<F>(
    slots: &[Option<Slot<F>>],
    from: usize,
    wanted: &impl Fn(&Slot<F>) -> bool,
) -> Option<usize> {
    let mut rest = slots.get(from..)?.iter();
    let found = rest.position(|slot| slot.as_ref().is_some_and(wanted))?;
    Some(from + found)
}

/// Returns the index of the block with a far number, and the index of the slot in that block; `None` for a near number.
fn place(number: usize) -> Option<(usize, usize)> {
    let far = number.checked_sub(NEAR)?;
    Some((far / TOGETHER, far % TOGETHER))
}

/// Returns the far number of the slot `within` of the block `block`.
fn number_of(block: usize, within: usize) -> usize {
    NEAR + block * TOGETHER + within
}

impl<F> Default for Descriptors<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F> Descriptors<F> {
    /// Creates an empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            near: Vec::new(),
            far: Vec::new(),
            lowest_free: 0,
        }
    }

    #[inline]
    fn slot(&self, descriptor: i32) -> Option<&Slot<F>> {
        let number = usize::try_from(descriptor).ok()?;
        match self.near.get(number) {
            Some(slot) => slot.as_ref(),
            None => self.far_slot(number),
        }
    }

    #[inline(never)]
    fn far_slot(&self, number: usize) -> Option<&Slot<F>> {
        let (block, within) = place(number)?;
        self.far.get(block)?.slots.get(within)?.as_ref()
    }

    /// Returns the file that `descriptor` refers to, or `None` if it is not open.
    #[must_use]
    pub fn get(&self, descriptor: i32) -> Option<&F> {
        self.slot(descriptor).map(|slot| &slot.file)
    }

    /// Returns whether `execve` closes `descriptor`; `None` if it is not open.
    #[must_use]
    pub fn close_on_exec(&self, descriptor: i32) -> Option<bool> {
        self.slot(descriptor).map(|slot| slot.close_on_exec)
    }

    /// Sets whether `execve` closes `descriptor`. Returns `None` if it is not open.
    pub fn set_close_on_exec(&mut self, descriptor: i32, close_on_exec: bool) -> Option<()> {
        let number = usize::try_from(descriptor).ok()?;
        let slot = match place(number) {
            None => self.near.get_mut(number)?,
            Some((block, within)) => self.far.get_mut(block)?.slots.get_mut(within)?,
        };
        slot.as_mut()?.close_on_exec = close_on_exec;
        Some(())
    }

    /// Marks the descriptors from `first` to `last` close-on-exec.
    ///
    /// # Locks
    /// The caller holds no lock except those that [sleep](memwright_linux_base::sync::Rank::sleeps).
    pub fn mark_range(&mut self, first: usize, last: usize) {
        let mut points = PausePoints::every(SLOTS);
        let mut from = first;
        while let Some(number) = self.first_open(from, |_| true) {
            if number > last {
                return;
            }
            let _ = i32::try_from(number).map(|number| self.set_close_on_exec(number, true));
            from = number + 1;
            points.round();
        }
    }

    /// Stores `slot` at `number`, and extends the table if necessary. Returns the previous slot.
    fn put(&mut self, number: usize, slot: Slot<F>) -> Result<Option<Slot<F>>, OutOfMemory> {
        while self.near.len() < (number + 1).min(NEAR) {
            self.near.try_push(None)?;
        }
        let Some((number, within)) = place(number) else {
            return Ok(self.near[number].replace(slot));
        };
        while self.far.len() <= number {
            self.far.try_push(Block::new())?;
        }
        let block = &mut self.far[number];
        block.make_slots()?;
        let old = block.slots[within].replace(slot);
        block.open += usize::from(old.is_none());
        Ok(old)
    }

    /// Fills this empty table with a copy of `other`: each number refers to the same file as in `other`.
    ///
    /// # Locks
    /// The caller holds no lock except those that [sleep](memwright_linux_base::sync::Rank::sleeps).
    ///
    /// # Errors
    /// [`OutOfMemory`] if the heap is exhausted. Some descriptors may have been copied then.
    pub fn try_clone_from(&mut self, other: &Self) -> Result<(), OutOfMemory>
    where
        F: Clone,
    {
        self.near.try_make_room(other.near.len())?;
        for slot in &other.near {
            self.near.try_push(slot.clone())?;
        }
        self.far.try_make_room(other.far.len())?;
        let mut points = PausePoints::every(SLOTS / TOGETHER as u32);
        for block in &other.far {
            self.far.try_push(Block::new())?;
            let Some(copy) = self.far.last_mut().filter(|_| block.open > 0) else {
                continue;
            };
            copy.slots.try_make_room(TOGETHER)?;
            for slot in &block.slots {
                copy.slots.try_push(slot.clone())?;
                copy.open += usize::from(slot.is_some());
            }
            points.round();
        }
        self.lowest_free = other.lowest_free;
        Ok(())
    }

    /// Returns the lowest free number that is at least `from`.
    fn first_free(&self, from: usize) -> usize {
        let mut near = self.near.iter().skip(from);
        if let Some(found) = near.position(Option::is_none) {
            return from + found;
        }
        let from = from.max(self.near.len());
        let Some((first, within)) = place(from) else {
            return from;
        };
        let mut within = within;
        for (number, block) in self.far.iter().enumerate().skip(first) {
            if let Some(found) = block.first_free(within) {
                return number_of(number, found);
            }
            within = 0;
        }
        from.max(number_of(self.far.len(), 0))
    }

    /// Returns the lowest number that is at least `from`, is in use, and for which `wanted` returns true.
    fn first_open(&self, from: usize, wanted: impl Fn(&Slot<F>) -> bool) -> Option<usize> {
        if let Some(found) = first_open(&self.near, from, &wanted) {
            return Some(found);
        }
        let (first, mut within) = place(from.max(NEAR))?;
        for (number, block) in self.far.iter().enumerate().skip(first) {
            if let Some(found) = block.first_open(within, &wanted) {
                return Some(number_of(number, found));
            }
            within = 0;
        }
        None
    }

    /// Checks that some number below `limit` is free.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn check_free(&self, limit: usize) -> Result<(), Errno> {
        self.lowest_below(0, limit).map(|_| ())
    }

    /// Returns the lowest free number that is at least `from` and below `limit`.
    fn lowest_below(&self, from: usize, limit: usize) -> Result<usize, Errno> {
        let number = self.first_free(from.max(self.lowest_free));
        if number >= limit.min(DESCRIPTORS_MAX) {
            return Err(Errno::EMFILE);
        }
        Ok(number)
    }

    /// Installs `file` at the lowest free number that is at least `from` and below `limit`.
    ///
    /// # Errors
    /// `EMFILE` if no such number is free, `ENOMEM` if the table cannot grow.
    pub fn allocate(
        &mut self,
        from: usize,
        limit: usize,
        file: F,
        close_on_exec: bool,
    ) -> Result<i32, Errno> {
        let number = self.lowest_below(from, limit)?;
        let slot = Slot {
            file,
            close_on_exec,
        };
        self.put(number, slot).map_err(|_| Errno::ENOMEM)?;
        if from <= self.lowest_free {
            self.lowest_free = number + 1;
        }
        i32::try_from(number).map_err(|_| Errno::EMFILE)
    }

    /// Installs `file` as `descriptor`. Returns the file that `descriptor` referred to before.
    ///
    /// # Errors
    /// `EBADF` if the number is negative or not below `limit`, `ENOMEM` if the table cannot grow.
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
        let slot = Slot {
            file,
            close_on_exec,
        };
        let old = self.put(number, slot).map_err(|_| Errno::ENOMEM)?;
        Ok(old.map(|slot| slot.file))
    }

    /// Frees `descriptor`. Returns the file to which it referred, or `None` if it was not open.
    pub fn remove(&mut self, descriptor: i32) -> Option<F> {
        let number = usize::try_from(descriptor).ok()?;
        let slot = match place(number) {
            None => self.near.get_mut(number)?.take()?,
            Some((block, within)) => {
                let block = self.far.get_mut(block)?;
                let slot = block.slots.get_mut(within)?.take()?;
                block.open -= 1;
                if block.open == 0 {
                    block.slots = Vec::new();
                }
                slot
            }
        };
        self.lowest_free = self.lowest_free.min(number);
        Some(slot.file)
    }

    /// Returns the lowest open descriptor that is at least `from`.
    #[must_use]
    pub fn next_open(&self, from: usize) -> Option<(i32, &F)> {
        let number = i32::try_from(self.first_open(from, |_| true)?).ok()?;
        Some((number, self.get(number)?))
    }

    /// Frees the lowest open descriptor that is at least `from`. Returns its number and its file.
    pub fn take_open(&mut self, from: usize) -> Option<(usize, F)> {
        self.take_where(from, |_| true)
    }

    /// Frees the lowest close-on-exec descriptor that is at least `from`. Returns its number and its file.
    pub fn take_close_on_exec(&mut self, from: usize) -> Option<(usize, F)> {
        self.take_where(from, |slot| slot.close_on_exec)
    }

    fn take_where(&mut self, from: usize, wanted: impl Fn(&Slot<F>) -> bool) -> Option<(usize, F)> {
        let number = self.first_open(from, wanted)?;
        let file = self.remove(i32::try_from(number).ok()?)?;
        Some((number, file))
    }

    /// Returns the table's capacity in slots, as `FDSize` in `/proc/PID/status` reports it.
    #[must_use]
    pub fn size(&self) -> usize {
        let slots = self.near.len() + self.far.len() * TOGETHER;
        slots.next_multiple_of(64).max(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use memwright_linux_base::draws::draws;

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
        assert_eq!(table.check_free(1), Err(Errno::EMFILE));
        assert_eq!(table.check_free(2), Ok(()));
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
        let mut other = Descriptors::new();
        other.try_clone_from(&table).unwrap();
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

    /// Compares the table with a plain list of files after random allocations, replacements, removals and lookups.
    #[test]
    fn full_and_empty_blocks_are_passed_over_rightly() {
        let mut table = Descriptors::new();
        let mut plain = vec![None; 4 * NEAR];
        let mut below = draws(1);
        for round in 0..40_000 {
            // The first half of the rounds fills the table, and the second half empties it.
            let number = below(plain.len());
            match below(if round < 20_000 { 3 } else { 7 }) {
                0 | 1 if round < 20_000 => {
                    let from = below(plain.len());
                    let free = (from..plain.len()).find(|&number| plain[number].is_none());
                    let given = table.allocate(from, plain.len(), round, round % 2 == 0);
                    assert_eq!(given.ok(), free.map(|free| free as i32));
                    free.into_iter().for_each(|free| plain[free] = Some(round));
                }
                2 => {
                    let old = table.replace(number as i32, plain.len(), round, false);
                    assert_eq!(old, Ok(plain[number].replace(round)));
                }
                3 => {
                    let open = (number..plain.len()).find(|&number| plain[number].is_some());
                    let next = table
                        .next_open(number)
                        .map(|(next, &file)| (next, Some(file)));
                    assert_eq!(next, open.map(|open| (open as i32, plain[open])));
                }
                _ => assert_eq!(table.remove(number as i32), plain[number].take()),
            }
        }
    }
}
