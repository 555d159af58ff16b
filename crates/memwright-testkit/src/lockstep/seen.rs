//! What programs can read about the memory of processes, in files such as `/proc/PID/smaps` and `/proc/PID/pagemap`.

use alloc::format;
use alloc::vec::Vec;

use memwright::Sight;
use memwright_table::{Architecture, Bits, Entry, FrameKind};

use super::{Difference, Lockstep};
use crate::machine::TestMachine;
use crate::script::Script;

/// What programs can read about the memory of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The number of resident pages.
    resident: u64,
    /// The number of resident pages of objects.
    of_objects: u64,
    /// The number of pages that are swapped out.
    swapped: u64,
    /// The number of the first page of each entry that is not empty, and what the entry shows.
    entries: Vec<(u64, SeenEntry)>,
}

/// What programs can read about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeenEntry {
    /// A page: what its frame is used for, the number of entries that map the frame, and whether the page is dirty.
    Page(FrameKind, u32, bool),
    /// A swap entry, with the share of a process in its page: `UNIT` divided by the number of users.
    Swapped(u64),
    /// A marker.
    Marker,
}

/// The unit in which the share of a process in a swapped page is computed.
const UNIT: u64 = 1 << 20;

impl<M: TestMachine> Lockstep<M> {
    /// Performs all steps like [`run`](Self::run), without the end, and returns what programs can then read about the
    /// memory of each process.
    ///
    /// # Errors
    /// Like [`run`](Self::run).
    pub fn run_and_see(mut self, script: &Script) -> Result<Vec<Seen>, Difference> {
        for (number, step) in script.0.iter().enumerate() {
            self.step_or_reclaim(step)
                .and_then(|()| Ok(self.check()?))
                .map_err(|difference| difference.at(&format!("step {number} ({step:?})")))?;
        }
        Ok(self.see())
    }

    /// Returns what programs can read about the memory of each process.
    fn see(&self) -> Vec<Seen> {
        // Read the counters first, because they must be correct while tables are shared. The call below ends the
        // sharing of some tables.
        let counters: Vec<_> = self
            .processes
            .values()
            .map(|process| {
                let space = process.space();
                let of_objects = space.usage().resident_object_pages();
                (
                    space.usage().resident_pages(),
                    of_objects,
                    space.usage().swapped_pages(),
                )
            })
            .collect();
        let memory = self.host.memory();
        memory.own_ambiguous_tables().expect("the heap of the host");
        let seen = self.processes.values().zip(counters);
        seen.map(|(process, (resident, of_objects, swapped))| {
            let mut entries = Vec::new();
            let all = M::Arch::USER;
            process.space().usage().survey(all, |sight: Sight<'_, M>| {
                let Sight::Entry(_, extent, others) = sight else {
                    return true;
                };
                let seen = match extent.entry {
                    // The number of entries that map the page of zeroes is not counted.
                    Entry::Present(page) if page.frame == memory.zero_frame() => {
                        SeenEntry::Page(FrameKind::Zero, 0, false)
                    }
                    Entry::Present(page) => {
                        let (kind, sharers) = memory.frames().shown(page.frame);
                        let dirty = page.bits.intersects(Bits::DIRTY | Bits::FOLDED_DIRTY);
                        SeenEntry::Page(kind, sharers + others, dirty)
                    }
                    Entry::Swapped(page) => {
                        let pages = extent.range.len();
                        SeenEntry::Swapped(memory.swap().shares(page.slot, pages, UNIT))
                    }
                    Entry::Marker(_) | Entry::Migrating(_) | Entry::Empty => SeenEntry::Marker,
                };
                entries.push((extent.range.start.number(), seen));
                true
            });
            Seen {
                resident,
                of_objects,
                swapped,
                entries,
            }
        })
        .collect()
    }
}
