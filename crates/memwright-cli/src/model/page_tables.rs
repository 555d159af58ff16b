//! What a program's page tables hold, by kind of entry.

use serde::{Deserialize, Serialize};

/// What the lower half of an address space maps, by kind of entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageTables {
    /// Frames of tables, the root included.
    pub tables: u64,
    /// 4 KiB pages that may be written.
    pub small_writable: u64,
    /// 4 KiB pages that may not.
    pub small_read_only: u64,
    /// Those of both that are dirty, by the bit of hardware or by the one in which Linux keeps it.
    pub small_dirty: u64,
    /// 2 MiB pages that may be written.
    pub large_writable: u64,
    /// 2 MiB pages that may not.
    pub large_read_only: u64,
    /// Those of both that are dirty.
    pub large_dirty: u64,
    /// 1 GiB pages.
    pub giant: u64,
    /// Entries that are neither empty nor present: swapped pages, markers, pages that may not be accessed.
    pub not_present: u64,
    /// 4 KiB pages of the vDSO and of its data, which the kernel maps and none of the rows above counts.
    #[serde(default)]
    pub vdso: u64,
}

/// A row of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRow {
    /// What it counts.
    pub title: &'static str,
    /// The count.
    pub value: u64,
    /// Whether it counts what the program has mapped: if it differs, the kernels did not do the same work. The others are
    /// the kernel's choice.
    pub of_program: bool,
}

/// The row of pages that may not be written. A kernel chooses how many pages of a file it maps around a fault, so what was
/// there before a region differs between kernels: of this row the change between a region's marks is compared.
pub const SMALL_READ_ONLY: &str = "4 KiB, read-only";

impl PageTables {
    /// The rows of reports.
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
