//! The statistics of measured values.

/// The statistic that a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// The only value.
    Value,
    /// The minimum.
    Minimum,
    /// The median.
    Median,
    /// The arithmetic mean.
    Mean,
    /// A statistic of a region's passes. The sum of the passes is a row without a statistic, of the same group and
    /// title.
    Pass(Pass),
}

/// The statistic of a region's passes that a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// The first pass.
    First,
    /// The minimum of all passes.
    Least,
    /// The median; for an even number of passes the lower of the two in the middle.
    Median,
    /// The maximum of all passes.
    Most,
}

impl Pass {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 4] = [Self::First, Self::Least, Self::Median, Self::Most];

    /// Returns its name in JSON, in the names of rows and in the headings of tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Least => "min",
            Self::Median => "median",
            Self::Most => "max",
        }
    }

    /// Returns what it adds to the title of a row that stands alone.
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
    /// Returns its name in tables and exports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Minimum => "minimum",
            Self::Median => "median",
            Self::Mean => "mean",
            Self::Pass(pass) => pass.name(),
        }
    }

    /// Returns whether a chart draws it: a series has one bar.
    pub fn is_drawn(self) -> bool {
        match self {
            Self::Value | Self::Median => true,
            Self::Minimum | Self::Mean | Self::Pass(_) => false,
        }
    }

    /// Returns whether tables have a separate column for it.
    pub fn has_column(self) -> bool {
        match self {
            Self::Value | Self::Minimum | Self::Median | Self::Mean => true,
            Self::Pass(_) => false,
        }
    }
}
