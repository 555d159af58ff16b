//! The values of a sheet, and exact arithmetic on them.

use std::cmp::Ordering;

use crate::model::words::grouped;

/// A measured value. Counts are compared and subtracted as integers, so that counts above 2^53 stay exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A count.
    Count(u64),
    /// A statistic of several counts, or a ratio.
    Statistic(f64),
}

impl Value {
    /// Returns the value as a floating-point number, for charts and percentages. A count above 2^53 is rounded.
    pub fn approximate(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Statistic(value) => value,
        }
    }

    /// Compares two values; counts are compared as integers.
    pub fn order(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Count(one), Self::Count(other)) => one.cmp(&other),
            (Self::Count(_) | Self::Statistic(_), _) => {
                let (one, other) = (self.approximate(), other.approximate());
                one.partial_cmp(&other)
                    .unwrap_or_else(|| one.total_cmp(&other))
            }
        }
    }

    /// Formats the value for people: with thousands separators, and with two decimals if it is not a whole number.
    pub fn text(self) -> String {
        match self {
            Self::Count(count) => grouped(count),
            Self::Statistic(value) => number(value),
        }
    }

    /// Formats the value for other programs: not rounded, and without separators of thousands.
    pub fn plain(self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Statistic(value) => value.to_string(),
        }
    }
}

/// Formats a statistic with thousands separators and up to two decimals. The programs print their figures with the same
/// precision, so published figures can be compared with measured ones.
fn number(value: f64) -> String {
    let hundredths = (value.abs() * 100.0).round() as u64;
    let mut text = if value < 0.0 { "-" } else { "" }.to_owned();
    text.push_str(&grouped(hundredths / 100));
    match hundredths % 100 {
        0 => {}
        part if part % 10 == 0 => text.push_str(&format!(".{}", part / 10)),
        part => text.push_str(&format!(".{part:02}")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.5, "1.5"),
            (4.02, "4.02"),
            (10.4, "10.4"),
            (999.61, "999.61"),
            (0.999, "1"),
            (-12.25, "-12.25"),
            (3_644_799.0, "3,644,799"),
            (3_644_799.05, "3,644,799.05"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
