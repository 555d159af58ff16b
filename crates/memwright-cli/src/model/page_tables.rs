//! A summary of a program's page tables: the number of entries of each kind.

use serde::{Deserialize, Serialize};

/// The number of page-table entries of each kind in the lower half of an address space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageTables {
    /// Page-table frames, including the root.
    pub tables: u64,
    /// Writable 4 KiB pages.
    pub small_writable: u64,
    /// Read-only 4 KiB pages.
    pub small_read_only: u64,
    /// 4 KiB pages, writable or read-only, whose hardware dirty bit or software dirty bit is set.
    pub small_dirty: u64,
    /// Writable 2 MiB pages.
    pub large_writable: u64,
    /// Read-only 2 MiB pages.
    pub large_read_only: u64,
    /// 2 MiB pages, writable or read-only, whose hardware dirty bit or software dirty bit is set.
    pub large_dirty: u64,
    /// 1 GiB pages.
    pub giant: u64,
    /// Entries that are neither empty nor present: swap entries, markers, inaccessible pages.
    pub not_present: u64,
    /// 4 KiB pages of the vDSO and its data, which the kernel maps and which no row above counts.
    #[serde(default)]
    pub vdso: u64,
}

/// A row of reports about page tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRow {
    /// What the row counts.
    pub title: &'static str,
    /// The number of entries, or of page tables, that the row counts.
    pub value: u64,
    /// Whether the row counts mappings of the program. If such a row differs, the kernels did not do the same work. The
    /// values of other rows depend on the kernel.
    pub of_program: bool,
}

/// The title of the row of read-only pages. Each kernel chooses how many pages of a file it maps around a fault, so
/// this row can differ between kernels even at the begin mark of a region. Comparisons therefore use how much the row
/// changes from the begin mark to the end mark.
pub const SMALL_READ_ONLY: &str = "4 KiB, read-only";

impl PageTables {
    /// Returns the rows of reports.
    pub fn rows(&self) -> [TableRow; 10] {
        let row = |of_program| {
            move |title, value| TableRow {
                title,
                value,
                of_program,
            }
        };
        let (kernels, programs) = (row(false), row(true));
        [
            kernels("page tables", self.tables),
            programs("4 KiB, writable", self.small_writable),
            kernels(SMALL_READ_ONLY, self.small_read_only),
            programs("4 KiB, dirty", self.small_dirty),
            programs("2 MiB, writable", self.large_writable),
            programs("2 MiB, read-only", self.large_read_only),
            programs("2 MiB, dirty", self.large_dirty),
            programs("1 GiB", self.giant),
            programs("neither present nor empty", self.not_present),
            kernels("4 KiB, vDSO", self.vdso),
        ]
    }
}
