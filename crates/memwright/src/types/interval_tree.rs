//! An interval tree. Each interval has an owner. A search finds the intervals that overlap a range.
//!
//! It is an AVL tree, sorted by owner and first index. Every node stores the lowest index and the highest end of its
//! subtree, so that a search skips subtrees without an overlap (Linux 7.2 `lib/interval_tree.c`, which is sorted by the
//! first index alone). Nodes refer to each other by number, and no function is recursive.

use core::cmp::Ordering;
use core::ops::Range;
use memwright_table::OutOfMemory;

use crate::types::blocks::Blocks;

/// The number of a node. It is valid until the interval is removed.
pub(crate) type IntervalId = u32;

/// The node number that means "none".
const NONE: IntervalId = u32::MAX;

/// The position of an interval in the order of the tree. A key remains usable after its interval has been removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IntervalKey {
    /// The owner of the interval.
    pub(crate) owner: u64,
    first: u64,
    /// The number of the node plus one, so that 0 sorts before all nodes.
    place: u64,
}

impl IntervalKey {
    /// Returns a key that sorts before all intervals of `owner`.
    pub(crate) const fn before(owner: u64) -> Self {
        Self {
            owner,
            first: 0,
            place: 0,
        }
    }

    /// Returns a key that sorts after all intervals of `owner`.
    pub(crate) const fn after(owner: u64) -> Self {
        Self {
            owner,
            first: u64::MAX,
            place: u64::MAX,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Node<T> {
    owner: u64,
    first: u64,
    end: u64,
    /// The lowest `first` and the highest `end` of the subtree.
    lowest: u64,
    highest: u64,
    /// The parent of the node. In a vacant node, the next vacant node.
    parent: IntervalId,
    children: [IntervalId; 2],
    height: u8,
    /// The value of the interval; `None` in a vacant node.
    value: Option<T>,
}

impl<T> Node<T> {
    #[inline]
    fn key(&self, id: IntervalId) -> IntervalKey {
        IntervalKey {
            owner: self.owner,
            first: self.first,
            place: u64::from(id) + 1,
        }
    }
}

/// Intervals of indices `first..end`, each with an owner and a value.
#[derive(Debug)]
pub(crate) struct IntervalTree<T> {
    nodes: Blocks<Node<T>>,
    root: IntervalId,
    /// The last interval in the order of the tree. Fork inserts each of the child's intervals after it, without a
    /// search.
    last: IntervalId,
    /// The first vacant node.
    vacant: IntervalId,
    len: u32,
    /// The number of changes of the tree.
    changes: u64,
}

/// The index of the left child in `children`.
const LEFT: usize = 0;
/// The index of the right child in `children`.
const RIGHT: usize = 1;

impl<T> IntervalTree<T> {
    pub(crate) const fn new() -> Self {
        Self {
            nodes: Blocks::new(),
            root: NONE,
            last: NONE,
            vacant: NONE,
            len: 0,
            changes: 0,
        }
    }

    /// Returns whether there are no intervals.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of intervals.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns a counter that every change of the tree increases.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the value of an interval.
    pub(crate) fn value(&self, id: IntervalId) -> Option<&T> {
        self.nodes.get(id)?.value.as_ref()
    }

    /// Returns a mutable reference to the value of an interval.
    pub(crate) fn value_mut(&mut self, id: IntervalId) -> Option<&mut T> {
        self.nodes.get_mut(id)?.value.as_mut()
    }

    /// Returns the range of an interval.
    pub(crate) fn span(&self, id: IntervalId) -> Range<u64> {
        let node = self.node(id);
        node.first..node.end
    }

    /// Returns the position of an interval in the order of the tree.
    pub(crate) fn key(&self, id: IntervalId) -> IntervalKey {
        self.node(id).key(id)
    }

    /// Returns all values, in no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().filter_map(|node| node.value.as_ref())
    }

    /// Adds an interval, and returns its number.
    pub(crate) fn try_insert(
        &mut self,
        owner: u64,
        span: Range<u64>,
        value: T,
    ) -> Result<IntervalId, OutOfMemory> {
        let new = Node {
            owner,
            first: span.start,
            end: span.end,
            lowest: span.start,
            highest: span.end,
            parent: NONE,
            children: [NONE; 2],
            height: 1,
            value: Some(value),
        };
        let id = match self.nodes.get(self.vacant) {
            Some(vacant) => {
                let id = core::mem::replace(&mut self.vacant, vacant.parent);
                self.nodes[id] = new;
                id
            }
            None => self.nodes.try_push(new)?,
        };
        self.len += 1;
        self.changes += 1;
        let key = self.key(id);
        if self.last == NONE {
            (self.root, self.last) = (id, id);
            return Ok(id);
        }
        let (mut parent, mut side) = (self.last, RIGHT);
        if self.key(parent) < key {
            self.last = id;
        } else {
            let mut next = self.root;
            while next != NONE {
                side = usize::from(self.key(next) < key);
                (parent, next) = (next, self.node(next).children[side]);
            }
        }
        self.set_child(parent, side, id);
        self.widen(parent, &span);
        self.grow(parent);
        Ok(id)
    }

    /// Removes an interval, and returns its value.
    pub(crate) fn remove(&mut self, id: IntervalId) -> Option<T> {
        let [left, right] = self.node(id).children;
        let parent = self.node(id).parent;
        if id == self.last {
            self.last = if left == NONE {
                parent
            } else {
                self.last_of(left)
            };
        }
        if left == NONE || right == NONE {
            self.replace(id, if left == NONE { right } else { left });
            self.restore(parent);
        } else {
            // The next node in the order of the tree takes the place of the removed node.
            let mut next = right;
            while self.node(next).children[LEFT] != NONE {
                next = self.node(next).children[LEFT];
            }
            let below = self.node(next).parent;
            if next != right {
                self.replace(next, self.node(next).children[RIGHT]);
                self.set_child(next, RIGHT, right);
            }
            self.replace(id, next);
            self.set_child(next, LEFT, left);
            // First give the next node the height and the bounds of the removed node, from which those of the ancestors
            // were computed. `restore` then stops at a node whose values do not change.
            let Node {
                lowest,
                highest,
                height,
                ..
            } = *self.node(id);
            let here = self.node_mut(next);
            (here.lowest, here.highest, here.height) = (lowest, highest, height);
            if next != right {
                self.restore(below);
            }
            self.restore(next);
        }
        self.len -= 1;
        self.changes += 1;
        let next = core::mem::replace(&mut self.vacant, id);
        let node = self.node_mut(id);
        node.parent = next;
        let value = node.value.take();
        if self.len == 0 {
            let changes = self.changes;
            *self = Self::new();
            self.changes = changes;
        }
        value
    }

    /// Removes the intervals for which `keep` returns false. The arguments of `keep` are the owner, the indices and the
    /// value.
    pub(crate) fn retain(&mut self, keep: impl Fn(u64, Range<u64>, &T) -> bool) {
        // Removing the last interval frees all nodes, so a node may not exist any more.
        for id in (0..self.nodes.len() as IntervalId).rev() {
            let Some(node) = self.nodes.get(id) else {
                continue;
            };
            let value = node.value.as_ref();
            if value.is_some_and(|value| !keep(node.owner, node.first..node.end, value)) {
                self.remove(id);
            }
        }
    }

    /// Extends an interval to `end`, unless it already ends at or after `end`.
    pub(crate) fn extend(&mut self, id: IntervalId, end: u64) {
        let node = self.node_mut(id);
        if node.end < end {
            self.changes += 1;
            let node = self.node_mut(id);
            node.end = end;
            let span = node.first..end;
            self.widen(id, &span);
        }
    }

    /// Returns the first interval of any owner after `key` that overlaps `span`.
    pub(crate) fn next(&self, key: IntervalKey, span: &Range<u64>) -> Option<IntervalId> {
        self.scan(self.start(key, span), span, |_| true)
    }

    /// Returns the first interval after `key` that has the owner of `key` and overlaps `span`.
    pub(crate) fn next_of_owner(&self, key: IntervalKey, span: &Range<u64>) -> Option<IntervalId> {
        self.scan(self.start(key, span), span, |owner| owner == key.owner)
    }

    /// Returns a node after the node with `key` from which a search for `span` can begin: no interval between these two
    /// nodes overlaps `span`.
    fn start(&self, key: IntervalKey, span: &Range<u64>) -> IntervalId {
        // The interval with this key, if it still exists.
        let id = (key.place as IntervalId).wrapping_sub(1);
        let same = |node: &Node<T>| node.value.is_some() && node.key(id) == key;
        if self.nodes.get(id).is_some_and(same) {
            self.following(id, span)
        } else {
            self.first_after(key)
        }
    }

    /// Returns the first interval that overlaps `span`, from `id` on in the order of the tree. Returns `None` if `span`
    /// is empty, or if the search first reaches an interval whose owner `is_sought` rejects.
    fn scan(
        &self,
        mut id: IntervalId,
        span: &Range<u64>,
        is_sought: impl Fn(u64) -> bool,
    ) -> Option<IntervalId> {
        if span.is_empty() {
            return None;
        }
        loop {
            let node = self.nodes.get(id)?;
            if !is_sought(node.owner) {
                return None;
            }
            if node.first < span.end && span.start < node.end {
                return Some(id);
            }
            id = self.following(id, span);
        }
    }

    /// Returns the first node after `key`.
    fn first_after(&self, key: IntervalKey) -> IntervalId {
        let (mut next, mut below) = (NONE, self.root);
        while let Some(node) = self.nodes.get(below) {
            if node.key(below) > key {
                (next, below) = (below, node.children[LEFT]);
            } else {
                below = node.children[RIGHT];
            }
        }
        next
    }

    /// Returns the last interval of `owner` that begins at or before `first`.
    pub(crate) fn last_before(&self, owner: u64, first: u64) -> Option<IntervalId> {
        let key = IntervalKey {
            owner,
            first,
            place: u64::MAX,
        };
        let (mut last, mut below) = (NONE, self.root);
        if self.last != NONE && self.key(self.last) <= key {
            (last, below) = (self.last, NONE);
        }
        while let Some(node) = self.nodes.get(below) {
            if node.key(below) <= key {
                (last, below) = (below, node.children[RIGHT]);
            } else {
                below = node.children[LEFT];
            }
        }
        (last != NONE && self.node(last).owner == owner).then_some(last)
    }

    /// Returns the next node after `id` in the order of the tree. Skips subtrees in which no interval overlaps `span`.
    fn following(&self, mut id: IntervalId, span: &Range<u64>) -> IntervalId {
        let Some(mut node) = self.nodes.get(id) else {
            return NONE;
        };
        if let Some(right) = self.overlapping(node.children[RIGHT], span) {
            (id, node) = (node.children[RIGHT], right);
            while let Some(left) = self.overlapping(node.children[LEFT], span) {
                (id, node) = (node.children[LEFT], left);
            }
            return id;
        }
        loop {
            let Some(parent) = self.nodes.get(node.parent) else {
                return NONE;
            };
            if parent.children[LEFT] == id {
                return node.parent;
            }
            (id, node) = (node.parent, parent);
        }
    }

    /// Returns the top node of a subtree if one of its intervals can overlap `span`.
    #[inline]
    fn overlapping(&self, id: IntervalId, span: &Range<u64>) -> Option<&Node<T>> {
        let node = self.nodes.get(id)?;
        (node.lowest < span.end && span.start < node.highest).then_some(node)
    }

    #[inline]
    fn node(&self, id: IntervalId) -> &Node<T> {
        &self.nodes[id]
    }

    #[inline]
    fn node_mut(&mut self, id: IntervalId) -> &mut Node<T> {
        &mut self.nodes[id]
    }

    fn height(&self, id: IntervalId) -> u8 {
        self.nodes.get(id).map_or(0, |node| node.height)
    }

    fn set_child(&mut self, parent: IntervalId, side: usize, child: IntervalId) {
        self.node_mut(parent).children[side] = child;
        if child != NONE {
            self.node_mut(child).parent = parent;
        }
    }

    /// Replaces the subtree `id` by the subtree `other`, which may be `NONE`.
    fn replace(&mut self, id: IntervalId, other: IntervalId) {
        let parent = self.node(id).parent;
        if other != NONE {
            self.node_mut(other).parent = parent;
        }
        if parent == NONE {
            self.root = other;
        } else {
            let side = usize::from(self.node(parent).children[RIGHT] == id);
            self.node_mut(parent).children[side] = other;
        }
    }

    /// Returns the last node of a subtree.
    fn last_of(&self, mut id: IntervalId) -> IntervalId {
        while self.node(id).children[RIGHT] != NONE {
            id = self.node(id).children[RIGHT];
        }
        id
    }

    /// Extends the bounds of `id` and of its ancestors to include `span`.
    fn widen(&mut self, mut id: IntervalId, span: &Range<u64>) {
        while let Some(node) = self.nodes.get_mut(id) {
            if node.lowest <= span.start && span.end <= node.highest {
                return;
            }
            node.lowest = node.lowest.min(span.start);
            node.highest = node.highest.max(span.end);
            id = node.parent;
        }
    }

    /// Restores the heights and the balance of the ancestors of an added node, from its parent `id` on. One rotation is
    /// enough.
    fn grow(&mut self, mut id: IntervalId) {
        while let Some(node) = self.nodes.get(id) {
            let parent = node.parent;
            let old = node.height;
            let [left, right] = node.children.map(|child| self.height(child));
            if left.abs_diff(right) > 1 {
                self.balance(id, left.cmp(&right));
                return;
            }
            let height = left.max(right) + 1;
            if height == old {
                return;
            }
            self.node_mut(id).height = height;
            id = parent;
        }
    }

    /// Restores heights, bounds and balance from `id` to the root, or up to the first node that has not changed.
    fn restore(&mut self, mut id: IntervalId) {
        while id != NONE {
            let [left, right] = self.node(id).children.map(|child| self.height(child));
            let (top, changed) = match left.abs_diff(right) {
                0 | 1 => (id, self.update(id)),
                _ => (self.balance(id, left.cmp(&right)), true),
            };
            if !changed {
                return;
            }
            id = self.node(top).parent;
        }
    }

    /// Recomputes the height and the bounds of a node. Returns whether they have changed.
    fn update(&mut self, id: IntervalId) -> bool {
        let node = self.node(id);
        let (mut lowest, mut highest, mut height) = (node.first, node.end, 0);
        for child in node.children {
            if let Some(child) = self.nodes.get(child) {
                lowest = lowest.min(child.lowest);
                highest = highest.max(child.highest);
                height = height.max(child.height);
            }
        }
        let node = self.node_mut(id);
        let old = (node.lowest, node.highest, node.height);
        (node.lowest, node.highest, node.height) = (lowest, highest, height + 1);
        old != (lowest, highest, height + 1)
    }

    /// Rotates a node whose left subtree is higher (`Greater`) or lower (`Less`) than its right subtree by two. Returns
    /// the node that replaces it.
    fn balance(&mut self, id: IntervalId, left: Ordering) -> IntervalId {
        let high = if left == Ordering::Greater {
            LEFT
        } else {
            RIGHT
        };
        let child = self.node(id).children[high];
        let [inner, outer] =
            [1 - high, high].map(|side| self.height(self.node(child).children[side]));
        if inner > outer {
            self.rotate(child, 1 - high);
        }
        self.rotate(id, high)
    }

    /// Rotates: the child of `id` on `side` replaces `id`, and `id` becomes its child on the other side. Returns the
    /// node that is now on top.
    fn rotate(&mut self, id: IntervalId, side: usize) -> IntervalId {
        let child = self.node(id).children[side];
        self.replace(id, child);
        let moved = self.node(child).children[1 - side];
        self.set_child(id, side, moved);
        self.set_child(child, 1 - side, id);
        self.update(id);
        self.update(child);
        child
    }
}

impl<T: Copy> IntervalTree<T> {
    /// Returns a copy of the tree, whose nodes have the same numbers.
    pub(crate) fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let nodes = self.nodes.try_clone()?;
        Ok(Self { nodes, ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    impl<T> IntervalTree<T> {
        /// Checks the links, heights and bounds of every node.
        fn check(&self) {
            let mut seen = 0;
            for (id, node) in self.nodes.iter().enumerate() {
                if node.value.is_none() {
                    continue;
                }
                seen += 1;
                let id = id as IntervalId;
                let [left, right] = node.children.map(|child| self.height(child));
                assert!(left.abs_diff(right) <= 1, "balanced");
                assert_eq!(node.height, left.max(right) + 1);
                let mut bounds = (node.first, node.end);
                for (side, child) in node.children.into_iter().enumerate() {
                    if child == NONE {
                        continue;
                    }
                    let below = self.node(child);
                    assert_eq!(below.parent, id);
                    assert_eq!(self.key(child) > self.key(id), side == RIGHT);
                    bounds = (bounds.0.min(below.lowest), bounds.1.max(below.highest));
                }
                assert_eq!((node.lowest, node.highest), bounds);
                assert_eq!(node.parent == NONE, self.root == id);
            }
            assert_eq!(seen, self.len());
            let last = if self.root == NONE {
                NONE
            } else {
                self.last_of(self.root)
            };
            assert_eq!(self.last, last);
        }
    }

    /// Returns a generator of pseudo-random numbers below a bound. Each run gets the same numbers.
    fn numbers() -> impl FnMut(u64) -> u64 {
        let mut state = 11_u64;
        move |bound| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % bound
        }
    }

    #[test]
    fn a_search_finds_what_a_list_has() {
        let mut below = numbers();
        let mut tree = IntervalTree::new();
        let mut list: Vec<(u64, Range<u64>, IntervalId, u64)> = Vec::new();
        let rounds = if cfg!(miri) { 300 } else { 6000 };
        for round in 0..rounds {
            let grows = round < rounds / 2;
            if list.is_empty() || below(3) < if grows { 2 } else { 1 } {
                let (owner, first) = (below(20), below(500));
                let span = first..first + 1 + below(60);
                let id = tree.try_insert(owner, span.clone(), round).unwrap();
                list.push((owner, span, id, round));
            } else if below(4) == 0 {
                let place = below(list.len() as u64) as usize;
                let (_, span, id, _) = &mut list[place];
                span.end += below(30);
                tree.extend(*id, span.end);
            } else {
                let place = below(list.len() as u64) as usize;
                let (.., id, value) = list.swap_remove(place);
                assert_eq!(tree.remove(id), Some(value));
            }
            if round % 8 != 0 {
                continue;
            }
            tree.check();
            let from = below(560);
            let sought = from..from + below(20);
            let mut expected: Vec<_> = list
                .iter()
                .filter(|(_, span, ..)| {
                    !sought.is_empty() && span.start < sought.end && sought.start < span.end
                })
                .map(|(owner, span, id, _)| (*owner, span.start, *id))
                .collect();
            expected.sort_unstable();
            let mut found = Vec::new();
            let mut key = IntervalKey::before(0);
            while let Some(id) = tree.next(key, &sought) {
                key = tree.key(id);
                found.push((key.owner, tree.span(id).start, id));
            }
            assert_eq!(found, expected);
            let owner = below(20);
            let last = list
                .iter()
                .filter(|(one, span, ..)| *one == owner && span.start <= from)
                .map(|(_, span, id, _)| (span.start, *id))
                .max();
            assert_eq!(tree.last_before(owner, from), last.map(|(_, id)| id));
        }
        for (.., id, value) in list {
            assert_eq!(tree.remove(id), Some(value));
        }
        assert!(tree.is_empty() && tree.nodes.len() == 0);
    }

    #[test]
    fn an_interval_that_nothing_overlaps_is_found_in_few_steps() {
        let mut tree = IntervalTree::new();
        let many = if cfg!(miri) { 256 } else { 1 << 14 };
        for index in 0..many {
            tree.try_insert(0, index..index + 1, index).unwrap();
        }
        let height = tree.height(tree.root);
        assert!(u32::from(height) <= 3 * many.ilog2() / 2, "{height}");
        let found = tree.next(IntervalKey::before(0), &(many / 2..many / 2 + 1));
        assert_eq!(found.and_then(|id| tree.value(id)), Some(&(many / 2)));
    }
}
