//! Garbage collection of sockets that only messages refer to and that no process can receive.
//!
//! A message has references to the sockets that it carries. A set of sockets is unreachable if all references to its
//! sockets are from messages in the inboxes of sockets in the same set, because no process can receive these messages.
//! The rule is that of `unix_gc` of Linux 6.9 (`net/unix/garbage.c`); the graph algorithm that replaced it in 6.10
//! finds the same sockets.
//!
//! A collection visits each node once and each message that carries a socket twice. It neither allocates nor recurses:
//! the nodes to be visited form a linked list.

use alloc::{collections::TryReserveError, vec::Vec};
use core::cell::Cell;
use memwright_linux_base::sync::PausePoints;

/// Number of nodes that a loop visits between two scheduling points.
const NODES: u32 = 64;
/// The index that stands for no node.
const NONE: usize = usize::MAX;

/// The state of a node during a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// The socket has a reference that is not from a message, or a message in the inbox of a reachable socket carries
    /// it.
    Reachable,
    /// No reason to mark the socket as reachable has been found yet.
    Candidate,
}

struct Node<T> {
    value: T,
    /// Number of references to the socket from messages.
    carried: usize,
    /// Number of references to the socket from messages outside the inboxes of candidates. Used only during a
    /// collection.
    outside: Cell<usize>,
    mark: Cell<Mark>,
    /// The next node in the list of reachable nodes whose messages are to be visited; [`NONE`] at the end.
    next: Cell<usize>,
}

impl<T> Node<T> {
    fn is_candidate(&self) -> bool {
        self.mark.get() == Mark::Candidate
    }
}

/// A socket whose inbox can contain messages that carry sockets.
pub trait Carrier {
    /// Returns the number of references to the open file of the socket, including the references from messages.
    fn references(&self) -> usize;

    /// Calls `name` with the node number of each socket in flight that the messages in this socket's inbox carry, once
    /// for each reference.
    fn each_carried(&self, name: &mut dyn FnMut(usize));

    /// Stores the node number `number` in the socket.
    fn renumber(&self, number: usize);
}

/// The sockets that messages carry. Each is a node, with the number of messages that carry it.
pub struct Graph<T> {
    nodes: Vec<Node<T>>,
    /// Number of changes since the last collection: messages that were sent with sockets, and sockets that were closed.
    changes: usize,
    /// Number of nodes left after the last collection.
    survivors: usize,
}

impl<T: Carrier> Graph<T> {
    /// Creates an empty graph.
    pub const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            changes: 0,
            survivors: 0,
        }
    }

    /// Reserves room for `nodes` more nodes.
    ///
    /// # Errors
    /// [`TryReserveError`] if memory is exhausted.
    pub fn reserve(&mut self, nodes: usize) -> Result<(), TryReserveError> {
        self.nodes.try_reserve(nodes)
    }

    /// Records that one more message carries a socket. `number` is the socket's node number, or `None` if no message
    /// carried it before. For `None`, creates a node for `value` and assigns its number. The caller has
    /// [reserved](Self::reserve) room for the node.
    pub fn add(&mut self, number: Option<usize>, value: impl FnOnce() -> T) {
        self.changes += 1;
        match number {
            Some(number) => self.nodes[number].carried += 1,
            None => {
                let value = value();
                value.renumber(self.nodes.len());
                let node = Node {
                    value,
                    carried: 1,
                    outside: Cell::new(0),
                    mark: Cell::new(Mark::Reachable),
                    next: Cell::new(NONE),
                };
                #[expect(clippy::disallowed_methods, reason = "room was reserved")]
                self.nodes.push(node);
            }
        }
    }

    /// Records that one fewer message carries the socket with the node number `number`. If no message carries it any
    /// more, removes the node and returns its value. The last node then gets the number of the removed node.
    pub fn remove(&mut self, number: usize) -> Option<T> {
        let node = &mut self.nodes[number];
        node.carried -= 1;
        if node.carried > 0 {
            return None;
        }
        let gone = self.nodes.swap_remove(number);
        if let Some(moved) = self.nodes.get(number) {
            moved.value.renumber(number);
        }
        Some(gone.value)
    }

    /// Records a change after which sockets in flight may be unreachable.
    pub fn note_change(&mut self) {
        self.changes += 1;
    }

    /// Returns whether a collection is due: the number of changes since the last collection is at least the number of
    /// nodes that were left after that collection. The total cost of all collections is therefore linear in the number
    /// of changes.
    pub fn is_due(&self) -> bool {
        !self.nodes.is_empty() && self.changes >= self.survivors
    }

    /// Runs a collection. Calls `lose` for each unreachable socket. `lose` must not change the graph.
    ///
    /// # Locks
    /// The caller holds no lock except those that [sleep](memwright_linux_base::sync::Rank::sleeps).
    pub fn collect(&mut self, mut lose: impl FnMut(&T)) {
        let nodes = &self.nodes;
        let mut points = PausePoints::every(NODES);
        for node in nodes {
            points.round();
            node.outside.set(node.carried);
            let alone = node.value.references() == node.carried;
            node.mark.set(if alone {
                Mark::Candidate
            } else {
                Mark::Reachable
            });
        }
        for node in nodes.iter().filter(|node| node.is_candidate()) {
            points.round();
            node.value.each_carried(&mut |target| {
                if let Some(target) = nodes.get(target) {
                    target.outside.set(target.outside.get().saturating_sub(1));
                }
            });
        }
        let first = Cell::new(NONE);
        for (number, node) in nodes.iter().enumerate() {
            points.round();
            if node.outside.get() > 0 {
                reach(node, number, &first);
            }
        }
        spread(nodes, &first);
        let lost = nodes.iter().filter(|node| node.is_candidate());
        let mut count = 0;
        for node in lost {
            count += 1;
            points.round();
            lose(&node.value);
        }
        self.changes = 0;
        self.survivors = self.nodes.len() - count;
    }
}

/// Marks all nodes as reachable that reachable nodes carry directly or indirectly. `first` is the head of the list of
/// reachable nodes whose messages are to be visited.
fn spread<T: Carrier>(nodes: &[Node<T>], first: &Cell<usize>) {
    let mut points = PausePoints::every(NODES);
    while let Some(node) = nodes.get(first.get()) {
        points.round();
        first.set(node.next.get());
        node.value.each_carried(&mut |target| {
            if let Some(node) = nodes.get(target) {
                reach(node, target, first);
            }
        });
    }
}

/// Marks a candidate as reachable and adds it to the front of the list of nodes whose messages are to be visited. Does
/// nothing for a node that is already reachable.
fn reach<T>(node: &Node<T>, number: usize, first: &Cell<usize>) {
    if node.mark.get() == Mark::Candidate {
        node.mark.set(Mark::Reachable);
        node.next.set(first.replace(number));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{Carrier, Graph};
    use alloc::{collections::BTreeSet, rc::Rc, vec::Vec};
    use core::cell::{Cell, RefCell};
    use memwright_linux_base::draws::draws;

    /// A socket of a test: the number of its references that are not from messages, and the sockets that the messages
    /// in its inbox carry.
    #[derive(Default)]
    struct Socket {
        number: Cell<Option<usize>>,
        held: Cell<usize>,
        travels: Cell<usize>,
        carried: RefCell<Vec<Rc<Socket>>>,
        looks: Cell<usize>,
    }

    impl Carrier for Rc<Socket> {
        fn references(&self) -> usize {
            self.held.get() + self.travels.get()
        }

        fn each_carried(&self, name: &mut dyn FnMut(usize)) {
            for socket in self.carried.borrow().iter() {
                self.looks.set(self.looks.get() + 1);
                name(socket.number.get().expect("it travels"));
            }
        }

        fn renumber(&self, number: usize) {
            self.number.set(Some(number));
        }
    }

    struct World {
        graph: Graph<Rc<Socket>>,
        sockets: Vec<Rc<Socket>>,
    }

    impl World {
        fn new(count: usize) -> Self {
            Self {
                graph: Graph::new(),
                sockets: (0..count).map(|_| Rc::default()).collect(),
            }
        }

        fn send(&mut self, what: usize, to: usize) {
            let socket = self.sockets[what].clone();
            self.graph.reserve(1).unwrap();
            self.graph.add(socket.number.get(), || socket.clone());
            socket.travels.set(socket.travels.get() + 1);
            self.sockets[to].carried.borrow_mut().push(socket);
        }

        fn receive(&mut self, from: usize) {
            let socket = self.sockets[from].carried.borrow_mut().remove(0);
            socket.travels.set(socket.travels.get() - 1);
            let number = socket.number.get().unwrap();
            if let Some(gone) = self.graph.remove(number) {
                assert!(Rc::ptr_eq(&gone, &socket));
                socket.number.set(None);
            }
        }

        fn lost(&mut self) -> BTreeSet<usize> {
            let mut lost = BTreeSet::new();
            let sockets = self.sockets.clone();
            self.graph.collect(|gone| {
                let place = sockets.iter().position(|known| Rc::ptr_eq(known, gone));
                assert!(lost.insert(place.unwrap()));
            });
            lost
        }
    }

    #[test]
    fn what_no_descriptor_leads_to_is_lost() {
        // The messages, each as the index of the socket that it carries and the index of the socket that has it in its
        // inbox. Then the sockets with descriptors, and the sockets that the collection must find.
        type Row = (
            &'static [(usize, usize)],
            &'static [usize],
            &'static [usize],
        );
        #[rustfmt::skip]
        let rows: &[Row] = &[
            (&[],                               &[],     &[]),
            // A socket in a message in its own inbox.
            (&[(0, 0)],                         &[],     &[0]),
            (&[(0, 0)],                         &[0],    &[]),
            // Two sockets, each in a message in the inbox of the other.
            (&[(0, 1), (1, 0)],                 &[],     &[0, 1]),
            (&[(0, 1), (1, 0)],                 &[1],    &[]),
            // A ring that a socket with a descriptor has in its inbox, and a ring that has a socket with a descriptor
            // in its inbox.
            (&[(0, 1), (1, 0), (0, 2)],         &[2],    &[]),
            (&[(0, 1), (1, 0), (2, 0)],         &[2],    &[0, 1]),
            // A socket in two messages in the same inbox.
            (&[(0, 0), (0, 0), (1, 0)],         &[],     &[0, 1]),
            (&[(0, 0), (0, 0), (0, 1)],         &[1],    &[]),
            // A chain of sockets, each in the inbox of the next, that ends in an unreachable socket. Without
            // descriptors, all are unreachable. A descriptor of one of them makes the earlier sockets reachable.
            (&[(0, 0), (1, 0), (2, 1), (3, 2)], &[],     &[0, 1, 2, 3]),
            (&[(0, 0), (1, 0), (2, 1), (3, 2)], &[2],    &[0, 1]),
            // Two rings that share a socket.
            (&[(0, 1), (1, 0), (1, 2), (2, 1)], &[],     &[0, 1, 2]),
            (&[(0, 1), (1, 0), (1, 2), (2, 1)], &[2],    &[]),
        ];
        for (sent, held, expected) in rows {
            let mut world = World::new(4);
            for &(what, to) in *sent {
                world.send(what, to);
            }
            for &socket in *held {
                world.sockets[socket].held.set(1);
            }
            let expected: BTreeSet<usize> = expected.iter().copied().collect();
            assert_eq!(world.lost(), expected, "{sent:?}, held {held:?}");
        }
    }

    #[test]
    fn numbers_move_when_a_node_goes() {
        let mut world = World::new(3);
        for (what, to) in [(0, 1), (1, 2), (2, 1)] {
            world.send(what, to);
        }
        world.receive(1);
        assert_eq!(world.sockets[0].number.get(), None);
        assert_eq!(world.sockets[2].number.get(), Some(0));
        assert_eq!(world.lost(), [1, 2].into());
    }

    /// Checks the collection on random sockets against a plain walk from the sockets with descriptors. The collection
    /// must find exactly the sockets that the walk does not reach.
    #[test]
    fn it_agrees_with_a_walk() {
        let mut next = draws(0x9e37_79b9_7f4a_7c15);
        for _ in 0..500 {
            let count = 1 + next(12);
            let mut world = World::new(count);
            for _ in 0..next(3 * count) {
                world.send(next(count), next(count));
            }
            let held: Vec<usize> = (0..count).filter(|_| next(4) == 0).collect();
            let mut reached: BTreeSet<usize> = held.iter().copied().collect();
            for &socket in &held {
                world.sockets[socket].held.set(1 + next(2));
            }
            // The collection finds only sockets in flight. A socket that is not in flight and has no descriptor would
            // have been closed, so the test takes it as reachable.
            for (number, socket) in world.sockets.iter().enumerate() {
                if socket.travels.get() == 0 {
                    reached.insert(number);
                }
            }
            let mut pending: Vec<usize> = reached.iter().copied().collect();
            while let Some(number) = pending.pop() {
                for carried in world.sockets[number].carried.borrow().iter() {
                    let all = &world.sockets;
                    let place = all.iter().position(|known| Rc::ptr_eq(known, carried));
                    if reached.insert(place.unwrap()) {
                        pending.push(place.unwrap());
                    }
                }
            }
            let expected = (0..count)
                .filter(|number| !reached.contains(number))
                .collect();
            assert_eq!(world.lost(), expected);
        }
    }

    /// Checks that the collection of a ring of a hundred thousand sockets, each in the inbox of the next, visits each
    /// message at most twice and does not recurse.
    #[test]
    fn a_long_ring_costs_two_looks_at_each_message() {
        const LENGTH: usize = 100_000;
        for held in [0, 1] {
            let mut world = World::new(LENGTH);
            for number in 0..LENGTH {
                world.send(number, (number + 1) % LENGTH);
            }
            world.sockets[0].held.set(held);
            let mut lost = 0;
            world.graph.collect(|_| lost += 1);
            assert_eq!(lost, if held == 0 { LENGTH } else { 0 });
            let looks: usize = world.sockets.iter().map(|socket| socket.looks.get()).sum();
            assert!(looks <= 2 * LENGTH, "{looks} looks");
        }
    }

    /// Checks that all collections together visit at most a few nodes for each message that was sent.
    #[test]
    fn collections_are_paid_for_by_changes() {
        const LENGTH: usize = 100_000;
        let mut graph = Graph::new();
        let mut looked = 0;
        for _ in 0..LENGTH {
            let socket: Rc<Socket> = Rc::default();
            socket.held.set(1);
            socket.travels.set(1);
            graph.reserve(1).unwrap();
            graph.add(None, || socket.clone());
            if graph.is_due() {
                looked += graph.nodes.len();
                graph.collect(|_| panic!("each is held"));
            }
        }
        assert!(looked <= 3 * LENGTH, "{looked} nodes looked at");
    }
}
