//! A region that a program marks, and its counts.

use serde::{Deserialize, Serialize};

use crate::model::counts::Counts;
use crate::model::page_tables::PageTables;
use crate::model::passes::Each;
use crate::model::region_names;

/// The counts between the marks of a region.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// The region's number.
    pub region: u16,
    /// The name that the program gives the region; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of passes, and of marks without a counterpart.
    #[serde(flatten)]
    pub marks: Marks,
    /// The sum of the counts of all passes.
    pub counts: Counts,
    /// The statistics of the passes; absent if there were fewer than two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<Each>,
    /// The page tables at the first begin mark; absent if they were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_beginning: Option<PageTables>,
    /// The page tables at the first end mark; absent if they were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_end: Option<PageTables>,
}

impl Region {
    /// Returns the region's title in reports.
    pub fn title(&self) -> String {
        region_names::title(self.region, self.name.as_deref())
    }
}

/// The number of passes of a region, and of marks without a counterpart. A pass is a begin mark and the next end mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// The number of passes.
    pub passes: u64,
    /// Begin marks while the region was already open. The counts of the pass then start at the last begin mark.
    #[serde(default)]
    pub begun_again: u64,
    /// End marks while the region was not open, which end no pass.
    #[serde(default)]
    pub not_begun: u64,
    /// Begin marks without an end mark before the end of the run, which begin no pass.
    #[serde(default)]
    pub not_ended: u64,
}

impl Marks {
    /// Returns the rows of reports.
    pub fn rows(&self) -> [(&'static str, u64); 4] {
        [
            ("passes", self.passes),
            ("beginnings while it was open", self.begun_again),
            ("ends while it was not open", self.not_begun),
            ("beginnings without an end", self.not_ended),
        ]
    }
}
