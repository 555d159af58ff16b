//! The statistics of measured values.

/// The statistic of measured values that a number in a report represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// The only value of a measure.
    Value,
    /// The minimum.
    Minimum,
    /// The median.
    Median,
    /// The arithmetic mean.
    Mean,
    /// A statistic over the passes of a region. The row with the sum over all passes has the group and title of this
    /// row, but no statistic.
    Pass(Pass),
}

/// A statistic over the passes of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// The first pass.
    First,
    /// The minimum of all passes.
    Least,
    /// The median; for an even number of passes, the lower of the two middle values.
    Median,
    /// The maximum of all passes.
    Most,
}

impl Pass {
    /// All statistics over passes, in the order of reports.
    pub const ALL: [Self; 4] = [Self::First, Self::Least, Self::Median, Self::Most];

    /// Returns the name of the statistic in JSON, in the names of rows and in the headings of tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Least => "min",
            Self::Median => "median",
            Self::Most => "max",
        }
    }

    /// Returns the text that is added to a row's title if the row contains this statistic and is printed without its
    /// group.
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
    /// Returns the name of the statistic in tables and exports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Minimum => "minimum",
            Self::Median => "median",
            Self::Mean => "mean",
            Self::Pass(pass) => pass.name(),
        }
    }

    /// Returns which statistic over a region's passes this value is, or `None` if it is a statistic of another kind.
    pub fn pass(self) -> Option<Pass> {
        match self {
            Self::Pass(pass) => Some(pass),
            Self::Value | Self::Minimum | Self::Median | Self::Mean => None,
        }
    }

    /// Returns whether charts draw this statistic. A series has one bar, for its median.
    pub fn is_drawn(self) -> bool {
        match self {
            Self::Value | Self::Median => true,
            Self::Minimum | Self::Mean | Self::Pass(_) => false,
        }
    }

    /// Returns whether tables have a separate column for this statistic.
    pub fn has_column(self) -> bool {
        match self {
            Self::Value | Self::Minimum | Self::Median | Self::Mean => true,
            Self::Pass(_) => false,
        }
    }
}
