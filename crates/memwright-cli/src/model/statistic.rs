//! What a figure says of several values.

/// What a figure says of the values that were measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// The only value.
    Value,
    /// The least of several.
    Minimum,
    /// The middle one.
    Median,
    /// The arithmetic mean.
    Mean,
    /// Of the passes of a region; their sum is a row without a statistic, of the same group and title.
    Pass(Pass),
}

/// What a figure says of the passes of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// The first pass.
    First,
    /// The least of all passes.
    Least,
    /// The median, of an even number of passes the lower one in the middle.
    Median,
    /// The most of all passes.
    Most,
}

impl Pass {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 4] = [Self::First, Self::Least, Self::Median, Self::Most];

    /// Its name in JSON, in the names of rows and in the headings of tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Least => "min",
            Self::Median => "median",
            Self::Most => "max",
        }
    }

    /// What it adds to the title of a row that stands alone.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::First => "first pass",
            Self::Least => "min of a pass",
            Self::Median => "median of a pass",
            Self::Most => "max of a pass",
        }
    }
}

impl Statistic {
    /// Its name in tables and exports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Minimum => "minimum",
            Self::Median => "median",
            Self::Mean => "mean",
            Self::Pass(pass) => pass.name(),
        }
    }

    /// Whether a chart draws it: one bar stands for a series.
    pub fn is_drawn(self) -> bool {
        match self {
            Self::Value | Self::Median => true,
            Self::Minimum | Self::Mean | Self::Pass(_) => false,
        }
    }

    /// Whether tables have it in a column of its own.
    pub fn has_column(self) -> bool {
        match self {
            Self::Value | Self::Minimum | Self::Median | Self::Mean => true,
            Self::Pass(_) => false,
        }
    }
}
