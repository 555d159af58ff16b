//! Singly linked lists whose cells are allocated from one pool.
//!
//! The owner of a list stores the number of its first cell. The heap of a kernel may be unable to allocate large
//! blocks, so the cells are stored in [blocks](crate::types::blocks).

use memwright_table::OutOfMemory;

use crate::types::blocks::Blocks;

/// A list: the number of its first cell, and its length. The cells are in a [`Chains`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    first: u32,
    len: u32,
}

impl Chain {
    /// A list without values.
    pub(crate) const EMPTY: Self = Self {
        first: NONE,
        len: 0,
    };

    /// Returns the number of values.
    pub(crate) fn len(self) -> u32 {
        self.len
    }
}

/// The number that means "no cell".
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Cell<T> {
    value: T,
    /// The next cell of the list. In a vacant cell, the next vacant one. [`NONE`] for the last cell.
    next: u32,
}

/// The cells of all lists of one kind.
#[derive(Debug)]
pub(crate) struct Chains<T> {
    cells: Blocks<Cell<T>>,
    /// The first vacant cell.
    vacant: u32,
}

impl<T: Copy> Chains<T> {
    pub(crate) const fn new() -> Self {
        Self {
            cells: Blocks::new(),
            vacant: NONE,
        }
    }

    /// Returns the number of bytes that the cells take, including vacant cells.
    pub(crate) fn bytes(&self) -> usize {
        self.cells.len() * size_of::<Cell<T>>()
    }

    /// Adds a value at the start of the list `chain`.
    pub(crate) fn try_push(&mut self, chain: &mut Chain, value: T) -> Result<(), OutOfMemory> {
        let cell = Cell {
            value,
            next: chain.first,
        };
        chain.first = match self.cells.get_mut(self.vacant) {
            Some(vacant) => {
                let next = vacant.next;
                *vacant = cell;
                core::mem::replace(&mut self.vacant, next)
            }
            None => self.cells.try_push(cell)?,
        };
        chain.len += 1;
        Ok(())
    }

    /// Returns the values of a list, the last one added first.
    pub(crate) fn values(&self, chain: Chain) -> impl Iterator<Item = T> + '_ {
        let mut next = chain.first;
        core::iter::from_fn(move || {
            let cell = self.cells.get(next)?;
            next = cell.next;
            Some(cell.value)
        })
    }

    /// Removes all values of a list.
    pub(crate) fn clear(&mut self, chain: &mut Chain) {
        let mut next = core::mem::replace(chain, Chain::EMPTY).first;
        while let Some(cell) = self.cells.get_mut(next) {
            let after = core::mem::replace(&mut cell.next, self.vacant);
            self.vacant = core::mem::replace(&mut next, after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn lists_share_their_cells() {
        let mut chains = Chains::new();
        let mut lists = [Chain::EMPTY; 3];
        for value in 0..300 {
            chains.try_push(&mut lists[value % 3], value).unwrap();
        }
        let bytes = chains.bytes();
        let values = |chains: &Chains<usize>, chain| chains.values(chain).collect::<Vec<_>>();
        let expected: Vec<usize> = (0..300).rev().filter(|value| value % 3 == 1).collect();
        assert_eq!(values(&chains, lists[1]), expected);
        chains.clear(&mut lists[0]);
        chains.clear(&mut lists[2]);
        assert_eq!(
            (lists[0], values(&chains, lists[0])),
            (Chain::EMPTY, Vec::new())
        );
        // Vacant cells are reused before the pool grows.
        for value in 0..200 {
            chains.try_push(&mut lists[0], value).unwrap();
        }
        assert_eq!(chains.bytes(), bytes);
        assert_eq!((lists[0].len(), lists[1].len()), (200, 100));
        assert_eq!(values(&chains, lists[0]).len(), 200);
        assert_eq!(values(&chains, lists[1]), expected);
    }

    #[test]
    fn without_memory_nothing_is_added() {
        let mut chains = Chains::new();
        let mut list = Chain::EMPTY;
        memwright_table::handle::fail_heap_after(Some(0));
        assert_eq!(chains.try_push(&mut list, 1), Err(OutOfMemory));
        memwright_table::handle::fail_heap_after(None);
        assert_eq!((list, chains.values(list).count()), (Chain::EMPTY, 0));
    }
}
