//! The choice of the page tables that a fork shares instead of copying (`fork=share`).
//!
//! A last-level page table covers 2 MiB, which can have pages of several areas. It is shared only if a fork would copy
//! all of its entries by the rule for private anonymous memory (rule: shared-table-has-one-rule). A fork copies no
//! entry of an area to which nothing was written, because such entries map the page of zeroes.

use memwright_table::{
    CpuId, Gather, Machine, OutOfFrames, Page, PageRange, ShareRule, TableTotals,
};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::types::huge;
use crate::types::policy::ForkTables;
use crate::vma::area::AreaFlags;

/// The state of a fork that goes over the areas in ascending order.
pub(super) struct Sharing {
    /// The rule that selects the tables to share, or `None` if no table may be shared.
    rule: Option<ShareRule>,
    /// The end of the last area whose entries the fork has already handled or must not share. A table that begins below
    /// this end is not shared any more, because it has such entries.
    barrier: Page,
    /// The pages of the areas that were skipped most recently. If one of these pages has an entry, its table must not
    /// be shared.
    passed: PageRange,
    /// The end of the pages whose tables have been shared.
    shared: Page,
}

/// The flags of areas whose tables are not shared, because fork does not copy their entries, or because the entries
/// have state of one address space.
const OF_ONE: AreaFlags = AreaFlags::DONTFORK
    .union(AreaFlags::WIPEONFORK)
    .union(AreaFlags::MARKED)
    .union(AreaFlags::UFFD);

/// Returns whether a fork would copy entries of the area only by the rule for private anonymous memory.
fn may_share<M: Machine>(area: &Area<M>) -> bool {
    !area.is_shared() && area.object().is_none() && !area.flags().intersects(OF_ONE)
}

/// Returns the pages of the tables that a fork can share when it reaches an area with the pages `range`. Leaves out the
/// first table if it begins below both `range` and `before`: such a table is shared already, or must not be shared. If
/// the last table extends beyond `range`, includes it only if `after` is set, which means that the later areas in that
/// table permit sharing.
fn tables_of(range: PageRange, before: Page, after: bool) -> PageRange {
    let first = huge::around(range.start);
    let last = huge::around(Page::new(range.end.number() - 1));
    let start = if first.start == range.start || first.start >= before {
        first.start
    } else {
        first.end
    };
    let end = if last.end == range.end || after {
        last.end
    } else {
        last.start
    };
    PageRange::new(start, end.max(start))
}

impl Sharing {
    /// Returns the state of a fork of `core` before the first area. Returns `None` if the policy makes forks copy all
    /// entries, so that the fork need not decide for each area.
    pub(super) fn begin<M: Machine>(core: &Core<M>) -> Option<Self> {
        let shares = core.memory.policy().fork_shares();
        shares.then(|| Self::of(core))
    }

    /// Returns the state of a fork of `core` before the first area. No table is shared in three cases. Pages that may
    /// be pinned must be copied at once (rule: exclusive-before-pin). A page that is lent must not become exclusive to
    /// the address space that is left with the table in the end, because its stores would be visible to the borrower.
    /// The scan for equal pages needs separate entries, because it records each one.
    fn of<M: Machine>(core: &Core<M>) -> Self {
        let borrowed = core.may_have_pinned() || core.may_have_lent();
        let allowed = !borrowed && !core.merge_number.may_have_merged();
        let rule = match core.memory.policy().fork_tables() {
            ForkTables::Share(least) if allowed => Some(ShareRule {
                least,
                looks: core.may_have_marks(),
            }),
            ForkTables::Share(_) | ForkTables::Copy => None,
        };
        Self {
            rule,
            barrier: Page::new(0),
            passed: PageRange::default(),
            shared: Page::new(0),
        }
    }

    /// Skips an area whose entries the fork does not copy.
    pub(super) fn pass<M: Machine>(&mut self, area: &Area<M>) {
        if !may_share(area) {
            self.barrier = area.end();
            return;
        }
        let is_in_table_before = huge::around(area.start()).contains(self.passed.end);
        let start = if is_in_table_before {
            self.passed.start
        } else {
            area.start()
        };
        self.passed = PageRange::new(start, area.end());
    }

    /// Shares the tables of `area` with the child where that is possible, and calls `copy` with each range of pages
    /// whose entries are to be copied. Returns the sum of the results of `copy`.
    ///
    /// # Errors
    /// [`OutOfFrames`], or the error of `copy`. Some of the tables may be shared.
    ///
    /// # Locks
    /// The caller holds the locks of the areas of `core` and of `child` for writing.
    pub(super) fn share<M: Machine>(
        &mut self,
        (core, areas): (&Core<M>, &Areas<M>),
        (child, cpu): (&Core<M>, CpuId),
        area: &Area<M>,
        gather: &mut Gather<'_, M>,
        mut copy: impl FnMut(PageRange, &mut Gather<'_, M>) -> Result<u64, OutOfFrames>,
    ) -> Result<u64, OutOfFrames> {
        let range = area.range();
        let Some(rule) = self.rule.filter(|_| may_share(area)) else {
            self.barrier = range.end;
            return copy(range, gather);
        };
        let passed = self.passed.intersect(huge::around(range.start));
        if !passed.is_empty() && !core.table.was_empty(passed) {
            self.barrier = self.barrier.max(passed.end);
        }
        let last = huge::around(Page::new(range.end.number() - 1));
        let beyond = PageRange::new(range.end, last.end);
        let after = beyond.is_empty()
            || areas.map.overlapping(beyond).all(|area| {
                let part = area.range().intersect(beyond);
                may_share(area) && (area.has_faulted() || core.table.was_empty(part))
            });
        let mut tables = tables_of(range, self.barrier.max(self.shared), after);
        let mut entries = 0;
        let mut next = range.start.max(self.shared);
        while next < range.end {
            if !tables.is_empty() && tables.start <= next {
                let mut shared = TableTotals::default();
                let end =
                    core.table
                        .share_tables(&child.table, (tables, rule), &mut shared, gather);
                child.note_shared(cpu, &shared);
                let end = end?;
                if end > tables.start {
                    self.shared = end;
                    next = next.max(end);
                }
                // Copy the table that could not be shared.
                tables = PageRange::new(huge::around(end).end.min(tables.end), tables.end);
            }
            let end = if tables.is_empty() {
                range.end
            } else {
                tables.start.min(range.end)
            };
            if next < end {
                entries += copy(PageRange::new(next, end), gather)?;
                next = end;
            }
        }
        self.barrier = range.end;
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_shared_at_its_first_area_if_every_area_permits_it() {
        #[rustfmt::skip]
        let rows = [
            // pages      before  after   tables
            ((512, 1536),      0, false, (512, 1536)),
            ((600, 1536),      0, false, (512, 1536)),
            ((600, 1536),    512, false, (512, 1536)),
            ((600, 1536),    513, false, (1024, 1536)),
            ((512, 1500),      0, true,  (512, 1536)),
            ((512, 1500),      0, false, (512, 1024)),
            ((600, 700),       0, true,  (512, 1024)),
            ((600, 700),       0, false, (512, 512)),
            ((600, 700),     550, true,  (1024, 1024)),
        ];
        let range = |(start, end)| PageRange::new(Page::new(start), Page::new(end));
        for (pages, before, after, expected) in rows {
            let tables = tables_of(range(pages), Page::new(before), after);
            assert_eq!(tables, range(expected), "{pages:?} {before} {after}");
        }
    }
}
