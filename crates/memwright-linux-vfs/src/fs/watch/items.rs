//! The entries of an epoll, indexed by descriptor and open file.

use crate::fs::watch::item::Item;
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use core::ops::Bound;
use memwright_table::{OutOfMemory, TryPush};

/// The key of an entry: the descriptor with which it was added, and the identity of the open file to which the
/// descriptor referred then.
pub type Key = (i32, u64);

/// The number of slots in a node of the tree.
const SLOTS: usize = 64;

/// A node of the tree that is indexed by descriptor.
struct Node<T> {
    slots: [Option<T>; SLOTS],
    /// The number of slots that are not empty.
    used: usize,
}

impl<T> Node<T> {
    fn new() -> Box<Self> {
        Box::new(Self {
            slots: [const { None }; SLOTS],
            used: 0,
        })
    }
}

/// A node with the entries of adjacent descriptors, at most one for each descriptor.
type Block<F> = Node<Arc<Item<F>>>;

/// A node with adjacent blocks.
type Group<F> = Node<Box<Block<F>>>;

/// The indices on the path from the root of the tree to the slot of a descriptor.
struct Path {
    group: usize,
    block: usize,
    slot: usize,
}

impl Path {
    const fn to(descriptor: i32) -> Self {
        let descriptor = descriptor as usize;
        Self {
            group: descriptor / (SLOTS * SLOTS),
            block: descriptor / SLOTS % SLOTS,
            slot: descriptor % SLOTS,
        }
    }
}

/// A position in an iteration over the entries.
#[derive(Clone, Copy)]
pub(in crate::fs) enum Position {
    /// The next entries are in the block with this number, or in a later block.
    Block(usize),
    /// The next entries are in `further`, at this bound or after it.
    Further(Bound<Key>),
}

impl Position {
    /// The position before all entries.
    pub(in crate::fs) const START: Self = Self::Block(0);
}

/// The entries of an epoll.
///
/// The entries are in a tree of three levels, which is indexed by descriptor. Normally a descriptor has at most one
/// entry, and a search visits one node in each level. A group or block is freed when it contains no entry. One spare
/// group and one spare block are kept, so that adding and removing a single entry repeatedly allocates no node.
pub(in crate::fs) struct Items<F> {
    groups: Vec<Option<Box<Group<F>>>>,
    spare_group: Option<Box<Group<F>>>,
    spare_block: Option<Box<Block<F>>>,
    /// Entries that were added while the tree contained another entry for their descriptor. The tree contains such an
    /// entry if its file is still open under another descriptor, while its former descriptor refers to a new file.
    further: BTreeMap<Key, Arc<Item<F>>>,
    length: usize,
}

impl<F> Items<F> {
    pub(in crate::fs) const fn new() -> Self {
        Self {
            groups: Vec::new(),
            spare_group: None,
            spare_block: None,
            further: BTreeMap::new(),
            length: 0,
        }
    }

    pub(in crate::fs) const fn len(&self) -> usize {
        self.length
    }

    /// Returns the entry of a descriptor in the tree.
    fn in_tree(&self, descriptor: i32) -> Option<&Arc<Item<F>>> {
        let path = Path::to(descriptor);
        let group = self.groups.get(path.group)?.as_ref()?;
        group.slots[path.block].as_ref()?.slots[path.slot].as_ref()
    }

    pub(in crate::fs) fn get(&self, key: &Key) -> Option<&Arc<Item<F>>> {
        match self.in_tree(key.0) {
            Some(item) if item.key == *key => Some(item),
            Some(_) | None => self.further.get(key),
        }
    }

    /// Adds an entry. Returns the replaced entry, if there was one with the same key.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(in crate::fs) fn insert(
        &mut self,
        item: Arc<Item<F>>,
    ) -> Result<Option<Arc<Item<F>>>, OutOfMemory> {
        let key = item.key;
        if let Some(old) = self.further.get_mut(&key) {
            return Ok(Some(core::mem::replace(old, item)));
        }
        let path = Path::to(key.0);
        while self.groups.len() <= path.group {
            self.groups.try_push(None)?;
        }
        let group = self.groups[path.group]
            .get_or_insert_with(|| self.spare_group.take().unwrap_or_else(Node::new));
        let block = group.slots[path.block].get_or_insert_with(|| {
            group.used += 1;
            self.spare_block.take().unwrap_or_else(Node::new)
        });
        match &mut block.slots[path.slot] {
            Some(old) if old.key == key => return Ok(Some(core::mem::replace(old, item))),
            Some(_) => {
                self.further.insert(key, item);
            }
            empty @ None => {
                *empty = Some(item);
                block.used += 1;
            }
        }
        self.length += 1;
        Ok(None)
    }

    pub(in crate::fs) fn remove(&mut self, key: &Key) -> Option<Arc<Item<F>>> {
        let removed = match self.remove_from_tree(key) {
            Some(item) => item,
            None => self.further.remove(key)?,
        };
        self.length -= 1;
        Some(removed)
    }

    fn remove_from_tree(&mut self, key: &Key) -> Option<Arc<Item<F>>> {
        let path = Path::to(key.0);
        let place = self.groups.get_mut(path.group)?;
        let group = place.as_mut()?;
        let block = group.slots[path.block].as_mut()?;
        let removed = block.slots[path.slot].take_if(|item| item.key == *key)?;
        block.used -= 1;
        if block.used == 0 {
            self.spare_block = group.slots[path.block].take();
            group.used -= 1;
            if group.used == 0 {
                self.spare_group = place.take();
            }
        }
        Some(removed)
    }

    /// Drops a block of entries, or one entry outside of the tree. Returns `false` if there was none.
    pub(in crate::fs) fn drop_some(&mut self) -> bool {
        while let Some(last) = self.groups.last_mut() {
            let group = last.as_mut();
            let block = group.and_then(|group| group.slots.iter_mut().find_map(Option::take));
            if block.is_some() {
                return true;
            }
            self.groups.pop();
        }
        self.further.pop_first().is_some()
    }

    /// Returns the first block that contains entries and whose number is at least `from`, with its number.
    fn block_from(&self, from: usize) -> Option<(usize, &Block<F>)> {
        let (first, mut below) = (from / SLOTS, from % SLOTS);
        for (number, group) in self.groups.iter().enumerate().skip(first) {
            let below = core::mem::take(&mut below);
            let Some(group) = group else {
                continue;
            };
            let blocks = (below..SLOTS).zip(&group.slots[below..]);
            for (index, block) in blocks {
                if let Some(block) = block {
                    return Some((number * SLOTS + index, block));
                }
            }
        }
        None
    }

    /// Calls `act` for up to [`SLOTS`] entries after a position, until `act` fails. Returns the position after these
    /// entries, or `None` if there were none.
    ///
    /// # Errors
    /// The errors of `act`.
    pub(in crate::fs) fn visit_some<E>(
        &self,
        from: Position,
        mut act: impl FnMut(&Arc<Item<F>>) -> Result<(), E>,
    ) -> Result<Option<Position>, E> {
        let after = match from {
            Position::Block(first) => {
                if let Some((number, block)) = self.block_from(first) {
                    block.slots.iter().flatten().try_for_each(act)?;
                    return Ok(Some(Position::Block(number + 1)));
                }
                Bound::Unbounded
            }
            Position::Further(after) => after,
        };
        let mut last = None;
        for (key, item) in self.further.range((after, Bound::Unbounded)).take(SLOTS) {
            act(item)?;
            last = Some(Position::Further(Bound::Excluded(*key)));
        }
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    use super::{Items, Key, Position};
    use crate::{
        fs::watch::{interest::Interest, item::Item, set::Epoll},
        identity::Users,
    };
    use alloc::{
        collections::BTreeMap,
        sync::{Arc, Weak},
        vec::Vec,
    };
    use memwright_linux_base::draws::draws;

    fn keys(items: &Items<()>) -> Vec<Key> {
        let (mut keys, mut from) = (Vec::new(), Some(Position::START));
        while let Some(position) = from {
            let visit = |item: &Arc<Item<()>>| {
                keys.push(item.key);
                Ok::<(), ()>(())
            };
            from = items.visit_some(position, visit).unwrap();
        }
        keys.sort_unstable();
        keys
    }

    #[test]
    fn it_is_a_map_by_descriptor_and_file() {
        let epoll = Arc::new(Epoll::new(Users::default().get(0).unwrap()));
        let file = Arc::new(());
        let (mut items, mut model) = (Items::new(), BTreeMap::new());
        let mut below = draws(1);
        for step in 0..20_000 {
            let descriptor = [0, 60, 5000, (1 << 20) - 10][below(4)] + below(10) as i32;
            let key = (descriptor, below(12) as u64);
            if below(8) < if step % 8000 < 4000 { 5 } else { 3 } {
                let home = Weak::new();
                let interest = Interest::default();
                let item = Item::new(&epoll, (&file, None), (key, home), interest, false);
                let item = Arc::new(item);
                let old = items.insert(item.clone()).unwrap();
                let expected = model.insert(key, item);
                assert_eq!(old.is_some(), expected.is_some());
                assert!(old.is_none_or(|old| Arc::ptr_eq(&old, &expected.unwrap())));
            } else {
                assert_eq!(items.remove(&key).is_some(), model.remove(&key).is_some());
            }
            let found = items.get(&key).map(Arc::as_ptr);
            assert_eq!(found, model.get(&key).map(Arc::as_ptr));
            assert_eq!(items.len(), model.len());
            if step % 100 == 0 {
                assert!(keys(&items).iter().eq(model.keys()));
            }
        }
        assert!(!items.further.is_empty());
        while items.drop_some() {}
        assert!(items.groups.is_empty() && items.further.is_empty());
    }
}
