//! Accesses to memory, and how page faults on them are resolved.

use memwright_table::Bits;

use crate::types::rights::Rights;
use crate::types::stats::Row;

/// The properties of an access, as a page fault reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whether the access is a store.
    pub write: bool,
    /// Whether the access is an instruction fetch.
    pub fetch: bool,
    /// Whether the access is made by the thread that runs on the calling CPU: by its program, or by the kernel on its
    /// behalf, as in a `read` system call. The protection-key register of the CPU applies only to such accesses. It
    /// does not apply to an access to another process, such as that of a debugger.
    pub user: bool,
}

impl Access {
    /// A load of the running program: [`user`](Self::user) is true.
    pub const READ: Self = Self {
        write: false,
        fetch: false,
        user: true,
    };

    /// A store of the running program: [`user`](Self::user) is true.
    pub const WRITE: Self = Self {
        write: true,
        ..Self::READ
    };

    /// An instruction fetch of the running program: [`user`](Self::user) is true.
    pub const FETCH: Self = Self {
        fetch: true,
        ..Self::READ
    };

    /// Returns the name used in traces.
    pub const fn name(self) -> &'static str {
        match (self.fetch, self.write) {
            (true, _) => "fetch",
            (false, true) => "write",
            (false, false) => "read",
        }
    }

    /// Returns whether an area with these rights permits the access. As on Linux 7.2 (`arch/x86/mm/fault.c`,
    /// `access_error`), any right permits reading.
    pub(crate) fn allowed_by(self, rights: Rights) -> bool {
        let only_reads = !self.fetch && !self.write;
        let right = [Rights::WRITE, Rights::EXECUTE][usize::from(self.fetch)];
        rights.contains(right) || (only_reads && !rights.is_none())
    }

    /// Returns the bits that an entry must have so that the access does not fault.
    pub(crate) fn needs(self) -> Bits {
        if self.fetch {
            Bits::READ | Bits::EXECUTE
        } else if self.write {
            Bits::READ | Bits::WRITE
        } else {
            Bits::READ
        }
    }
}

/// The way in which a fault was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A zeroed frame was mapped.
    DemandZero,
    /// A read of memory without a page mapped the shared zero page.
    ZeroPage,
    /// A zeroed 2 MiB folio or a huge page of an object was mapped.
    Huge,
    /// A read of memory without a page mapped the shared huge zero page.
    HugeZeroPage,
    /// A zeroed folio of several pages was mapped by 4 KiB entries.
    Folio,
    /// A hugetlb page was mapped.
    Hugetlb,
    /// A page of an object was mapped.
    File,
    /// A store to a private mapping mapped a private page: a copy, or a zeroed one.
    Copy,
    /// The entry became writable; nothing else changed.
    WriteOnly,
    /// The entry became readable or executable; nothing else changed.
    ReadExec,
    /// The entry was a NUMA hint, and got the rights of its area again.
    Hint,
    /// The page was read from a swap device.
    SwapIn,
    /// The page was found in the swap cache.
    SwapCached,
    /// The entry already permitted the access.
    Spurious,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::DemandZero,
        Self::ZeroPage,
        Self::Huge,
        Self::HugeZeroPage,
        Self::Folio,
        Self::Hugetlb,
        Self::File,
        Self::Copy,
        Self::WriteOnly,
        Self::ReadExec,
        Self::Hint,
        Self::SwapIn,
        Self::SwapCached,
        Self::Spurious,
    ];

    /// Returns the name used in traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DemandZero => "demand_zero",
            Self::ZeroPage => "zero_page",
            Self::Huge => "thp",
            Self::HugeZeroPage => "thp_zero_page",
            Self::Folio => "folio",
            Self::Hugetlb => "hugetlb",
            Self::File => "file",
            Self::Copy => "cow",
            Self::WriteOnly => "write_permission",
            Self::ReadExec => "read_exec_permission",
            Self::Hint => "numa_hint",
            Self::SwapIn => "swap_in",
            Self::SwapCached => "swap_cache",
            Self::Spurious => "spurious",
        }
    }

    /// Returns the row of the account that counts faults of this kind.
    pub const fn row(self) -> Row {
        match self {
            Self::DemandZero => Row::FaultDemandZero,
            Self::ZeroPage => Row::FaultZeroPage,
            Self::Huge => Row::FaultHuge,
            Self::HugeZeroPage => Row::FaultHugeZeroPage,
            Self::Folio => Row::FaultFolio,
            Self::Hugetlb => Row::FaultHugetlb,
            Self::File => Row::FaultFile,
            Self::Copy => Row::FaultCopy,
            Self::WriteOnly => Row::FaultWriteOnly,
            Self::ReadExec => Row::FaultReadExec,
            Self::Hint => Row::FaultHint,
            Self::SwapIn => Row::FaultSwapIn,
            Self::SwapCached => Row::FaultSwapCached,
            Self::Spurious => Row::FaultSpurious,
        }
    }

    /// Returns whether the page was read from a swap device (`ru_majflt`).
    #[inline]
    pub const fn is_major(self) -> bool {
        matches!(self, Self::SwapIn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_right_permits_reading() {
        let key = Rights::empty().with_key(3);
        #[rustfmt::skip]
        let rows = [
            // rights                             read   write  fetch
            (Rights::empty(),                    [false, false, false]),
            (key,                                [false, false, false]),
            (Rights::READ,                       [true,  false, false]),
            (Rights::WRITE,                      [true,  true,  false]),
            (Rights::EXECUTE,                    [true,  false, true]),
            (Rights::READ | Rights::WRITE | key, [true,  true,  false]),
            (Rights::WRITE | Rights::EXECUTE,    [true,  true,  true]),
        ];
        for (rights, permitted) in rows {
            let accesses = [Access::READ, Access::WRITE, Access::FETCH];
            let found = accesses.map(|access| access.allowed_by(rights));
            assert_eq!(found, permitted, "{rights:?}");
        }
    }
}
