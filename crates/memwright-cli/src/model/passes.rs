//! Statistics over the passes of a region: the counts of the first pass, and the minimum, the median and the maximum of
//! each row.

use std::array;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::counts::{Counts, ROWS};
use crate::model::statistic::Pass;

/// Statistics of the passes of a region. Each row has its own statistics: the minima of two rows need not be from the
/// same pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Each {
    /// The counts of the first pass.
    pub first: Counts,
    /// The minimum of each row.
    #[serde(rename = "min")]
    pub least: Counts,
    /// The median of each row. For an even number of passes, this is the lower of the two middle values, so that it is
    /// the count of an actual pass.
    pub median: Counts,
    /// The maximum of each row.
    #[serde(rename = "max")]
    pub most: Counts,
}

impl Each {
    /// Returns the counts of a statistic.
    pub fn of(&self, pass: Pass) -> Counts {
        match pass {
            Pass::First => self.first,
            Pass::Least => self.least,
            Pass::Median => self.median,
            Pass::Most => self.most,
        }
    }
}

/// Collects the passes of a region.
///
/// For each row, `Passes` counts how often each value occurs. It stores an entry only for values that differ from the
/// value in the first pass, so a row with the same value in every pass takes no memory. The memory for other values is
/// bounded: n distinct values add up to at least (n² - n) / 2, so a row of a guest that executes 10^12 instructions has
/// fewer than 1.5 million distinct values.
#[derive(Debug, Default)]
pub struct Passes {
    first: Option<Counts>,
    rows: [Row; ROWS],
}

/// How often each value of a row occurs: in `same` the value of the first pass, in `others` all other values.
#[derive(Debug, Default)]
struct Row {
    // The number of passes that have the value of the first pass.
    same: u64,
    others: BTreeMap<u64, u64>,
    // Whether at least one pass did not measure the row.
    is_unmeasured: bool,
}

impl Passes {
    /// Adds a pass.
    pub fn add(&mut self, counted: Counts) {
        let first = *self.first.get_or_insert(counted);
        let values = first.values().into_iter().zip(counted.values());
        for (row, (first, value)) in self.rows.iter_mut().zip(values) {
            match value {
                None => row.is_unmeasured = true,
                Some(_) if value == first => row.same += 1,
                Some(value) => *row.others.entry(value).or_default() += 1,
            }
        }
    }

    /// Returns the statistics; `None` for fewer than two passes.
    pub fn each(&self) -> Option<Each> {
        let first = self.first?;
        let passes = self.rows.iter().map(Row::passes).max()?;
        if passes < 2 {
            return None;
        }
        let firsts = first.values();
        let by_row = |choose: fn(&BTreeMap<u64, u64>) -> Option<u64>| {
            let value = |row: usize| choose(&self.rows[row].values(firsts[row]?)?);
            Counts::of_values(array::from_fn(value))
        };
        Some(Each {
            first,
            least: by_row(|values| values.keys().next().copied()),
            median: by_row(lower_median),
            most: by_row(|values| values.keys().next_back().copied()),
        })
    }
}

impl Row {
    fn passes(&self) -> u64 {
        self.same + self.others.values().sum::<u64>()
    }

    /// Returns how often each value occurred; `None` if a pass did not measure the row.
    fn values(&self, first: u64) -> Option<BTreeMap<u64, u64>> {
        let mut values = self.others.clone();
        values.insert(first, self.same);
        (!self.is_unmeasured).then_some(values)
    }
}

/// Returns the median. For an even number of values, returns the lower of the two middle values.
fn lower_median(values: &BTreeMap<u64, u64>) -> Option<u64> {
    let half = values.values().sum::<u64>().div_ceil(2);
    let mut seen = 0;
    let mut values = values.iter();
    let middle = values.find(|(_, times)| {
        seen += **times;
        seen >= half
    });
    middle.map(|(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::counts::Instructions;

    fn passes(counted: impl IntoIterator<Item = Counts>) -> Passes {
        let mut passes = Passes::default();
        for one in counted {
            passes.add(one);
        }
        passes
    }

    #[test]
    fn each_row_has_its_own_statistics() {
        for (counted, expected) in [
            (&[][..], None),
            (&[7], None),
            (&[7, 7], Some([7, 7, 7, 7])),
            // The median of an even number of values is the lower of the middle two.
            (&[1, 2], Some([1, 1, 1, 2])),
            (&[2, 1], Some([2, 1, 1, 2])),
            (&[9, 1, 4], Some([9, 1, 4, 9])),
            (&[4, 3, 2, 1], Some([4, 1, 2, 4])),
            (&[0, 0, 0, 5], Some([0, 0, 0, 5])),
            (&[0, 5, 5, 5], Some([0, 0, 5, 5])),
            (&[u64::MAX, 0, 3, 3, 8], Some([u64::MAX, 0, 3, u64::MAX])),
        ] {
            let counts = counted.iter().map(|count| Counts {
                // From pass to pass, one row increases while the other decreases.
                invlpg: Some(*count),
                invpcid: Some(u64::MAX - *count),
                ..Counts::default()
            });
            let each = passes(counts).each();
            let of = |pick: fn(Counts) -> Option<u64>| {
                each.map(|each| Pass::ALL.map(|pass| pick(each.of(pass)).unwrap()))
            };
            assert_eq!(of(|counts| counts.invlpg), expected, "{counted:?}");
            let others = of(|counts| counts.invpcid);
            let ends = |[first, least, _, most]: [u64; 4]| (first, least, most);
            let turned = expected.map(|[first, least, _, most]| {
                (u64::MAX - first, u64::MAX - most, u64::MAX - least)
            });
            assert_eq!(others.map(ends), turned, "{counted:?}");
        }
    }

    #[test]
    fn what_a_pass_did_not_measure_has_no_statistics() {
        let instructions = |interrupts| Counts {
            instructions: Some(Instructions {
                user: 1,
                kernel: 2,
                interrupts,
            }),
            ..Counts::default()
        };
        for (first, second, expected) in [
            (Some(3), Some(4), Some(4)),
            (Some(3), None, None),
            (None, Some(3), None),
            (None, None, None),
        ] {
            let each = passes([instructions(first), instructions(second)]).each();
            let most = each.unwrap().most;
            let interrupts = most.instructions.unwrap().interrupts;
            assert_eq!((interrupts, most.invlpg), (expected, None));
        }
    }

    /// Checks that the memory for passes depends on the number of distinct values and not on the number of passes.
    #[test]
    fn passes_take_memory_by_their_values() {
        let counts = |value: u64| Counts {
            call_interrupts: Some(value),
            ..Counts::default()
        };
        let kept =
            |passes: &Passes| -> usize { passes.rows.iter().map(|row| row.others.len()).sum() };
        let equal = passes((0..100_000).map(|_| counts(8)));
        assert_eq!((kept(&equal), equal.each().unwrap().median), (0, counts(8)));
        let two = passes((0..100_000).map(|pass| counts(pass % 2)));
        assert_eq!((kept(&two), two.each().unwrap().most), (1, counts(1)));
        let all = passes((0..100_000).map(counts));
        assert_eq!(
            (kept(&all), all.each().unwrap().median),
            (99_999, counts(49_999))
        );
    }
}
