//! The forest of the machine's address spaces: each is a child of the address space from which it was forked.
//!
//! A private page is mapped by the address space that created it and by descendants of that address space (Linux 7.2
//! `mm/rmap.c`, `struct anon_vma`, which Linux has for each area). A search for the entries of a page therefore begins
//! with an address space that maps the page, continues with the descendants of that address space, and ascends until
//! all entries are found.

use alloc::vec::Vec;
use memwright_table::sync::{Lock, Rank};
use memwright_table::{Machine, OutOfMemory, Shared, TryPush};

use crate::mm::core::Core;
use crate::types::blocks::Blocks;

/// The node number that means "none".
const NONE: u32 = u32::MAX;

/// All address spaces.
pub(crate) struct Spaces<M: Machine>(Lock<Forest<M>, M::Threads>);

/// A node for an address space, for a dropped address space that had several children, or for none (a vacant node).
struct Node<M: Machine> {
    /// `None` if the address space was dropped. The node then only connects its children, unless it is vacant.
    space: Option<Shared<Core<M>>>,
    /// The number of the address space, which is never used again. 0 in a vacant node.
    number: u64,
    /// The parent's node. In a vacant node, the next vacant node.
    parent: u32,
    /// The child that was added last.
    child: u32,
    /// The sibling that was added just before this node.
    next: u32,
    /// The sibling that was added just after this node.
    previous: u32,
}

struct Forest<M: Machine> {
    nodes: Blocks<Node<M>>,
    /// The first vacant node.
    vacant: u32,
    /// The number of the last address space that was created.
    last: u64,
}

/// A reference to a node. It is valid while the node still has this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    node: u32,
    number: u64,
}

/// A walk over the relatives of an address space. It visits the address space and its descendants, then its parent and
/// the parent's other descendants, and so on.
pub(crate) struct Relatives {
    /// The node whose descendants are being visited.
    top: Place,
    /// The child of `top` that was `top` before: this child and its descendants have been visited.
    visited: u32,
    /// The node that was visited last.
    at: Option<Place>,
}

/// The next step of a walk.
pub(crate) enum Relative<M: Machine> {
    /// An address space.
    Space(Shared<Core<M>>),
    /// There are no more relatives.
    End,
    /// The node that was visited last has been removed, so that the walk cannot continue.
    Changed,
}

impl<M: Machine> Spaces<M> {
    pub(crate) const fn new() -> Self {
        let forest = Forest {
            nodes: Blocks::new(),
            vacant: NONE,
            last: 0,
        };
        Self(Lock::new(Rank::Lists, forest))
    }

    /// Adds a new address space, forked from `parent`, if any, and assigns its number. The number is higher than that
    /// of every earlier address space, and is never assigned again.
    pub(crate) fn enter(
        &self,
        space: &Shared<Core<M>>,
        parent: Option<&Core<M>>,
    ) -> Result<(), OutOfMemory> {
        let mut forest = self.0.lock();
        let number = forest.last + 1;
        let node = forest.add(space.clone(), number)?;
        forest.last = number;
        space.set_place(number, node);
        if let Some(parent) = parent {
            forest.link(node, parent.node());
        }
        Ok(())
    }

    /// Removes an address space that has no mappings left.
    pub(crate) fn leave(&self, space: &Core<M>) {
        let mut forest = self.0.lock();
        let node = space.node();
        let left = forest.nodes[node].space.take();
        forest.prune(node);
        drop(forest);
        drop(left);
    }

    /// Returns all current address spaces, in no particular order.
    ///
    /// # Errors
    /// Fails if there is no heap memory for the list.
    pub(crate) fn all(&self) -> Result<Vec<Shared<Core<M>>>, OutOfMemory> {
        let forest = self.0.lock();
        let mut copies = Vec::new();
        copies.try_make_room(forest.nodes.len())?;
        let spaces = forest.nodes.iter().filter_map(|node| node.space.clone());
        copies.extend(spaces);
        Ok(copies)
    }

    /// Returns the next address space of a walk.
    pub(crate) fn next(&self, walk: &mut Relatives) -> Relative<M> {
        let forest = self.0.lock();
        loop {
            let next = match walk.at {
                None => Some(walk.top.node),
                Some(at) if !forest.is_current(at) || !forest.is_current(walk.top) => {
                    return Relative::Changed;
                }
                Some(at) => forest.after(at.node, walk),
            };
            let next = match next {
                Some(next) => next,
                None => {
                    let top = walk.top.node;
                    let parent = forest.nodes[top].parent;
                    if parent == NONE {
                        return Relative::End;
                    }
                    (walk.top, walk.visited) = (forest.place(parent), top);
                    parent
                }
            };
            walk.at = Some(forest.place(next));
            if let Some(space) = &forest.nodes[next].space {
                return Relative::Space(space.clone());
            }
        }
    }
}

impl Relatives {
    /// Returns a walk that begins with `space`, which must not be removed before the first step.
    pub(crate) fn of<M: Machine>(space: &Core<M>) -> Self {
        Self {
            top: Place {
                node: space.node(),
                number: space.space_number(),
            },
            visited: NONE,
            at: None,
        }
    }
}

impl<M: Machine> Forest<M> {
    /// Adds a node without relatives.
    fn add(&mut self, space: Shared<Core<M>>, number: u64) -> Result<u32, OutOfMemory> {
        let new = Node {
            space: Some(space),
            number,
            parent: NONE,
            child: NONE,
            next: NONE,
            previous: NONE,
        };
        if let Some(vacant) = self.nodes.get_mut(self.vacant) {
            let node = core::mem::replace(&mut self.vacant, vacant.parent);
            *vacant = new;
            return Ok(node);
        }
        self.nodes.try_push(new)
    }

    /// Makes a node without relatives the first child of `parent`.
    fn link(&mut self, node: u32, parent: u32) {
        let next = core::mem::replace(&mut self.nodes[parent].child, node);
        if let Some(next) = self.nodes.get_mut(next) {
            next.previous = node;
        }
        let node = &mut self.nodes[node];
        (node.parent, node.next) = (parent, next);
    }

    /// Removes a node if its address space was dropped and it has fewer than two children. An only child takes the
    /// place of the node. After a removal, examines the parent in the same way.
    fn prune(&mut self, mut node: u32) {
        while let Some(gone) = self.nodes.get(node) {
            let Node { parent, child, .. } = *gone;
            let only = self.nodes.get(child);
            if gone.space.is_some() || only.is_some_and(|only| only.next != NONE) {
                return;
            }
            self.replace(node, child);
            let next_vacant = core::mem::replace(&mut self.vacant, node);
            let vacant = &mut self.nodes[node];
            (vacant.number, vacant.parent) = (0, next_vacant);
            (vacant.child, vacant.next, vacant.previous) = (NONE, NONE, NONE);
            node = parent;
        }
    }

    /// Replaces `node` in the list of its siblings by `other`, which is a node without siblings, or `NONE`.
    fn replace(&mut self, node: u32, other: u32) {
        let Node {
            parent,
            next,
            previous,
            ..
        } = self.nodes[node];
        let (mut after_previous, mut before_next) = (next, previous);
        if let Some(child) = self.nodes.get_mut(other) {
            (child.parent, child.next, child.previous) = (parent, next, previous);
            (after_previous, before_next) = (other, other);
        }
        if let Some(previous) = self.nodes.get_mut(previous) {
            previous.next = after_previous;
        } else if let Some(parent) = self.nodes.get_mut(parent) {
            parent.child = after_previous;
        }
        if let Some(next) = self.nodes.get_mut(next) {
            next.previous = before_next;
        }
    }

    fn place(&self, node: u32) -> Place {
        let number = self.nodes[node].number;
        Place { node, number }
    }

    /// Returns whether `place` still refers to its node.
    fn is_current(&self, place: Place) -> bool {
        let node = self.nodes.get(place.node);
        node.is_some_and(|node| node.number == place.number)
    }

    /// Returns the node that the walk visits after `node` among the descendants of `walk.top`, or `None` if there is
    /// none.
    fn after(&self, mut node: u32, walk: &Relatives) -> Option<u32> {
        let mut next = self.nodes[node].child;
        loop {
            if next == walk.visited {
                next = self.nodes.get(next).map_or(NONE, |child| child.next);
            }
            if next != NONE {
                return Some(next);
            }
            let here = self.nodes.get(node);
            let here = here.filter(|_| node != walk.top.node)?;
            (node, next) = (here.parent, here.next);
        }
    }
}
