//! A region that a program marks, and what was counted in it.

use serde::{Deserialize, Serialize};

use crate::model::counts::Counts;
use crate::model::page_tables::PageTables;
use crate::model::passes::Each;
use crate::model::region_names;

/// Everything counted between the marks of a region.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// The region's number.
    pub region: u16,
    /// What the program calls it; absent where it gives no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How its marks came.
    #[serde(flatten)]
    pub marks: Marks,
    /// The sum of what was counted in all passes.
    pub counts: Counts,
    /// What was counted in single passes; absent where there was at most one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<Each>,
    /// What the page tables held where it first began; absent where they were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_beginning: Option<PageTables>,
    /// What they held where it first ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_end: Option<PageTables>,
}

impl Region {
    /// What reports call it.
    pub fn title(&self) -> String {
        region_names::title(self.region, self.name.as_deref())
    }
}

/// How the marks of a region came: a pass is a beginning and the next end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Passes.
    pub passes: u64,
    /// Beginnings while the region was open: it is counted from the last of them.
    #[serde(default)]
    pub begun_again: u64,
    /// Ends while the region was not open: nothing is counted.
    #[serde(default)]
    pub not_begun: u64,
    /// Beginnings without an end before the run's: nothing is counted.
    #[serde(default)]
    pub not_ended: u64,
}

impl Marks {
    /// The rows of reports.
    pub fn rows(&self) -> [(&'static str, u64); 4] {
        [
            ("passes", self.passes),
            ("beginnings while it was open", self.begun_again),
            ("ends while it was not open", self.not_begun),
            ("beginnings without an end", self.not_ended),
        ]
    }
}
