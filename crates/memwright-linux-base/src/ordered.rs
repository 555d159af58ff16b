//! An ordered map. Insertion returns an error if memory cannot be allocated. The memory can also be allocated before a
//! lock is acquired.
//!
//! The map is a treap: a search tree by key whose nodes also form a heap by random priorities. Its depth is that of a
//! search tree into which the keys were inserted in random order. The nodes are stored in page-sized blocks without
//! gaps: when a node is removed, the last node moves into its slot. Each node has a link to its parent, and no
//! operation is recursive.

use crate::{paged::Paged, sync::Grows};
use alloc::vec::Vec;
use memwright_table::{OutOfMemory, TryPush};

/// The index of a node; [`NONE`] for none.
type Place = u32;

/// The index that means no node.
const NONE: Place = Place::MAX;

/// A child of a node.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

impl Side {
    const fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

#[derive(Debug)]
struct Node<K, V> {
    key: K,
    value: V,
    /// The priority of the node, which is at least as high as that of each child.
    priority: u32,
    parent: Place,
    children: [Place; 2],
}

/// An ordered map.
#[derive(Debug)]
pub struct Ordered<K, V> {
    /// The nodes, without gaps, in blocks of at most one page. Every block before the last block with nodes is full.
    /// Only the last block can be empty: it is kept so that a node can be inserted again after a removal without an
    /// allocation.
    blocks: Vec<Vec<Node<K, V>>>,
    length: usize,
    root: Place,
    /// The state of the random number generator for priorities.
    random: u64,
}

/// Memory for further nodes, allocated in advance.
pub struct Room<K, V> {
    block: Vec<Node<K, V>>,
    /// A larger list of blocks. The map moves its blocks into this list if its own list of blocks is full.
    list: Vec<Vec<Node<K, V>>>,
}

impl<K, V> Default for Ordered<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> Ordered<K, V> {
    /// The number of nodes per block.
    const TOGETHER: usize = Paged::<Node<K, V>>::TOGETHER;

    /// Creates an empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            blocks: Vec::new(),
            length: 0,
            root: NONE,
            random: 1,
        }
    }

    fn node(&self, place: Place) -> &Node<K, V> {
        let place = place as usize;
        &self.blocks[place / Self::TOGETHER][place % Self::TOGETHER]
    }

    fn node_mut(&mut self, place: Place) -> &mut Node<K, V> {
        let place = place as usize;
        &mut self.blocks[place / Self::TOGETHER][place % Self::TOGETHER]
    }

    fn child(&self, place: Place, side: Side) -> Place {
        self.node(place).children[side as usize]
    }

    /// Returns whether `child` is the left or the right child of `parent`.
    fn side(&self, parent: Place, child: Place) -> Side {
        if self.child(parent, Side::Left) == child {
            Side::Left
        } else {
            Side::Right
        }
    }

    /// Replaces the child `old` of `parent` with `new`. Replaces the root if `parent` is `NONE`.
    fn replace_child(&mut self, parent: Place, old: Place, new: Place) {
        if parent == NONE {
            self.root = new;
        } else {
            let side = self.side(parent, old);
            self.node_mut(parent).children[side as usize] = new;
        }
        if new != NONE {
            self.node_mut(new).parent = parent;
        }
    }

    /// Rotates the node `place` above its parent. The order of the keys does not change.
    fn rotate_up(&mut self, place: Place) {
        let parent = self.node(place).parent;
        let side = self.side(parent, place);
        let inner = self.child(place, side.other());
        self.replace_child(self.node(parent).parent, parent, place);
        self.node_mut(parent).children[side as usize] = inner;
        if inner != NONE {
            self.node_mut(inner).parent = parent;
        }
        self.node_mut(place).children[side.other() as usize] = parent;
        self.node_mut(parent).parent = place;
    }

    /// Returns the child that can replace the node `place`: the only child, or the child with the higher priority.
    /// Returns `None` if the node is a leaf.
    fn higher_child(&self, place: Place) -> Option<Place> {
        match self.node(place).children {
            [NONE, NONE] => None,
            [NONE, only] | [only, NONE] => Some(only),
            [left, right] if self.node(left).priority >= self.node(right).priority => Some(left),
            [_, right] => Some(right),
        }
    }

    /// Removes the node `place` from the tree and from its block. The last node moves into the slot that becomes free.
    fn take(&mut self, place: Place) -> Option<(K, V)> {
        while let Some(child) = self.higher_child(place) {
            self.rotate_up(child);
        }
        self.replace_child(self.node(place).parent, place, NONE);
        let last = (self.length - 1) as Place;
        let moved = self.blocks[last as usize / Self::TOGETHER].pop()?;
        self.length -= 1;
        let taken = if place == last {
            moved
        } else {
            let (parent, children) = (moved.parent, moved.children);
            let taken = core::mem::replace(self.node_mut(place), moved);
            self.replace_child(parent, last, place);
            for child in children.into_iter().filter(|child| *child != NONE) {
                self.node_mut(child).parent = place;
            }
            taken
        };
        if self.blocks.len() * Self::TOGETHER - self.length >= 2 * Self::TOGETHER {
            self.blocks.pop();
        }
        Some((taken.key, taken.value))
    }

    /// Returns the node with the lowest key in the subtree whose root is `top`; `None` if `top` is `NONE`.
    fn lowest_below(&self, top: Place) -> Option<Place> {
        let (mut lowest, mut next) = (None, top);
        while next != NONE {
            lowest = Some(next);
            next = self.child(next, Side::Left);
        }
        lowest
    }

    /// Returns the node with the lowest key.
    fn lowest(&self) -> Option<Place> {
        self.lowest_below(self.root)
    }

    /// Returns the node with the next higher key after that of the node `place`; `NONE` if `place` has the highest key.
    fn following(&self, place: Place) -> Place {
        if let Some(lowest) = self.lowest_below(self.child(place, Side::Right)) {
            return lowest;
        }
        let (mut below, mut above) = (place, self.node(place).parent);
        while above != NONE && self.child(above, Side::Right) == below {
            (below, above) = (above, self.node(above).parent);
        }
        above
    }

    /// Returns the lowest key.
    #[must_use]
    pub fn first(&self) -> Option<&K> {
        self.lowest().map(|place| &self.node(place).key)
    }

    /// Removes the lowest key and returns it with its value.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        self.take(self.lowest()?)
    }

    /// Iterates over the values, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.blocks.iter().flatten().map(|node| &node.value)
    }

    /// Iterates over the values mutably, in no particular order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.blocks.iter_mut().flatten().map(|node| &mut node.value)
    }

    /// Returns a pseudo-random number (Knuth's MMIX generator).
    fn next_priority(&mut self) -> u32 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 32) as u32
    }
}

impl<K: Ord, V> Ordered<K, V> {
    /// Returns the node with the key `key`. If there is none, returns as the error the parent and the side at which to
    /// insert the key.
    fn find(&self, key: &K) -> Result<Place, (Place, Side)> {
        let (mut parent, mut side, mut next) = (NONE, Side::Left, self.root);
        while next != NONE {
            let node = self.node(next);
            side = match key.cmp(&node.key) {
                core::cmp::Ordering::Less => Side::Left,
                core::cmp::Ordering::Equal => return Ok(next),
                core::cmp::Ordering::Greater => Side::Right,
            };
            parent = next;
            next = node.children[side as usize];
        }
        Err((parent, side))
    }

    /// Returns the node with the lowest key that is not below `key`; `NONE` if there is none.
    fn place_from(&self, key: &K) -> Place {
        let (mut found, mut next) = (NONE, self.root);
        while next != NONE {
            let node = self.node(next);
            let side = if node.key < *key {
                Side::Right
            } else {
                found = next;
                Side::Left
            };
            next = node.children[side as usize];
        }
        found
    }

    /// Returns the lowest key that is not below `key`, and its value.
    #[must_use]
    pub fn first_from(&self, key: &K) -> Option<(&K, &V)> {
        let found = self.place_from(key);
        (found != NONE).then(|| {
            let node = self.node(found);
            (&node.key, &node.value)
        })
    }

    /// Iterates over the entries whose keys are not below `key`, in order of the keys. Each step visits a constant
    /// number of nodes on average.
    pub fn iter_from<'a>(
        &'a self,
        key: &K,
    ) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        let mut next = self.place_from(key);
        core::iter::from_fn(move || {
            let node = (next != NONE).then(|| self.node(next))?;
            next = self.following(next);
            Some((&node.key, &node.value))
        })
    }

    /// Returns the value of `key`.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        let place = self.find(key).ok()?;
        Some(&self.node(place).value)
    }

    /// Returns the value of `key`, mutably.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.find(key).ok()?;
        Some(&mut self.node_mut(place).value)
    }

    /// Inserts a key with its value. Returns the previous value of the key, if any.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the map is then unchanged.
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, OutOfMemory> {
        let (parent, side) = match self.find(&key) {
            Ok(place) => {
                return Ok(Some(core::mem::replace(
                    &mut self.node_mut(place).value,
                    value,
                )));
            }
            Err(found) => found,
        };
        if !self.has_room(1) {
            let mut room = Self::with_room(self.wanted(1))?;
            self.take_room(&mut room);
        }
        let place = Place::try_from(self.length).map_err(|_| OutOfMemory)?;
        let node = Node {
            key,
            value,
            priority: self.next_priority(),
            parent,
            children: [NONE; 2],
        };
        self.blocks[self.length / Self::TOGETHER].try_push(node)?;
        self.length += 1;
        if parent == NONE {
            self.root = place;
            return Ok(None);
        }
        self.node_mut(parent).children[side as usize] = place;
        loop {
            let Node {
                parent, priority, ..
            } = *self.node(place);
            if parent == NONE || self.node(parent).priority >= priority {
                return Ok(None);
            }
            self.rotate_up(place);
        }
    }

    /// Removes `key`. Returns its value, or `None` if the map does not contain the key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.find(key).ok()?;
        self.take(place).map(|(_, value)| value)
    }
}

/// Growing adds one block, which has room for at least one node. It adds one block regardless of the number of nodes
/// requested.
impl<K, V> Grows for Ordered<K, V> {
    type Room = Room<K, V>;

    #[inline]
    fn has_room(&self, _more: usize) -> bool {
        self.length < self.blocks.len() * Self::TOGETHER
    }

    fn wanted(&self, _more: usize) -> usize {
        if self.blocks.len() < self.blocks.capacity() {
            0
        } else {
            2 * self.blocks.len() + 4
        }
    }

    fn with_room(wanted: usize) -> Result<Room<K, V>, OutOfMemory> {
        let (mut block, mut list) = (Vec::new(), Vec::new());
        block.try_make_room(Self::TOGETHER)?;
        list.try_make_room(wanted)?;
        Ok(Room { block, list })
    }

    fn take_room(&mut self, room: &mut Room<K, V>) {
        self.blocks.take_room(&mut room.list);
        if !self.has_room(1) && self.blocks.has_room(1) {
            #[expect(clippy::disallowed_methods, reason = "there is room")]
            self.blocks.push(core::mem::take(&mut room.block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    impl<V> Ordered<u64, V> {
        /// Checks the invariants of the map and returns the depth of the tree.
        fn check(&self) -> usize {
            let mut deepest = 0;
            let mut seen = 0;
            let mut pending = Vec::from([(self.root, NONE, 0, u64::MAX, 1)]);
            while let Some((place, parent, low, high, depth)) = pending.pop() {
                if place == NONE {
                    continue;
                }
                let node = self.node(place);
                assert_eq!(node.parent, parent);
                assert!((low..=high).contains(&node.key));
                assert!(parent == NONE || self.node(parent).priority >= node.priority);
                let [left, right] = node.children;
                pending.push((left, place, low, node.key.wrapping_sub(1), depth + 1));
                pending.push((right, place, node.key + 1, high, depth + 1));
                deepest = deepest.max(depth);
                seen += 1;
            }
            assert_eq!(seen, self.length);
            assert_eq!(self.blocks.iter().map(Vec::len).sum::<usize>(), seen);
            let unused = self.blocks.len() * Self::TOGETHER - seen;
            assert!(unused < 2 * Self::TOGETHER, "{unused}");
            deepest
        }
    }

    /// Returns `count` pseudo-random numbers.
    fn numbers(count: u64) -> impl Iterator<Item = u64> {
        let mut number = 0x9e37_79b9_7f4a_7c15_u64;
        (0..count).map(move |_| {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            number
        })
    }

    #[test]
    fn it_is_the_map_of_the_library() {
        let (mut map, mut model) = (Ordered::new(), BTreeMap::new());
        for (step, number) in numbers(40_000).enumerate() {
            let key = number % 1500;
            // Alternate between growing and shrinking every 5000 steps.
            let grows = step / 5000 % 2 == 0;
            match (number >> 32) % 8 {
                0 => {
                    let first = model.first_key_value();
                    assert_eq!(map.first(), first.map(|(key, _)| key));
                    assert_eq!(map.pop_first(), model.pop_first());
                }
                1 => assert_eq!(map.remove(&key), model.remove(&key)),
                2 => {
                    assert_eq!(map.first_from(&key), model.range(key..).next());
                    assert_eq!(map.get_mut(&key), model.get_mut(&key));
                }
                3..=5 if !grows => assert_eq!(map.remove(&key), model.remove(&key)),
                _ => assert_eq!(map.insert(key, step), Ok(model.insert(key, step))),
            }
            assert_eq!(map.length, model.len());
            if step % 64 == 0 {
                map.check();
            }
        }
        while let Some(first) = model.pop_first() {
            assert_eq!(map.pop_first(), Some(first));
        }
        assert_eq!((map.length, map.check()), (0, 0));
        assert_eq!(map.pop_first(), None);
    }

    #[test]
    fn it_is_flat_in_whichever_order_keys_come() {
        const COUNT: u64 = 100_000;
        let up: Vec<u64> = (0..COUNT).collect();
        let down: Vec<u64> = (0..COUNT).rev().collect();
        let inwards: Vec<u64> = (0..COUNT / 2).flat_map(|key| [key, COUNT - key]).collect();
        for keys in [up, down, inwards] {
            let mut map = Ordered::new();
            for key in keys {
                map.insert(key, ()).unwrap();
            }
            // A random tree has about 4.3 ln n levels; a degenerate one would have 100,000.
            assert!(map.check() < 80, "{}", map.check());
        }
    }

    #[test]
    fn it_iterates_in_order() {
        let (mut map, mut model) = (Ordered::new(), BTreeMap::new());
        assert_eq!(map.iter_from(&0).next(), None);
        for number in numbers(1000) {
            let (key, from) = (number % 500, (number >> 32) % 500);
            if number >> 63 == 0 {
                assert_eq!(map.insert(key, number), Ok(model.insert(key, number)));
            } else {
                assert_eq!(map.remove(&key), model.remove(&key));
            }
            assert!(map.iter_from(&from).eq(model.range(from..)));
        }
    }

    #[test]
    fn without_memory_nothing_changes() {
        let mut map = Ordered::new();
        for key in 0..1000_u64 {
            for allocations in 0..3 {
                memwright_table::handle::fail_heap_after(Some(allocations));
                let inserted = map.insert(key, key);
                let failed = !memwright_table::handle::heap_failure_pending();
                memwright_table::handle::fail_heap_after(None);
                assert_eq!(inserted.is_err(), failed, "{key} after {allocations}");
                map.check();
                if inserted.is_ok() {
                    assert_eq!(map.remove(&key), Some(key));
                }
                assert_eq!(map.length as u64, key);
            }
            map.insert(key, key).unwrap();
        }
        assert!((0..1000).all(|key| map.pop_first() == Some((key, key))));
    }

    #[test]
    fn what_was_removed_finds_room_again() {
        let mut map = Ordered::new();
        for key in 0..2000_u64 {
            map.insert(key, ()).unwrap();
            map.pop_first();
            memwright_table::handle::fail_heap_after(Some(0));
            assert_eq!(map.insert(key + 1000, ()), Ok(None));
            memwright_table::handle::fail_heap_after(None);
        }
    }
}
