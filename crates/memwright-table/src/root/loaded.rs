//! The page table that a CPU has loaded.

use rust_alloc::sync::Arc;

use super::{Table, rust_alloc};
use crate::addr::{CpuId, Frame};
use crate::machine::Machine;
use crate::sync::Threads;

/// What a CPU can load: a page table, or what contains one.
pub trait HasTable {
    /// The machine on which the page table is used.
    type Machine: Machine;

    /// Returns the page table.
    fn table(&self) -> &Table<Self::Machine>;
}

impl<M: Machine> HasTable for Table<M> {
    type Machine = M;

    #[inline]
    fn table(&self) -> &Table<M> {
        self
    }
}

impl<T: HasTable + ?Sized> HasTable for &T {
    type Machine = T::Machine;

    #[inline]
    fn table(&self) -> &Table<T::Machine> {
        (**self).table()
    }
}

impl<T: HasTable + ?Sized> HasTable for Arc<T> {
    type Machine = T::Machine;

    #[inline]
    fn table(&self) -> &Table<T::Machine> {
        (**self).table()
    }
}

/// A page table that a CPU has loaded. An embedder keeps one for each CPU that runs a program.
///
/// The CPU receives the invalidations of the table until it loads another root by [`switch`](Loaded::switch) or
/// [`leave`](Loaded::leave), or ends its use by [`stop`](Loaded::stop). A value that is dropped in place of that leaves
/// the table as loaded as before, so that the table may not be dropped.
#[derive(Debug)]
#[must_use = "the CPU has the table loaded until `switch`, `leave` or `stop`"]
pub struct Loaded<T: HasTable> {
    table: T,
    /// The CPU that has loaded the table.
    cpu: CpuId,
}

impl<T: HasTable> Loaded<T> {
    /// Loads the table on the calling CPU, which has loaded no other table, or only a root of the embedder.
    #[inline]
    pub fn new(table: T) -> Self {
        table.table().load();
        Self {
            table,
            cpu: <T::Machine as Machine>::Threads::cpu(),
        }
    }

    /// Returns what was loaded.
    #[inline]
    pub fn get(&self) -> &T {
        &self.table
    }

    /// Loads `next` on the calling CPU in place of this table. Returns what was loaded before, too.
    ///
    /// # Panics
    /// In debug builds, if another CPU has loaded this table.
    #[inline]
    pub fn switch<N: HasTable>(self, next: N) -> (Loaded<N>, T) {
        let next = Loaded::new(next);
        (next, self.stop())
    }

    /// Loads `root`, a root of the embedder, on the calling CPU in place of this table. Returns what was loaded before.
    ///
    /// # Panics
    /// In debug builds, if another CPU has loaded this table.
    #[inline]
    pub fn leave(self, root: Frame) -> T {
        self.table.table().frames().machine().load_root(root);
        self.stop()
    }

    /// Ends the use of the table by the calling CPU, which does not access user memory any more until it loads a table.
    /// Returns what was loaded. For a CPU that goes offline, or whose emulation ends.
    ///
    /// # Panics
    /// In debug builds, if another CPU has loaded the table.
    #[inline]
    pub fn stop(self) -> T {
        let cpu = <T::Machine as Machine>::Threads::cpu();
        debug_assert!(
            cpu == self.cpu,
            "CPU {} leaves a table that CPU {} has loaded",
            cpu.index(),
            self.cpu.index()
        );
        self.table.table().note_unloaded(cpu);
        self.table
    }
}
