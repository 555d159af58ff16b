//! The page table that a CPU has loaded.

use rust_alloc::sync::Arc;

use super::{Table, rust_alloc};
use crate::addr::{CpuId, Frame};
use crate::machine::Machine;
use crate::sync::Threads;

/// A value that a CPU can load: a page table, or a value that contains one.
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
/// [`leave`](Loaded::leave), or ends its use by [`stop`](Loaded::stop). If a `Loaded` is dropped without one of these
/// calls, the table still counts as loaded, and must not be dropped.
#[derive(Debug)]
#[must_use = "the CPU has the table loaded until `switch`, `leave` or `stop`"]
pub struct Loaded<T: HasTable> {
    table: T,
    /// The CPU that has loaded the table.
    cpu: CpuId,
}

impl<T: HasTable> Loaded<T> {
    /// Loads `table` on the calling CPU, in place of a root of the embedder. A hardware CPU must not have another table
    /// of Memwright loaded, because only [`switch`](Self::switch) may replace that table.
    ///
    /// # Panics
    /// In debug builds, if the CPU has loaded the table already.
    #[inline]
    pub fn new(table: T) -> Self {
        if cfg!(debug_assertions) {
            check_unloaded(table.table());
        }
        Self::load(table)
    }

    #[inline]
    fn load(table: T) -> Self {
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

    /// Loads `next` on the calling CPU in place of this table. Returns `next` as loaded, and the `T` that was loaded
    /// before. If both have the same table, it stays loaded.
    ///
    /// # Panics
    /// In debug builds, if another CPU has loaded this table.
    #[inline]
    pub fn switch<N: HasTable<Machine = T::Machine>>(self, next: N) -> (Loaded<N>, T) {
        if core::ptr::eq(next.table(), self.table.table()) {
            let (table, cpu) = (next, self.cpu);
            return (Loaded { table, cpu }, self.table);
        }
        let next = Loaded::load(next);
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

    /// Ends the use of the table by the calling CPU, which must not access user memory until it loads a table again.
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

/// Panics if the calling CPU has loaded the table.
fn check_unloaded<M: Machine>(table: &Table<M>) {
    let cpu = M::Threads::cpu();
    let number = cpu.index();
    let is_loaded = table.loaded().contains(cpu);
    assert!(!is_loaded, "CPU {number} has loaded the table already");
}
