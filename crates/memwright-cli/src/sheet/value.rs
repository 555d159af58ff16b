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

/// The difference of two values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Whether the second value is less than the first.
    pub is_less: bool,
    /// The absolute value of the difference.
    pub size: Value,
}

/// A difference relative to the first value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Share {
    /// The first value is 0.
    FromZero,
    /// Both values are counts.
    OfCount {
        /// The absolute value of the difference.
        difference: u64,
        /// The first value, which is not 0.
        first: u64,
    },
    /// One of the values is a statistic.
    Real(f64),
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

    /// Returns how this value differs from `first`, or `None` if they are equal.
    pub fn difference(self, first: Self) -> Option<Difference> {
        let is_less = match self.order(first) {
            Ordering::Equal => return None,
            Ordering::Less => true,
            Ordering::Greater => false,
        };
        let size = match (self, first) {
            (Self::Count(one), Self::Count(other)) => Self::Count(one.abs_diff(other)),
            (Self::Count(_) | Self::Statistic(_), _) => {
                Self::Statistic((self.approximate() - first.approximate()).abs())
            }
        };
        Some(Difference { is_less, size })
    }

    /// Formats the value for people: with thousands separators, and with two decimals if it is not a whole number.
    pub fn text(self) -> String {
        match self {
            Self::Count(count) => grouped(count),
            Self::Statistic(value) => number(value),
        }
    }

    /// Formats the value for other programs: digits alone.
    pub fn plain(self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Statistic(value) => value.to_string(),
        }
    }
}

impl Difference {
    /// Formats the difference with its sign.
    pub fn text(&self) -> String {
        let sign = if self.is_less { '-' } else { '+' };
        format!("{sign}{}", self.size.text())
    }

    /// Returns the difference relative to `first`.
    pub fn share(&self, first: Value) -> Share {
        match (self.size, first) {
            (_, Value::Count(0)) => Share::FromZero,
            (Value::Count(difference), Value::Count(first)) => Share::OfCount { difference, first },
            (size, first) => match first.approximate().abs() {
                0.0 => Share::FromZero,
                first => Share::Real(size.approximate() / first),
            },
        }
    }
}

impl Share {
    /// Returns the share in percent; infinite if the first value is 0.
    pub fn percent(self) -> f64 {
        match self {
            Self::FromZero => f64::INFINITY,
            Self::OfCount { difference, first } => 100.0 * difference as f64 / first as f64,
            Self::Real(share) => 100.0 * share,
        }
    }

    /// Compares two shares. Shares of counts are compared exactly, and others as floating-point numbers.
    pub fn order(self, other: Self) -> Ordering {
        match (self, other) {
            (
                Self::OfCount { difference, first },
                Self::OfCount {
                    difference: others,
                    first: from,
                },
            ) => {
                // The fractions are compared by cross-multiplication. The product of two `u64` fits in a `u128`.
                let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
                product(difference, from).cmp(&product(others, first))
            }
            (Self::FromZero | Self::OfCount { .. } | Self::Real(_), _) => {
                self.percent().total_cmp(&other.percent())
            }
        }
    }
}

/// Formats a signed percentage with one decimal, or with two significant digits if it is less than 0.1 %. A change from
/// 0 is formatted as "from 0".
pub fn percent_text(difference: &Difference, first: Value) -> String {
    let share = difference.share(first);
    let percent = match share {
        Share::FromZero => return "from 0".to_owned(),
        Share::OfCount { .. } | Share::Real(_) => share.percent(),
    };
    let sign = if difference.is_less { '-' } else { '+' };
    if percent >= 0.1 {
        return format!("{sign}{percent:.1} %");
    }
    // Two significant digits: the first nonzero decimal and one more.
    let digits = (-percent.log10()).ceil().clamp(1.0, 20.0) as usize + 1;
    format!("{sign}{percent:.digits$} %")
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

    const LARGE: u64 = 1 << 60;

    #[test]
    fn differences_are_exact() {
        let count = Value::Count;
        let real = Value::Statistic;
        for (first, other, expected) in [
            (count(1), count(1), "="),
            (count(1), count(2001), "+2,000"),
            (count(LARGE + 1), count(LARGE), "-1"),
            (count(LARGE), count(LARGE + 1), "+1"),
            (count(0), count(u64::MAX), "+18,446,744,073,709,551,615"),
            (count(u64::MAX), count(0), "-18,446,744,073,709,551,615"),
            (real(3.0), real(1.5), "-1.5"),
            (real(3.0), real(3.25), "+0.25"),
            (count(3), real(3.0), "="),
        ] {
            let difference = other.difference(first);
            let text = difference.map_or("=".to_owned(), |difference| difference.text());
            assert_eq!(text, expected, "{first:?} {other:?}");
        }
    }

    #[test]
    fn percentages_keep_their_first_digits() {
        for (first, other, expected) in [
            (256, 0, "-100.0 %"),
            (1000, 1015, "+1.5 %"),
            (8, 256, "+3100.0 %"),
            (1_000_000, 1_000_012, "+0.0012 %"),
            (10_000_000, 10_000_001, "+0.000010 %"),
            (u64::MAX, u64::MAX - 1, "-0.0000000000000000054 %"),
            (0, 3, "from 0"),
        ] {
            let (first, other) = (Value::Count(first), Value::Count(other));
            let text = percent_text(&other.difference(first).unwrap(), first);
            assert_eq!(text, expected, "{first:?} {other:?}");
        }
    }

    #[test]
    fn shares_are_ordered_exactly() {
        let share = |first, other| {
            let (first, other) = (Value::Count(first), Value::Count(other));
            other.difference(first).unwrap().share(first)
        };
        for (one, other, expected) in [
            (share(0, 1), share(1, 100), Ordering::Greater),
            (share(2, 1), share(4, 2), Ordering::Equal),
            // The shares are 1 + 2^-60 and 1. As floating-point numbers, both would be 1.
            (
                share(LARGE, 2 * LARGE + 1),
                share(LARGE, 2 * LARGE),
                Ordering::Greater,
            ),
            (share(10, 9), share(10, 20), Ordering::Less),
        ] {
            assert_eq!(one.order(other), expected, "{one:?} {other:?}");
        }
        assert_eq!(Share::Real(0.5).order(share(2, 1)), Ordering::Equal);
    }

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
