//! Mistakes planted on purpose, to prove that the machine notices them.

use memwright_table::Invalidation;

/// What a careless memory manager would do to an invalidation.
///
/// Asking for too little and asking rightly of a machine that does too little look the same from
/// the CPUs, so the machine plays the mistake and the memory manager stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The CPU that made the change does not flush its own TLB.
    NoLocal,
    /// No other CPU is interrupted.
    NoRemote,
    /// Leaves are flushed, the paging-structure caches are not.
    NoTables,
    /// The last page of a range is left out.
    OnePageShort,
    /// The last of the CPUs to be interrupted is left out.
    OneCpuShort,
    /// A CPU that is interrupted forgets at the next interrupt to anybody: frames are free before.
    Late,
    /// A CPU with tags uses what it kept although it is stale, or another table's.
    KeptForever,
}

impl Mistake {
    /// What remains of a local invalidation, if anything.
    pub(crate) fn local(mistake: Option<Self>, what: &Invalidation) -> Option<Invalidation> {
        if mistake == Some(Self::NoLocal) {
            None
        } else {
            Self::either(mistake, what)
        }
    }

    /// What remains of a remote invalidation, if anything.
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
