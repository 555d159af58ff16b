//! Upper limits of rows: `--limit ROW=N` and `--limit ROW=+P%`.

use std::fmt;
use std::str::FromStr;

use crate::compare::names;
use crate::model::words::grouped;
use crate::sheet::{Cell, Limited, Sheet, Value, cell_text};

/// The upper limit of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// The row's name, in which a region is given by its number.
    pub row: String,
    /// The maximum: a count, or a percentage above the baseline.
    pub bound: Bound,
    text: String,
}

/// The bound of a limit: a count, or a percentage above the baseline's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The highest count that passes.
    Count(u64),
    /// A percentage above the baseline.
    Percent(Percent),
}

/// A percentage as a decimal fraction: `digits` divided by 10 to the power of `places`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent {
    digits: u32,
    places: u32,
}

/// The maximum number of digits in a percentage.
const MOST_DIGITS: usize = 9;

/// A limit, and whether the run complies with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The limit that is judged.
    pub limit: Limit,
    /// Whether the run complies with the limit.
    pub result: Judgement,
}

/// Whether a row complies with its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// The row does not exceed the limit.
    Good {
        /// The count of the baseline, if the limit is relative to it.
        baseline: Option<u64>,
        /// The count of this run.
        now: u64,
    },
    /// The row exceeds the limit.
    Bad {
        /// The count of the baseline, if the limit is relative to it.
        baseline: Option<u64>,
        /// The count of this run.
        now: u64,
    },
    /// The row does not exist. Either the program did not mark the region, or the row is a statistic of passes and the
    /// region had only one pass.
    Absent,
    /// The row was not measured, in this run or in the baseline.
    NotMeasured,
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected ROW=N or ROW=+P%, for example region.1.user_faults.write=0 or \
             run.instructions.kernel=+0.5%"
                .to_owned()
        };
        let (row, bound) = text.rsplit_once('=').ok_or_else(wrong)?;
        let bound = match bound.strip_prefix('+') {
            Some(percent) => percent
                .strip_suffix('%')
                .and_then(Percent::parse)
                .map(Bound::Percent),
            None if bound.bytes().all(|byte| byte.is_ascii_digit()) => {
                bound.parse().ok().map(Bound::Count)
            }
            None => None,
        };
        match bound {
            Some(bound) if !row.is_empty() => Ok(Self {
                row: row.to_owned(),
                bound,
                text: text.to_owned(),
            }),
            Some(_) | None => Err(wrong()),
        }
    }
}

impl Percent {
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{whole}{fraction}");
        let is_number = !whole.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || digits.len() > MOST_DIGITS {
            return None;
        }
        Some(Self {
            digits: digits.parse().ok()?,
            places: u32::try_from(fraction.len()).ok()?,
        })
    }

    /// Returns whether `now` exceeds `baseline` by no more than this percentage, in exact arithmetic.
    fn allows(self, baseline: u64, now: u64) -> bool {
        let hundred = 100 * 10_u128.pow(self.places);
        // Each product is at most about 2^64 × 2^37, which is less than 2^128.
        u128::from(now) * hundred <= u128::from(baseline) * (hundred + u128::from(self.digits))
    }
}

impl Limit {
    /// Returns whether the limit needs a baseline.
    pub fn is_relative(&self) -> bool {
        match self.bound {
            Bound::Count(_) => false,
            Bound::Percent(_) => true,
        }
    }

    /// Returns the row as given on the command line.
    pub fn given(&self) -> &str {
        self.text.rsplit_once('=').unwrap_or_default().0
    }

    /// Returns the bound as given on the command line.
    fn given_bound(&self) -> &str {
        self.text.rsplit_once('=').unwrap_or_default().1
    }

    /// Judges a row by its cells: that of the baseline if there is one, and that of this run.
    fn judge(&self, cells: &[Cell]) -> Judgement {
        let count = |cell: Option<&Cell>| match cell {
            Some(Some(Value::Count(count))) => Some(*count),
            Some(Some(Value::Statistic(_)) | None) | None => None,
        };
        let Some(now) = count(cells.last()) else {
            return Judgement::NotMeasured;
        };
        let (baseline, is_good) = match self.bound {
            Bound::Count(most) => (None, now <= most),
            Bound::Percent(percent) => {
                let Some(before) = count(cells.first()).filter(|_| cells.len() > 1) else {
                    return Judgement::NotMeasured;
                };
                (Some(before), percent.allows(before, now))
            }
        };
        if is_good {
            Judgement::Good { baseline, now }
        } else {
            Judgement::Bad { baseline, now }
        }
    }
}

/// Judges a run, which is the last column of the sheet, against each limit.
pub fn judge(limits: &[Limit], sheet: &Sheet) -> Vec<Judged> {
    let rows = || sheet.sections.iter().flat_map(|section| &section.rows);
    let first_cpu = names::cpu(0) + ".";
    let counts_cpus = rows().any(|row| row.name.starts_with(&first_cpu));
    let result = |limit: &Limit| {
        match rows().find(|row| row.name == limit.row) {
            Some(row) => limit.judge(&row.cells),
            // A row of interprocessor interrupts exists only if its count is not 0, so an absent row counts as 0.
            None if names::is_sent(&limit.row) && counts_cpus => {
                limit.judge(&vec![Some(Value::Count(0)); sheet.columns.len()])
            }
            None => Judgement::Absent,
        }
    };
    let judged = limits.iter().map(|limit| Judged {
        limit: limit.clone(),
        result: result(limit),
    });
    judged.collect()
}

impl Judged {
    /// Returns the limit and its result, for the verdict on `sheet`.
    pub fn limited(&self, sheet: &Sheet) -> Limited {
        let mut rows = sheet.sections.iter().flat_map(|section| &section.rows);
        Limited {
            given: self.limit.given().to_owned(),
            limit: self.limit.given_bound().to_owned(),
            word: self.result.word(),
            row: rows.find(|row| row.name == self.limit.row).cloned(),
        }
    }
}

impl Judgement {
    fn word(self) -> &'static str {
        match self {
            Self::Good { .. } => "good",
            Self::Bad { .. } => "BAD",
            Self::Absent | Self::NotMeasured => "none",
        }
    }
}

impl fmt::Display for Judged {
    /// Formats one line with the judgement, the row, its count and the limit.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, row) = (self.result.word(), self.limit.given());
        write!(formatter, "{word}: {row}: ")?;
        let (baseline, now) = match self.result {
            Judgement::Good { baseline, now } | Judgement::Bad { baseline, now } => (baseline, now),
            Judgement::Absent => return formatter.write_str("no such row"),
            Judgement::NotMeasured => return formatter.write_str(&cell_text(None)),
        };
        write!(formatter, "{}, ", grouped(now))?;
        let bound = self.limit.given_bound();
        match (self.limit.bound, baseline) {
            (Bound::Count(most), _) => write!(formatter, "at most {}", grouped(most)),
            (Bound::Percent(_), Some(baseline)) => {
                write!(formatter, "at most {bound} of {}", grouped(baseline))
            }
            (Bound::Percent(_), None) => write!(formatter, "at most {bound}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::{counts, example};

    #[test]
    fn limits_parse() {
        for (text, row, bound) in [
            ("run.invlpg=3", "run.invlpg", Bound::Count(3)),
            (
                "region.1.user_faults.write=18446744073709551615",
                "region.1.user_faults.write",
                Bound::Count(u64::MAX),
            ),
            (
                "run.invlpg=+12.50%",
                "run.invlpg",
                Bound::Percent(Percent {
                    digits: 1250,
                    places: 2,
                }),
            ),
            (
                "x=+0%",
                "x",
                Bound::Percent(Percent {
                    digits: 0,
                    places: 0,
                }),
            ),
        ] {
            let limit: Limit = text.parse().unwrap();
            assert_eq!((limit.row.as_str(), limit.bound), (row, bound), "{text}");
        }
        for text in [
            "",
            "x",
            "=3",
            "x=",
            "x=-1",
            "x=+3",
            "x=3%",
            "x=+%",
            "x=+.5%",
            "x=+1.2.3%",
            "x=+-1%",
            "x=1.5",
            "x=18446744073709551616",
            "x=+1234567890%",
        ] {
            assert!(text.parse::<Limit>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn percentages_are_exact() {
        const LARGE: u64 = u64::MAX / 2;
        for (percent, baseline, now, expected) in [
            ("0", 100, 100, true),
            ("0", 100, 101, false),
            ("1", 100, 101, true),
            ("1", 100, 102, false),
            ("0.5", 1000, 1005, true),
            ("0.5", 1000, 1006, false),
            ("50", 0, 1, false),
            ("50", 0, 0, true),
            ("100", LARGE, 2 * LARGE, true),
            ("100", LARGE, 2 * LARGE + 1, false),
            ("0.0000001", 1_000_000_000, 1_000_000_001, true),
            ("0.00000009", 1_000_000_000, 1_000_000_001, false),
            ("999999999", u64::MAX, u64::MAX, true),
        ] {
            let allowed = Percent::parse(percent).unwrap().allows(baseline, now);
            assert_eq!(allowed, expected, "+{percent}% of {baseline}: {now}");
        }
    }

    #[test]
    fn each_limit_is_a_line() {
        let mut sheet = example();
        sheet.sections[1].rows.push(counts(
            "region.1.kernel",
            "x",
            &[Some(1_000_000), Some(1_000_012)],
        ));
        let limits = [
            "run.write_protect=0",
            "region.1.odd=12344",
            "region.1.kernel=+0.0012%",
            "region.1.kernel=+0.001%",
            "run.refused=5",
            "region.2.odd=5",
        ];
        let limits = limits.map(|text| text.parse().unwrap());
        let judged = judge(&limits, &sheet);
        let lines: Vec<String> = judged.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "good: run.write_protect: 0, at most 0",
                "BAD: region.1.odd: 12,345, at most 12,344",
                "good: region.1.kernel: 1,000,012, at most +0.0012% of 1,000,000",
                "BAD: region.1.kernel: 1,000,012, at most +0.001% of 1,000,000",
                "none: run.refused: not measured",
                "none: region.2.odd: no such row",
            ]
        );
        // Without a baseline, a limit in percent cannot be judged.
        sheet.columns.remove(0);
        for section in &mut sheet.sections {
            for row in &mut section.rows {
                row.cells.remove(0);
            }
        }
        let results: Vec<Judgement> = judge(&limits, &sheet)
            .iter()
            .map(|one| one.result)
            .collect();
        let good = Judgement::Good {
            baseline: None,
            now: 0,
        };
        assert_eq!((results[0], results[2]), (good, Judgement::NotMeasured));
    }

    /// An absent row of interprocessor interrupts counts as 0 if the counts by CPU are known.
    #[test]
    fn interrupts_that_were_not_sent_are_none() {
        let mut sheet = example();
        let limits = ["sent.0.1.0xfb=0", "sent.0.1=0"].map(|text| text.parse().unwrap());
        let results = |sheet: &Sheet| {
            let judged = judge(&limits, sheet);
            judged.iter().map(|one| one.result).collect::<Vec<_>>()
        };
        assert_eq!(results(&sheet), [Judgement::Absent; 2]);
        let cpu = counts("cpu.0.invlpg", "INVLPG", &[Some(1), Some(1)]);
        sheet.sections[0].rows.push(cpu);
        let good = Judgement::Good {
            baseline: None,
            now: 0,
        };
        assert_eq!(results(&sheet), [good, Judgement::Absent]);
    }
}
