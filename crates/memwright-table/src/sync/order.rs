//! The lock order, and its check in debug builds.

/// The rank of a lock. A thread must acquire locks in the order of the variants. Debug builds panic if a thread
/// acquires a lock whose rank is equal to, or earlier than, that of a lock that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Rank {
    /// The process tree, and the state that the threads of a process share.
    Process,
    /// The signal state of a process.
    Signals,
    /// A table of file descriptors.
    FileTable,
    /// References between open files: from an epoll instance to the files that it monitors, and from a socket to the
    /// files that were passed through it.
    Links,
    /// Directories, mounts and inodes.
    FileSystem,
    /// The mounts on one directory.
    Mount,
    /// An open file, pipe, or other object to which a descriptor refers.
    File,
    /// A scan of all address spaces. One scan runs at a time.
    Scan,
    /// The areas of an address space.
    Space,
    /// The areas of a second address space: the child's in a fork.
    SpaceChild,
    /// The list of address spaces that map an object.
    ObjectRegistry,
    /// The pages of an object.
    Object,
    /// The entries of one page table.
    Table,
    /// The entries of a second page table: the child's during a fork, or the lower one when a table is freed or
    /// collapsed.
    TableChild,
    /// The list of swap devices, the slots of a device, and the state of a zram device or a disk.
    Swap,
    /// The reference counts of the parts of a folio.
    Folio,
    /// The hugetlb pool.
    Pool,
    /// Lists that grow while they are locked. The rank is earlier than `FrameCache`, so that the heap can allocate
    /// frames.
    Lists,
    /// The free frames that one CPU caches.
    FrameCache,
    /// The free frames of a node.
    Frames,
    /// The run queues.
    Scheduler,
    /// The wait queues, and the queues of futexes.
    Wait,
    /// The console.
    Console,
    /// State under whose lock no memory is allocated. The only lock acquired under it is that of the heap, to free
    /// memory.
    Leaf,
    /// An embedder's heap. Its lock may be acquired under any other lock.
    Heap,
}

impl Rank {
    /// Whether locks of this rank sleep: a thread may yield its CPU while it holds such a lock or waits for one.
    #[inline(always)]
    pub const fn sleeps(self) -> bool {
        matches!(
            self,
            Rank::FileTable | Rank::Links | Rank::Scan | Rank::Space | Rank::SpaceChild
        )
    }

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Rank::Process => "process",
            Rank::Signals => "signals",
            Rank::FileTable => "file_table",
            Rank::Links => "links",
            Rank::FileSystem => "file_system",
            Rank::Mount => "mount",
            Rank::File => "file",
            Rank::Scan => "scan",
            Rank::Space => "space",
            Rank::SpaceChild => "space_child",
            Rank::ObjectRegistry => "object_registry",
            Rank::Object => "object",
            Rank::Table => "table",
            Rank::TableChild => "table_child",
            Rank::Swap => "swap",
            Rank::Folio => "folio",
            Rank::Pool => "pool",
            Rank::Lists => "lists",
            Rank::FrameCache => "frame_cache",
            Rank::Frames => "frames",
            Rank::Scheduler => "scheduler",
            Rank::Wait => "wait",
            Rank::Console => "console",
            Rank::Leaf => "leaf",
            Rank::Heap => "heap",
        }
    }
}

/// All ranks, in the lock order.
pub const RANKS: [Rank; 25] = [
    Rank::Process,
    Rank::Signals,
    Rank::FileTable,
    Rank::Links,
    Rank::FileSystem,
    Rank::Mount,
    Rank::File,
    Rank::Scan,
    Rank::Space,
    Rank::SpaceChild,
    Rank::ObjectRegistry,
    Rank::Object,
    Rank::Table,
    Rank::TableChild,
    Rank::Swap,
    Rank::Folio,
    Rank::Pool,
    Rank::Lists,
    Rank::FrameCache,
    Rank::Frames,
    Rank::Scheduler,
    Rank::Wait,
    Rank::Console,
    Rank::Leaf,
    Rank::Heap,
];

/// The maximum number of locks that a CPU (on a host, a thread) may hold at a time.
pub const MAX_HELD: usize = 16;

/// The locks that a CPU holds, in the order in which they were acquired.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    ranks: [Option<Rank>; MAX_HELD],
}

impl Held {
    /// Returns the ranks in the order in which the locks were acquired.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.ranks.iter().flatten().copied()
    }
}

#[cfg(debug_assertions)]
pub use checked::held;
#[cfg(debug_assertions)]
pub(super) use checked::{
    acquired, check, check_beside, check_may_allocate, check_may_sleep, check_none_held, released,
    restore_held, take_held,
};

#[cfg(debug_assertions)]
mod checked {
    use super::{Held, MAX_HELD, RANKS, Rank};
    use crate::sync::Functions;
    use core::sync::atomic::{AtomicU8, Ordering};

    /// The record of held locks. A slot is 0 if it is unused. Otherwise it is the lock's rank plus 1.
    type Slots = [AtomicU8; MAX_HELD];

    #[cfg(any(test, feature = "std"))]
    mod place {
        use super::{Functions, Slots};
        extern crate std;

        std::thread_local! {
            static HELD: Slots = const { [const { super::AtomicU8::new(0) }; super::MAX_HELD] };
        }

        /// Calls `act` with the slots of the calling thread. On a host, held locks are recorded per thread instead of
        /// per CPU.
        pub(super) fn with<R>(_threads: &Functions, act: impl FnOnce(&Slots) -> R) -> Option<R> {
            with_of(0, act)
        }

        /// Like [`with`], because the records of other threads are not accessible.
        pub(super) fn with_of<R>(_cpu: usize, act: impl FnOnce(&Slots) -> R) -> Option<R> {
            HELD.try_with(|slots| act(slots)).ok()
        }
    }

    #[cfg(not(any(test, feature = "std")))]
    mod place {
        use super::{Functions, Slots};
        use crate::addr::MAX_CPUS;

        static HELD: [Slots; MAX_CPUS] =
            [const { [const { super::AtomicU8::new(0) }; super::MAX_HELD] }; MAX_CPUS];

        /// Calls `act` with the slots of the calling CPU.
        pub(super) fn with<R>(threads: &Functions, act: impl FnOnce(&Slots) -> R) -> Option<R> {
            with_of(threads.cpu_index(), act)
        }

        /// Calls `act` with the slots of a CPU.
        pub(super) fn with_of<R>(cpu: usize, act: impl FnOnce(&Slots) -> R) -> Option<R> {
            HELD.get(cpu).map(act)
        }
    }

    /// Returns 1 plus the highest rank that is held, or `Some(0)` if no lock is held. `None` if the locks are not
    /// recorded.
    fn highest(threads: &Functions) -> Option<u8> {
        place::with(threads, |slots| {
            slots
                .iter()
                .map(|slot| slot.load(Ordering::Relaxed))
                .max()
                .unwrap_or(0)
        })
    }

    /// Panics unless the highest rank that is held is `rank`. Only then may another lock of `rank` be acquired beside
    /// the held one.
    #[track_caller]
    pub(in crate::sync) fn check_beside(threads: &Functions, rank: Rank) {
        let first = highest(threads).is_none_or(|highest| highest == rank as u8 + 1);
        assert!(first, "no {rank:?} beside which another may be taken");
    }

    /// Panics if the lock order forbids acquiring a lock of `rank` now.
    #[track_caller]
    pub(in crate::sync) fn check(threads: &Functions, rank: Rank) {
        if let Some(highest) = highest(threads).filter(|&highest| highest > rank as u8) {
            let held = RANKS[highest as usize - 1];
            if held == rank {
                panic!(
                    "lock order: {rank:?} taken under {held:?}, perhaps by an interrupt handler or a callback"
                );
            }
            panic!("lock order: {rank:?} taken under {held:?}");
        }
        if rank.sleeps() {
            check_may_sleep(threads);
        }
    }

    /// Panics, in debug builds, if the caller holds a lock that does not [sleep](Rank::sleeps). Called at points where
    /// the thread may yield its CPU.
    ///
    /// # Panics
    /// If such a lock is held.
    #[track_caller]
    pub(in crate::sync) fn check_may_sleep(threads: &Functions) {
        place::with(threads, |slots| {
            for slot in slots {
                let held = RANKS.get((slot.load(Ordering::Relaxed) as usize).wrapping_sub(1));
                if let Some(rank) = held.filter(|rank| !rank.sleeps()) {
                    panic!("{rank:?} is held where the thread may yield");
                }
            }
        });
    }

    /// Panics, in debug builds, if the caller holds a lock under which the heap must not allocate frames: one of
    /// [`Rank::FrameCache`] or a later rank. The heap calls this for each allocation, so that such a caller is found
    /// even if the heap has room.
    ///
    /// # Panics
    /// If such a lock is held.
    #[track_caller]
    pub(in crate::sync) fn check_may_allocate(threads: &Functions) {
        let first = Rank::FrameCache as u8 + 1;
        if let Some(highest) = highest(threads).filter(|&highest| highest >= first) {
            panic!(
                "memory is allocated under {:?}",
                RANKS[highest as usize - 1]
            );
        }
    }

    /// Removes and returns the record of the locks that the calling CPU holds, because the next thread on the CPU does
    /// not hold them.
    pub(in crate::sync) fn take_held(threads: &Functions) -> [u8; MAX_HELD] {
        let take =
            |slots: &Slots| core::array::from_fn(|at: usize| slots[at].swap(0, Ordering::Relaxed));
        place::with(threads, take).unwrap_or([0; MAX_HELD])
    }

    /// Restores the record of held locks when a thread continues.
    pub(in crate::sync) fn restore_held(threads: &Functions, held: [u8; MAX_HELD]) {
        place::with(threads, |slots| {
            for (slot, rank) in slots.iter().zip(held) {
                slot.store(rank, Ordering::Relaxed);
            }
        });
    }

    /// Records that a lock of `rank` is held.
    #[track_caller]
    pub(in crate::sync) fn acquired(threads: &Functions, rank: Rank) {
        place::with(threads, |slots| {
            let free = slots.iter().find(|slot| slot.load(Ordering::Relaxed) == 0);
            free.expect("too many locks held")
                .store(rank as u8 + 1, Ordering::Relaxed);
        });
    }

    /// Records that a lock of `rank` is no longer held.
    pub(in crate::sync) fn released(threads: &Functions, rank: Rank) {
        place::with(threads, |slots| {
            let wanted = rank as u8 + 1;
            let mut from = slots
                .iter()
                .position(|slot| slot.load(Ordering::Relaxed) == wanted);
            // Move the later records down, so that the list stays in the order of acquisition.
            while let Some(at) = from {
                let next = slots
                    .get(at + 1)
                    .map_or(0, |slot| slot.load(Ordering::Relaxed));
                slots[at].store(next, Ordering::Relaxed);
                from = (next != 0).then_some(at + 1);
            }
        });
    }

    /// Returns the locks that CPU `cpu` holds; with the feature `std`, those of the calling thread. For panic reports
    /// only, because other CPUs may acquire and release locks at the same time.
    pub fn held(cpu: usize) -> Held {
        let mut held = Held::default();
        place::with_of(cpu, |slots| {
            for (rank, slot) in held.ranks.iter_mut().zip(slots) {
                *rank = RANKS
                    .get(slot.load(Ordering::Relaxed).wrapping_sub(1) as usize)
                    .copied();
            }
        });
        held
    }

    /// Panics, in debug builds, if the caller holds a lock. Called before a wait for an event, and before the return to
    /// user mode.
    ///
    /// # Panics
    /// If a lock is held.
    #[track_caller]
    pub(in crate::sync) fn check_none_held(threads: &Functions) {
        place::with(threads, |slots| {
            let first = slots[0].load(Ordering::Relaxed);
            if let Some(rank) = RANKS.get((first as usize).wrapping_sub(1)) {
                panic!("a lock is held where none may be: {rank:?}");
            }
        });
    }
}

#[cfg(not(debug_assertions))]
pub use unchecked::held;
#[cfg(not(debug_assertions))]
pub(super) use unchecked::{
    acquired, check, check_beside, check_may_allocate, check_may_sleep, check_none_held, released,
    restore_held, take_held,
};

#[cfg(not(debug_assertions))]
mod unchecked {
    use super::{Held, Rank};
    use crate::sync::Functions;

    #[inline(always)]
    pub(in crate::sync) fn check(_threads: &Functions, _rank: Rank) {}

    #[inline(always)]
    pub(in crate::sync) fn check_beside(_threads: &Functions, _rank: Rank) {}

    /// Does nothing in release builds; panics in debug builds if the caller holds a lock that does not sleep.
    #[inline(always)]
    pub(in crate::sync) fn check_may_sleep(_threads: &Functions) {}

    /// Does nothing in release builds; panics in debug builds if the caller holds a lock under which the heap must not
    /// allocate frames.
    #[inline(always)]
    pub(in crate::sync) fn check_may_allocate(_threads: &Functions) {}

    #[inline(always)]
    pub(in crate::sync) fn take_held(_threads: &Functions) {}

    #[inline(always)]
    pub(in crate::sync) fn restore_held(_threads: &Functions, (): ()) {}

    #[inline(always)]
    pub(in crate::sync) fn acquired(_threads: &Functions, _rank: Rank) {}

    #[inline(always)]
    pub(in crate::sync) fn released(_threads: &Functions, _rank: Rank) {}

    /// Returns an empty list, because release builds do not record held locks.
    pub fn held(_cpu: usize) -> Held {
        Held::default()
    }

    /// Does nothing in release builds; panics in debug builds if the caller holds a lock.
    #[inline(always)]
    pub(in crate::sync) fn check_none_held(_threads: &Functions) {}
}

#[cfg(test)]
mod tests {
    use super::{Rank, held};
    use crate::sync::{OneCpu, assert_may_allocate, assert_none_held};

    extern crate std;
    use std::vec::Vec;

    type Lock<T> = crate::sync::Lock<T, OneCpu>;

    #[test]
    #[should_panic(expected = "lock order: Space taken under Object")]
    fn wrong_order_panics() {
        let (object, space) = (Lock::new(Rank::Object, ()), Lock::new(Rank::Space, ()));
        let _object = object.lock();
        let _space = space.lock();
    }

    #[test]
    #[should_panic(expected = "lock order: Table taken under Table")]
    fn same_rank_panics() {
        let (one, two) = (Lock::new(Rank::Table, ()), Lock::new(Rank::Table, ()));
        let _one = one.lock();
        let _two = two.lock();
    }

    #[test]
    #[should_panic(expected = "memory is allocated under Leaf")]
    fn allocation_under_a_leaf_panics() {
        let (lists, leaf) = (Lock::new(Rank::Lists, ()), Lock::new(Rank::Leaf, ()));
        let _lists = lists.lock();
        assert_may_allocate::<OneCpu>();
        let _leaf = leaf.lock();
        assert_may_allocate::<OneCpu>();
    }

    #[test]
    fn held_list_keeps_the_order_of_taking() {
        let locks = [Rank::Scan, Rank::Space, Rank::Leaf].map(|rank| Lock::new(rank, ()));
        let scan = locks[0].lock();
        let space = locks[1].lock();
        let leaf = locks[2].lock();
        drop(space);
        assert_eq!(held(0).iter().collect::<Vec<_>>(), [Rank::Scan, Rank::Leaf]);
        drop(leaf);
        drop(scan);
        assert_none_held::<OneCpu>();
    }
}
