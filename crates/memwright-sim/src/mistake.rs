//! Mistakes planted on purpose, to prove that the machine detects them.

use memwright_table::{Invalidation, PageSize};

/// The effect of a faulty memory manager on an invalidation, or a mistake of the machine itself.
///
/// A memory manager that requests too small an invalidation and a machine that performs only a part of it have the same
/// effect on a CPU. The machine therefore simulates the mistake, and the memory manager stays unmodified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The CPU that changed the entry does not flush its own TLB.
    NoLocal,
    /// No other CPU is interrupted.
    NoRemote,
    /// Leaves are flushed, but the paging-structure caches are not.
    NoTables,
    /// The last page of a range is not flushed.
    OnePageShort,
    /// Each translation of a range is taken to map a page of 4 KiB.
    NoStride,
    /// The last target of a remote invalidation is not interrupted.
    OneCpuShort,
    /// An interrupted CPU performs the invalidation only at the next interrupt of any CPU. The memory manager may have
    /// freed frames by then.
    Late,
    /// A CPU with tags uses its cached translations although they are stale or belong to another table.
    KeptForever,
    /// `copy_frame` copies only the first half of a frame.
    HalfCopy,
    /// A page walk permits stores to pages that are only readable.
    WritesAnywhere,
}

impl Mistake {
    /// Returns the part of a local invalidation that is performed, or `None` if no part is performed.
    pub(crate) fn local(mistake: Option<Self>, what: &Invalidation) -> Option<Invalidation> {
        if mistake == Some(Self::NoLocal) {
            None
        } else {
            Self::either(mistake, what)
        }
    }

    /// Returns the part of a remote invalidation that is performed, or `None` if no part is performed.
    pub(crate) fn remote(mistake: Option<Self>, what: &Invalidation) -> Option<Invalidation> {
        if mistake == Some(Self::NoRemote) {
            None
        } else {
            Self::either(mistake, what)
        }
    }

    fn either(mistake: Option<Self>, what: &Invalidation) -> Option<Invalidation> {
        match (mistake, what) {
            (Some(Self::NoTables), Invalidation::AllAndTables) => Some(Invalidation::All),
            (
                Some(Self::OnePageShort),
                &Invalidation::Pages {
                    first,
                    count,
                    stride,
                },
            ) => (count > 1).then(|| Invalidation::Pages {
                first,
                count: count - 1,
                stride,
            }),
            (Some(Self::NoStride), &Invalidation::Pages { first, count, .. }) => {
                Some(Invalidation::Pages {
                    first,
                    count,
                    stride: PageSize::Size4K,
                })
            }
            (Some(_) | None, _) => Some(*what),
        }
    }
}
