//! Mistakes planted on purpose, to prove that the machine detects them.

use memwright_table::Invalidation;

/// What a faulty memory manager would do to an invalidation.
///
/// To the CPUs, a request for too little and a machine that does too little look the same. The machine therefore plays
/// the mistake, and the memory manager stays unmodified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The CPU that changed the entry does not flush its own TLB.
    NoLocal,
    /// No other CPU is interrupted.
    NoRemote,
    /// Leaves are flushed; the paging-structure caches are not.
    NoTables,
    /// The last page of a range is left out.
    OnePageShort,
    /// The last of the CPUs to interrupt is left out.
    OneCpuShort,
    /// An interrupted CPU invalidates only at the next interrupt to any CPU, after frames were freed.
    Late,
    /// A CPU with tags uses its cached translations although they are stale or belong to another table.
    KeptForever,
}

impl Mistake {
    /// Returns what remains of a local invalidation, if anything.
    pub(crate) fn local(mistake: Option<Self>, what: &Invalidation) -> Option<Invalidation> {
        if mistake == Some(Self::NoLocal) {
            None
        } else {
            Self::either(mistake, what)
        }
    }

    /// Returns what remains of a remote invalidation, if anything.
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
            (Some(_) | None, _) => Some(*what),
        }
    }
}
