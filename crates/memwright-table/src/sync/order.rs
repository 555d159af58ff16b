//! The order of locks, and its check in debug builds.

/// The rank of a lock. A thread acquires locks in this order only. To acquire a lock whose rank is held already, or
/// comes before a rank that is held, is a bug that debug builds report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Rank {
    /// The tree of processes; the state of one process that its threads share.
    Process,
    /// The signal state of a process.
    Signals,
    /// A table of file descriptors.
    FileTable,
    /// References between open files: epoll instances that monitor one another, sockets that hold passed files.
    Links,
    /// Directories, mounts and inodes.
    FileSystem,
    /// The mounts on one directory.
    Mount,
    /// One open file, pipe, or other object behind a descriptor.
    File,
    /// The scan of all address spaces, of which one runs at a time.
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
    /// The entries of a second page table: the child's in a fork, the lower one when a table is freed.
    TableChild,
    /// The slots of the swap devices, and the state of one device.
    Swap,
    /// The counts of the pages of a folio.
    Folio,
    /// The hugetlb pool.
    Pool,
    /// Lists that grow while they are locked, so that the heap can take frames for them.
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
    /// State whose users acquire no other lock and allocate nothing while they hold it.
    Leaf,
    /// An embedder's heap. It may be acquired under any other lock.
    Heap,
}

impl Rank {
    /// Whether a thread is allowed to yield its CPU while it holds a lock of this rank, and while it waits for one.
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

/// All ranks, in the order of locking.
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

/// The maximum number of locks that one CPU (on a host: one thread) may hold at a time.
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
pub(super) use checked::{acquired, check, check_beside, released, restore_held, take_held};
#[cfg(debug_assertions)]
pub use checked::{assert_may_allocate, assert_may_sleep, assert_none_held, held};

#[cfg(debug_assertions)]
mod checked {
    use super::{Held, MAX_HELD, RANKS, Rank};
    use core::sync::atomic::{AtomicU8, Ordering};

    /// 0 for a free slot, else one more than the rank.
    type Slots = [AtomicU8; MAX_HELD];

    #[cfg(any(test, feature = "std"))]
    mod place {
        use super::Slots;
        extern crate std;

        std::thread_local! {
            static HELD: Slots = const { [const { super::AtomicU8::new(0) }; super::MAX_HELD] };
        }

        /// On a host, held locks are recorded per thread instead of per CPU.
        pub(super) fn with<R>(_cpu: Option<usize>, act: impl FnOnce(&Slots) -> R) -> Option<R> {
            HELD.try_with(|slots| act(slots)).ok()
        }
    }

    #[cfg(not(any(test, feature = "std")))]
    mod place {
        use super::Slots;
        use crate::addr::MAX_CPUS;

        static HELD: [Slots; MAX_CPUS] =
            [const { [const { super::AtomicU8::new(0) }; super::MAX_HELD] }; MAX_CPUS];

        pub(super) fn with<R>(cpu: Option<usize>, act: impl FnOnce(&Slots) -> R) -> Option<R> {
            if !crate::sync::installed() {
                return None;
            }
            Some(act(&HELD[cpu.unwrap_or_else(crate::sync::cpu)]))
        }
    }

    /// Returns one more than the highest rank of which a lock is held, or 0 if none is held.
    fn highest() -> Option<u8> {
        place::with(None, |slots| {
            slots
                .iter()
                .map(|slot| slot.load(Ordering::Relaxed))
                .max()
                .unwrap_or(0)
        })
    }

    /// Panics unless the highest rank held is `rank`, so that another lock of it may follow.
    #[track_caller]
    pub(in crate::sync) fn check_beside(rank: Rank) {
        let first = highest().is_none_or(|highest| highest == rank as u8 + 1);
        assert!(first, "no {rank:?} beside which another may be taken");
    }

    /// Panics if the lock order forbids to acquire a lock of `rank` now.
    #[track_caller]
    pub(in crate::sync) fn check(rank: Rank) {
        if let Some(highest) = highest().filter(|&highest| highest > rank as u8) {
            panic!(
                "lock order: {rank:?} taken under {:?}",
                RANKS[highest as usize - 1]
            );
        }
        if rank.sleeps() {
            assert_may_sleep();
        }
    }

    /// Panics, in debug builds, if the caller holds a lock that does not [sleep](Rank::sleeps). Called where the thread
    /// may yield its CPU.
    ///
    /// # Panics
    /// If such a lock is held.
    #[track_caller]
    pub fn assert_may_sleep() {
        place::with(None, |slots| {
            for slot in slots {
                let held = RANKS.get((slot.load(Ordering::Relaxed) as usize).wrapping_sub(1));
                if let Some(rank) = held.filter(|rank| !rank.sleeps()) {
                    panic!("{rank:?} is held where the thread may yield");
                }
            }
        });
    }

    /// Panics, in debug builds, if the caller holds a lock under which the heap may not take frames: one of
    /// [`Rank::FrameCache`] or a later rank. The heap calls this for each allocation, so that such a caller is found
    /// even where the heap has room.
    ///
    /// # Panics
    /// If such a lock is held.
    #[track_caller]
    pub fn assert_may_allocate() {
        let first = Rank::FrameCache as u8 + 1;
        if let Some(highest) = highest().filter(|&highest| highest >= first) {
            panic!(
                "memory is allocated under {:?}",
                RANKS[highest as usize - 1]
            );
        }
    }

    /// Removes and returns the locks that the calling CPU holds, because its next thread does not hold them.
    pub(in crate::sync) fn take_held() -> [u8; MAX_HELD] {
        let take =
            |slots: &Slots| core::array::from_fn(|at: usize| slots[at].swap(0, Ordering::Relaxed));
        place::with(None, take).unwrap_or([0; MAX_HELD])
    }

    /// Restores the locks of a thread that continues.
    pub(in crate::sync) fn restore_held(held: [u8; MAX_HELD]) {
        place::with(None, |slots| {
            for (slot, rank) in slots.iter().zip(held) {
                slot.store(rank, Ordering::Relaxed);
            }
        });
    }

    /// Records that a lock of `rank` is held.
    #[track_caller]
    pub(in crate::sync) fn acquired(rank: Rank) {
        place::with(None, |slots| {
            let free = slots.iter().find(|slot| slot.load(Ordering::Relaxed) == 0);
            free.expect("too many locks held")
                .store(rank as u8 + 1, Ordering::Relaxed);
        });
    }

    /// Records that a lock of `rank` is no longer held.
    pub(in crate::sync) fn released(rank: Rank) {
        place::with(None, |slots| {
            let wanted = rank as u8 + 1;
            let mut from = slots
                .iter()
                .position(|slot| slot.load(Ordering::Relaxed) == wanted);
            // Close the gap: the list stays in the order of acquisition.
            while let Some(at) = from {
                let next = slots
                    .get(at + 1)
                    .map_or(0, |slot| slot.load(Ordering::Relaxed));
                slots[at].store(next, Ordering::Relaxed);
                from = (next != 0).then_some(at + 1);
            }
        });
    }

    /// Returns the locks that CPU `cpu` holds; with the feature `std`, those of the calling thread. For panic reports:
    /// other CPUs may acquire and release locks at the same time.
    pub fn held(cpu: usize) -> Held {
        let mut held = Held::default();
        place::with(Some(cpu), |slots| {
            for (rank, slot) in held.ranks.iter_mut().zip(slots) {
                *rank = RANKS
                    .get(slot.load(Ordering::Relaxed).wrapping_sub(1) as usize)
                    .copied();
            }
        });
        held
    }

    /// Panics, in debug builds, if the caller holds a lock. Called before a wait and before the return to user mode.
    ///
    /// # Panics
    /// If a lock is held.
    #[track_caller]
    pub fn assert_none_held() {
        place::with(None, |slots| {
            let first = slots[0].load(Ordering::Relaxed);
            if let Some(rank) = RANKS.get((first as usize).wrapping_sub(1)) {
                panic!("a lock is held where none may be: {rank:?}");
            }
        });
    }
}

#[cfg(not(debug_assertions))]
pub(super) use unchecked::{acquired, check, check_beside, released, restore_held, take_held};
#[cfg(not(debug_assertions))]
pub use unchecked::{assert_may_allocate, assert_may_sleep, assert_none_held, held};

#[cfg(not(debug_assertions))]
mod unchecked {
    use super::{Held, Rank};

    #[inline(always)]
    pub(in crate::sync) fn check(_rank: Rank) {}

    #[inline(always)]
    pub(in crate::sync) fn check_beside(_rank: Rank) {}

    /// Does nothing in release builds; panics in debug builds if the caller holds a lock that does not sleep.
    #[inline(always)]
    pub fn assert_may_sleep() {}

    /// Does nothing in release builds; panics in debug builds if the heap is not allowed to take frames under a lock
    /// that the caller holds.
    #[inline(always)]
    pub fn assert_may_allocate() {}

    #[inline(always)]
    pub(in crate::sync) fn take_held() {}

    #[inline(always)]
    pub(in crate::sync) fn restore_held((): ()) {}

    #[inline(always)]
    pub(in crate::sync) fn acquired(_rank: Rank) {}

    #[inline(always)]
    pub(in crate::sync) fn released(_rank: Rank) {}

    /// Returns no locks: they are not tracked in release builds.
    pub fn held(_cpu: usize) -> Held {
        Held::default()
    }

    /// Does nothing in release builds; panics in debug builds if the caller holds a lock.
    #[inline(always)]
    pub fn assert_none_held() {}
}

#[cfg(test)]
mod tests {
    use super::{Rank, assert_none_held, held};
    use crate::sync::Lock;

    extern crate std;
    use std::vec::Vec;

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
        super::assert_may_allocate();
        let _leaf = leaf.lock();
        super::assert_may_allocate();
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
        assert_none_held();
    }
}
