//! Checks whether any CPU can still make an access that the page tables no longer permit.

use memwright_table::{CpuId, Frame, PageSize};

use crate::machine::SimulatedMachine;
use crate::tlb::{CachedDirectory, Directory, Rights, Translation};
use crate::walk;

/// A cached translation that permits more than the page tables do.
///
/// No such translation may exist between operations (rule: flush-what-shrank). A translation that has fewer rights than
/// the tables grant may stay cached. A translation that lost rights, moved, changed its size, was unmapped, or lost its
/// dirty bit must have been dropped by every CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoherence {
    /// No present entry translates the page any more.
    Freed(CpuId, Translation),
    /// The entry maps another frame.
    Moved(CpuId, Translation, Frame),
    /// The leaf has another size.
    Resized(CpuId, Translation, PageSize),
    /// The tables grant fewer rights.
    Shrank(CpuId, Translation, Rights),
    /// The entry is clean, so a write through the cached translation would not set its dirty bit.
    Cleaned(CpuId, Translation),
    /// The entry selects another memory type. The field is the type's index in the page attribute table.
    Retyped(CpuId, Translation, u8),
    /// The paging-structure cache holds an entry that pointed to a table. The page-table entry now points to another
    /// table or to no table, or grants fewer rights.
    Table(CpuId, Directory, CachedDirectory),
}

impl SimulatedMachine {
    /// Compares everything that each CPU has cached with the page tables. Returns each difference. The caller must
    /// ensure that no operation runs.
    #[must_use]
    pub fn audit(&self) -> Vec<Incoherence> {
        let mut found = Vec::new();
        for cpu in self.cpus() {
            let core = self.core(cpu);
            let Some(root) = core.root else { continue };
            found.extend(
                core.tlb
                    .leaves()
                    .filter_map(|leaf| self.check_leaf(cpu, root, *leaf)),
            );
            found.extend(core.tlb.directories().filter_map(|(directory, cached)| {
                let now = walk::look_directory(self.memory(), root, *directory);
                let harmless = now.is_some_and(|now| {
                    now.table == cached.table && !cached.rights.exceeds(now.rights)
                });
                (!harmless).then_some(Incoherence::Table(cpu, *directory, *cached))
            }));
        }
        found
    }

    fn check_leaf(&self, cpu: CpuId, root: Frame, cached: Translation) -> Option<Incoherence> {
        let Some(Ok(now)) = walk::look(self.memory(), root, cached.page) else {
            return Some(Incoherence::Freed(cpu, cached));
        };
        if now.frame != cached.frame {
            Some(Incoherence::Moved(cpu, cached, now.frame))
        } else if now.size != cached.size {
            Some(Incoherence::Resized(cpu, cached, now.size))
        } else if cached.rights.exceeds(now.rights) {
            Some(Incoherence::Shrank(cpu, cached, now.rights))
        } else if cached.pat != now.pat {
            Some(Incoherence::Retyped(cpu, cached, now.pat))
        } else if cached.dirty && !now.dirty {
            Some(Incoherence::Cleaned(cpu, cached))
        } else {
            None
        }
    }
}
