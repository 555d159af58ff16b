//! The order of the chunks of areas: a B+ tree over the first pages of the chunks. The tree also stores upper bounds of
//! the gaps below the areas of the chunks.
//!
//! A search by page, a search for a chunk with a gap of some size, an insertion and a removal each take time
//! proportional to the logarithm of the number of chunks. Chunks and nodes have numbers. The memory for a change is
//! reserved before the change.

use alloc::vec::Vec;
use memwright_table::{OutOfMemory, Page, TryPush};

/// The maximum number of children of a node.
const CHILDREN: usize = 32;

/// The number of chunks that can be inserted anywhere in the tree after a single reservation.
pub(super) const SPARE: usize = 4;

/// The number of a chunk.
pub(super) type ChunkId = u32;

/// The number that means "no chunk" or "no node".
pub(super) const NONE: u32 = u32::MAX;

/// The direction of a search for a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toward {
    /// To lower addresses.
    Lower,
    /// To higher addresses.
    Higher,
}

/// A chunk in the tree.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// The node of which the chunk is a child.
    parent: u32,
    previous: ChunkId,
    next: ChunkId,
}

impl Link {
    /// The link of a chunk that is alone in the tree.
    const ALONE: Self = Self {
        parent: NONE,
        previous: NONE,
        next: NONE,
    };
}

/// A child of a node.
#[derive(Clone, Copy, Debug)]
struct Child {
    /// The number of the child. In a node of level 1 it is the number of a chunk, otherwise the number of a node of the
    /// next lower level.
    number: u32,
    /// A page that is at or below all areas of the child, and above all areas of the preceding child.
    start: Page,
    /// An upper bound of the gaps below the areas of the child's chunks, in pages.
    room: u64,
}

/// A node. It has at least one child while it is in the tree.
#[derive(Debug)]
struct Node {
    parent: u32,
    /// The children in ascending order, in a vector with the capacity [`CHILDREN`].
    children: Vec<Child>,
}

impl Node {
    /// Returns the index of a child. `number` must be among the children.
    fn index_of(&self, number: u32) -> usize {
        let mut children = self.children.iter();
        let found = children.position(|child| child.number == number);
        debug_assert!(found.is_some());
        found.unwrap_or(self.children.len())
    }

    /// Returns the largest of the children's gap bounds.
    fn room(&self) -> u64 {
        let rooms = self.children.iter().map(|child| child.room);
        rooms.max().unwrap_or_default()
    }
}

/// The B+ tree of chunks.
#[derive(Debug)]
pub(super) struct Order {
    /// The chunks by number. The links of chunks that are not in the tree are meaningless.
    links: Vec<Link>,
    /// The nodes by number.
    nodes: Vec<Node>,
    /// The numbers of the nodes that are not in the tree.
    spare: Vec<u32>,
    /// The root: the number of a node of level `height`, or of a chunk if `height` is 0. [`NONE`] if there is no chunk.
    pub(super) root: u32,
    /// The number of levels of nodes, which is 0 while there is at most one chunk.
    pub(super) height: u32,
    /// The first and the last chunk. Used only if there are several chunks.
    first: ChunkId,
    last: ChunkId,
}

/// Converts a number to an option.
const fn option(number: u32) -> Option<u32> {
    if number == NONE { None } else { Some(number) }
}

impl Order {
    /// The tree without chunks.
    pub(super) const EMPTY: Self = Self {
        links: Vec::new(),
        nodes: Vec::new(),
        spare: Vec::new(),
        root: NONE,
        height: 0,
        first: NONE,
        last: NONE,
    };

    /// Ensures that `chunks` insertions of chunks with numbers below `numbers` cannot fail.
    pub(super) fn reserve(&mut self, chunks: usize, numbers: usize) -> Result<(), OutOfMemory> {
        self.links.try_fill(numbers, Link::ALONE)?;
        // The first `SPARE` insertions can be anywhere. Each of them can split every node on the path to the root, and
        // together they add at most one root. The other insertions are in ascending order, so that at most one in
        // `CHILDREN / 2` of them splits a node.
        let apart = chunks.min(SPARE) * self.height as usize + 1;
        let nodes = apart + 2 * chunks / CHILDREN;
        while self.spare.len() < nodes {
            let mut children = Vec::new();
            children.try_make_room(CHILDREN)?;
            let (parent, number) = (NONE, self.nodes.len());
            // Reserve space for every node in the list of spare nodes.
            self.spare.try_make_room(number + 1 - self.spare.len())?;
            self.nodes.try_push(Node { parent, children })?;
            self.spare.try_push(number as u32)?;
        }
        Ok(())
    }

    /// Returns the first chunk.
    #[inline]
    pub(super) fn first(&self) -> Option<ChunkId> {
        let alone = self.height == 0;
        option(if alone { self.root } else { self.first })
    }

    /// Returns the last chunk.
    #[inline]
    pub(super) fn last(&self) -> Option<ChunkId> {
        let alone = self.height == 0;
        option(if alone { self.root } else { self.last })
    }

    /// Returns the chunk after `chunk`.
    #[inline]
    pub(super) fn next(&self, chunk: ChunkId) -> Option<ChunkId> {
        option(self.links[chunk as usize].next)
    }

    /// Returns the chunk before `chunk`.
    #[inline]
    pub(super) fn previous(&self, chunk: ChunkId) -> Option<ChunkId> {
        option(self.links[chunk as usize].previous)
    }

    /// Returns whether two chunks are children of the same node.
    pub(super) fn are_siblings(&self, one: ChunkId, other: ChunkId) -> bool {
        self.links[one as usize].parent == self.links[other as usize].parent
    }

    /// Returns the chunk that has the area at `page`, if there is such an area. Otherwise, returns the chunk before or
    /// after `page`, or [`NONE`] if there is no chunk.
    pub(super) fn find(&self, page: Page) -> ChunkId {
        let mut number = self.root;
        for _ in 0..self.height {
            let children = &self.nodes[number as usize].children;
            let after = children.partition_point(|child| child.start <= page);
            number = children[after.saturating_sub(1)].number;
        }
        number
    }

    /// Inserts `chunk` after the chunk `before`. `start` is a page at or below the areas of `chunk` and above those of
    /// `before`. `rooms` has upper bounds of the gaps below the areas of `before` and below those of `chunk`. The first
    /// bound is used only if `before` is alone, because otherwise the tree has it already.
    pub(super) fn insert_after(
        &mut self,
        before: ChunkId,
        chunk: ChunkId,
        start: Page,
        rooms: [u64; 2],
    ) {
        let [room_before, room] = rooms;
        if self.height == 0 {
            (self.first, self.last) = (before, before);
            self.links[before as usize] = Link::ALONE;
        }
        let Link { parent, next, .. } = self.links[before as usize];
        self.links[chunk as usize] = Link {
            parent: NONE,
            previous: before,
            next,
        };
        self.links[before as usize].next = chunk;
        match option(next) {
            Some(next) => self.links[next as usize].previous = chunk,
            None => self.last = chunk,
        }
        let child = Child {
            number: chunk,
            start,
            room,
        };
        if self.height == 0 {
            self.add_root(before, room_before, child);
        } else {
            self.add_child(parent, before, child);
        }
        let parent = self.links[chunk as usize].parent;
        self.raise_above(parent, room);
    }

    /// Adds a child after the child `before` of a node of level 1, and splits full nodes.
    fn add_child(&mut self, mut node: u32, mut before: u32, mut child: Child) {
        for level in 1.. {
            let Some(upper) = self.add_at(level, node, before, child) else {
                return;
            };
            if node == self.root {
                let room = self.nodes[node as usize].room();
                self.add_root(node, room, upper);
                return;
            }
            (before, child) = (node, upper);
            node = self.nodes[node as usize].parent;
        }
    }

    /// Adds a child to a node of level `level`, after the child `before`. If the node is full, splits it, and returns
    /// the new node, which the caller must add after `node`.
    #[expect(clippy::disallowed_methods, reason = "only within the capacity")]
    fn add_at(&mut self, level: u32, node: u32, before: u32, child: Child) -> Option<Child> {
        let place = self.nodes[node as usize].index_of(before) + 1;
        if self.nodes[node as usize].children.len() < CHILDREN {
            self.nodes[node as usize].children.insert(place, child);
            self.set_parent(level, child.number, node);
            return None;
        }
        let upper = self.take_spare();
        if place == CHILDREN {
            // Insertions in ascending order fill every node completely.
            self.nodes[upper as usize].children.push(child);
        } else {
            let mut children = core::mem::take(&mut self.nodes[upper as usize].children);
            let lower = &mut self.nodes[node as usize].children;
            children.extend(lower.drain(CHILDREN / 2..));
            if place > CHILDREN / 2 {
                children.insert(place - CHILDREN / 2, child);
            } else {
                lower.insert(place, child);
                self.set_parent(level, child.number, node);
            }
            self.nodes[upper as usize].children = children;
        }
        for index in 0..self.nodes[upper as usize].children.len() {
            let number = self.nodes[upper as usize].children[index].number;
            self.set_parent(level, number, upper);
        }
        let node = &self.nodes[upper as usize];
        Some(Child {
            number: upper,
            start: node.children[0].start,
            room: node.room(),
        })
    }

    /// Adds a root above the present one. Its children are the old root `lower` and the node `upper`.
    #[expect(clippy::disallowed_methods, reason = "only within the capacity")]
    fn add_root(&mut self, lower: u32, room: u64, upper: Child) {
        let root = self.take_spare();
        let lower = Child {
            number: lower,
            start: Page::new(0),
            room,
        };
        self.height += 1;
        self.root = root;
        for child in [lower, upper] {
            self.nodes[root as usize].children.push(child);
            self.set_parent(self.height, child.number, root);
        }
    }

    fn take_spare(&mut self) -> u32 {
        let number = self.spare.pop().expect("an insertion was reserved");
        self.nodes[number as usize].parent = NONE;
        number
    }

    /// Sets the parent of a child of a node of level `level`.
    fn set_parent(&mut self, level: u32, number: u32, parent: u32) {
        if level == 1 {
            self.links[number as usize].parent = parent;
        } else {
            self.nodes[number as usize].parent = parent;
        }
    }

    /// Lowers the start of a chunk to `start`, the start of its new first area.
    pub(super) fn lower_start(&mut self, chunk: ChunkId, start: Page) {
        self.change_start(chunk, |old| old.min(start));
    }

    /// Raises the start of the chunk after `chunk` to `end`, the end of the last area of `chunk`, which has grown.
    pub(super) fn raise_start_after(&mut self, chunk: ChunkId, end: Page) {
        if let Some(next) = self.next(chunk) {
            self.change_start(next, |old| old.max(end));
        }
    }

    /// Changes the start of a chunk, and the starts of those nodes whose first chunk it is.
    fn change_start(&mut self, chunk: ChunkId, change: impl Fn(Page) -> Page) {
        if self.height == 0 {
            return;
        }
        let (mut child, mut node) = (chunk, self.links[chunk as usize].parent);
        while let Some(here) = option(node) {
            let here = &mut self.nodes[here as usize];
            let index = here.index_of(child);
            let start = &mut here.children[index].start;
            *start = change(*start);
            if index > 0 {
                return;
            }
            (child, node) = (node, here.parent);
        }
    }

    /// Removes a chunk. Its areas must have been removed, or moved to the chunk before it. If they were moved, these
    /// two chunks must be children of the same node.
    pub(super) fn remove(&mut self, chunk: ChunkId) {
        if self.height == 0 {
            debug_assert_eq!(self.root, chunk);
            self.root = NONE;
            return;
        }
        let Link {
            parent,
            previous,
            next,
            ..
        } = self.links[chunk as usize];
        match option(previous) {
            Some(previous) => self.links[previous as usize].next = next,
            None => self.first = next,
        }
        match option(next) {
            Some(next) => self.links[next as usize].previous = previous,
            None => self.last = previous,
        }
        let (mut child, mut node, mut level) = (chunk, parent, 1);
        while let Some(here) = option(node) {
            let place = self.nodes[here as usize].index_of(child);
            self.nodes[here as usize].children.remove(place);
            if here == self.root {
                self.lower_root();
                return;
            }
            let parent = self.nodes[here as usize].parent;
            level += 1;
            if self.nodes[here as usize].children.is_empty() {
                self.retire(here);
                (child, node) = (here, parent);
                continue;
            }
            match self.join_with_next(level, here) {
                Some(joined) => (child, node) = (joined, parent),
                None => return,
            }
        }
    }

    /// Removes roots that have a single child. The child becomes the root.
    fn lower_root(&mut self) {
        while self.height > 0 {
            let [child] = &self.nodes[self.root as usize].children[..] else {
                return;
            };
            let number = child.number;
            self.retire(self.root);
            self.set_parent(self.height, number, NONE);
            self.root = number;
            self.height -= 1;
        }
    }

    /// Moves the children of the next sibling of `node` into `node` if `node` and this sibling are short. `node` is a
    /// child of a node of level `level`. Returns the sibling, which the caller must remove from its parent.
    #[expect(clippy::disallowed_methods, reason = "both fit into one node")]
    fn join_with_next(&mut self, level: u32, node: u32) -> Option<u32> {
        let parent = self.nodes[node as usize].parent;
        let place = self.nodes[parent as usize].index_of(node);
        let next = *self.nodes[parent as usize].children.get(place + 1)?;
        let lengths = [node, next.number].map(|one| self.nodes[one as usize].children.len());
        if lengths[0] + lengths[1] > CHILDREN / 2 {
            return None;
        }
        let mut moved = core::mem::take(&mut self.nodes[next.number as usize].children);
        for child in &moved {
            self.set_parent(level - 1, child.number, node);
        }
        self.nodes[node as usize].children.append(&mut moved);
        self.nodes[next.number as usize].children = moved;
        let room = &mut self.nodes[parent as usize].children[place].room;
        *room = next.room.max(*room);
        self.retire(next.number);
        Some(next.number)
    }

    /// Adds a node that was removed from the tree to the spare nodes.
    #[expect(clippy::disallowed_methods, reason = "every node has room there")]
    fn retire(&mut self, node: u32) {
        self.nodes[node as usize].children.clear();
        self.spare.push(node);
    }

    /// Raises the bound of a chunk to `gap`, the size of a gap below one of its areas.
    pub(super) fn raise(&mut self, chunk: ChunkId, gap: u64) {
        if self.height == 0 {
            return;
        }
        let parent = self.links[chunk as usize].parent;
        let node = &mut self.nodes[parent as usize];
        let index = node.index_of(chunk);
        node.children[index].room = gap.max(node.children[index].room);
        self.raise_above(parent, gap);
    }

    /// Raises the bounds of a node and of the nodes above it to `gap`, the bound of one of its children.
    fn raise_above(&mut self, node: u32, gap: u64) {
        let (mut child, mut node) = (node, self.nodes[node as usize].parent);
        while let Some(here) = option(node) {
            let here = &mut self.nodes[here as usize];
            let index = here.index_of(child);
            let room = &mut here.children[index].room;
            if *room >= gap {
                return;
            }
            *room = gap;
            (child, node) = (node, here.parent);
        }
    }

    /// Lowers the bound of a chunk to `room`, the largest gap below its areas.
    pub(super) fn lower(&mut self, chunk: ChunkId, room: u64) {
        if self.height > 0 {
            let parent = self.links[chunk as usize].parent;
            self.set_room(chunk, parent, room);
        }
    }

    /// Sets the bound of a child of `node`, and updates the bounds of the nodes above it.
    fn set_room(&mut self, mut child: u32, mut node: u32, mut room: u64) {
        while let Some(here) = option(node) {
            let here = &mut self.nodes[here as usize];
            let index = here.index_of(child);
            if here.children[index].room == room {
                return;
            }
            here.children[index].room = room;
            room = here.room();
            (child, node) = (node, here.parent);
        }
    }

    /// Returns the chunk nearest to `chunk` in the direction `toward` whose bound is at least `pages`. Never returns
    /// `chunk` itself.
    pub(super) fn roomy(&mut self, chunk: ChunkId, toward: Toward, pages: u64) -> Option<ChunkId> {
        if self.height == 0 {
            return None;
        }
        let (mut child, mut node, mut level) = (chunk, self.links[chunk as usize].parent, 1);
        while let Some(here) = option(node) {
            let children = &self.nodes[here as usize].children;
            let place = self.nodes[here as usize].index_of(child);
            let found = match toward {
                Toward::Lower => roomy_child(&children[..place], toward, pages),
                Toward::Higher => roomy_child(&children[place + 1..], toward, pages),
            };
            let Some(mut found) = found else {
                (child, node) = (here, self.nodes[here as usize].parent);
                level += 1;
                continue;
            };
            let mut below = level;
            loop {
                if below == 1 {
                    return Some(found);
                }
                let inner = &self.nodes[found as usize];
                match roomy_child(&inner.children, toward, pages) {
                    Some(one) => {
                        below -= 1;
                        found = one;
                    }
                    None => {
                        // The bound of `found` was too high: correct it, and continue the search from `found`.
                        let (parent, room) = (inner.parent, inner.room());
                        self.set_room(found, parent, room);
                        (child, node, level) = (found, parent, below);
                        break;
                    }
                }
            }
        }
        None
    }
}

/// Returns a child whose bound is at least `pages`: the last such child for `Toward::Lower`, otherwise the first.
fn roomy_child(children: &[Child], toward: Toward, pages: u64) -> Option<u32> {
    let mut roomy = children
        .iter()
        .filter(|child| child.room >= pages)
        .map(|child| child.number);
    match toward {
        Toward::Lower => roomy.next_back(),
        Toward::Higher => roomy.next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of chunks, and the plain sequence of the same chunks for comparison: each chunk with its start and room.
    struct Pair {
        order: Order,
        plain: Vec<(ChunkId, u64, u64)>,
        free: Vec<ChunkId>,
    }

    impl Pair {
        fn check(&mut self, page: u64, pages: u64) {
            let forward: Vec<_> =
                core::iter::successors(self.order.first(), |chunk| self.order.next(*chunk))
                    .collect();
            let mut backward: Vec<_> =
                core::iter::successors(self.order.last(), |chunk| self.order.previous(*chunk))
                    .collect();
            backward.reverse();
            let numbers: Vec<_> = self.plain.iter().map(|(number, ..)| *number).collect();
            assert_eq!((&forward, &backward), (&numbers, &numbers));
            let after = self.plain.partition_point(|(_, start, _)| *start <= page);
            let found = self.order.find(Page::new(page));
            // After a chunk was removed, the next chunk can have taken over its address range. `find` then returns the
            // next chunk for a page in that range.
            let place = self.plain.iter().position(|(number, ..)| *number == found);
            let place = place.unwrap();
            assert!(place == after || place + 1 == after, "{page}");
            let Some(place) = after.checked_sub(1) else {
                return;
            };
            let roomy = |(_, _, room): &&(ChunkId, u64, u64)| *room >= pages;
            let here = self.plain[place].0;
            let lower = self.plain[..place].iter().rev().find(roomy);
            let higher = self.plain[after..].iter().find(roomy);
            assert_eq!(
                self.order.roomy(here, Toward::Lower, pages),
                lower.map(|one| one.0)
            );
            assert_eq!(
                self.order.roomy(here, Toward::Higher, pages),
                higher.map(|one| one.0)
            );
        }

        fn insert(&mut self, place: usize, start: u64, room: u64) {
            let number = self.free.pop().unwrap();
            self.order.reserve(1, number as usize + 1).unwrap();
            match place.checked_sub(1) {
                None => self.order.root = number,
                Some(before) => {
                    let (before, _, room_before) = self.plain[before];
                    let rooms = [room_before, room];
                    self.order
                        .insert_after(before, number, Page::new(start), rooms);
                }
            }
            self.order.lower(number, room);
            self.plain.insert(place, (number, start, room));
        }
    }

    #[test]
    fn chunks_come_in_order_and_gaps_are_found() {
        let most = if cfg!(miri) { 200 } else { 3000 };
        let mut state = 5_u64;
        let mut below = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % bound
        };
        let mut pair = Pair {
            order: Order::EMPTY,
            plain: Vec::new(),
            free: (0..most as u32).rev().collect(),
        };
        pair.insert(0, 0, 1);
        for round in 0..4 * most {
            let grows = round < 2 * most;
            let chance = if grows { 3 } else { 1 };
            let start = 1 + below(1 << 40);
            let place = pair.plain.partition_point(|(_, one, _)| *one <= start);
            let taken = pair.plain[place - 1].1 == start;
            let found = pair.order.find(Page::new(start));
            if pair.plain.get(place).is_some_and(|next| next.0 == found) {
                // A removed chunk began at or below `start`. Its address range now belongs to the next chunk.
                pair.order.lower_start(found, Page::new(start));
                pair.plain[place].1 = start;
            } else if !pair.free.is_empty() && !taken && below(4) < chance {
                pair.insert(place, start, below(100));
            } else if pair.plain.len() > 1 {
                let place = 1 + below(pair.plain.len() as u64 - 1) as usize;
                let (number, ..) = pair.plain.remove(place);
                pair.order.remove(number);
                pair.free.push(number);
            }
            let place = below(pair.plain.len() as u64) as usize;
            let room = below(100);
            pair.plain[place].2 = room;
            pair.order.lower(pair.plain[place].0, 0);
            pair.order.raise(pair.plain[place].0, room);
            if round % 7 == 0 {
                pair.check(start, below(110));
            }
        }
        while let Some((number, ..)) = pair.plain.pop() {
            pair.order.remove(number);
        }
        assert!(pair.order.first().is_none());
        assert_eq!(pair.order.find(Page::new(1)), NONE);
        assert_eq!(pair.order.spare.len(), pair.order.nodes.len());
    }

    #[test]
    fn insertions_in_order_need_what_was_reserved() {
        let chunks = if cfg!(miri) { 100 } else { 5000 };
        let mut order = Order::EMPTY;
        order.reserve(chunks, chunks).unwrap();
        order.root = 0;
        for chunk in 1..chunks as u32 {
            order.insert_after(chunk - 1, chunk, Page::new(chunk.into()), [0; 2]);
        }
        assert_eq!(order.find(Page::new(chunks as u64 / 2)), chunks as u32 / 2);
    }

    #[test]
    fn a_lower_start_is_found() {
        let mut order = Order::EMPTY;
        order.reserve(3, 3).unwrap();
        order.root = 0;
        order.insert_after(0, 1, Page::new(100), [0; 2]);
        order.insert_after(1, 2, Page::new(200), [0; 2]);
        assert_eq!(order.find(Page::new(150)), 1);
        order.lower_start(2, Page::new(150));
        assert_eq!(order.find(Page::new(150)), 2);
        assert_eq!(order.find(Page::new(149)), 1);
    }
}
