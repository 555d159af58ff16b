//! The operations that `cargo xtask walk` traces, and the ceilings of their figures.

use super::stays::Counts;

/// An operation and its ceilings.
pub struct Ceiling {
    pub name: &'static str,
    /// The name of its generated block in the page.
    pub block: &'static str,
    /// The description of the operation in the page.
    pub title: &'static str,
    /// The maximum of each figure. It may only be lowered.
    pub most: Counts,
    /// The figures before the modules were put into layers, at commit 3b42efaf. The figures of the operation `compare`
    /// are of commit 48f2db66, because that command does not exist at 3b42efaf. The goal is half of the returns.
    pub before: Counts,
}

const fn counts(stays: usize, files: usize, crossings: usize, returns: usize) -> Counts {
    Counts {
        stays,
        files,
        crossings,
        returns,
    }
}

/// The operations, in the order in which `ARCHITECTURE.md` describes them.
pub const CEILINGS: &[Ceiling] = &[
    Ceiling {
        name: "fault",
        block: "walk fault",
        title: "the first store to an anonymous page",
        most: counts(33, 16, 10, 17),
        before: counts(59, 16, 16, 43),
    },
    Ceiling {
        name: "mprotect",
        block: "walk mprotect",
        title: "`mprotect` of a part of an area",
        most: counts(61, 23, 12, 38),
        before: counts(101, 24, 20, 77),
    },
    Ceiling {
        name: "fork",
        block: "walk fork",
        title: "`fork` of three areas",
        most: counts(89, 32, 22, 57),
        before: counts(149, 32, 30, 117),
    },
    Ceiling {
        name: "swap-in",
        block: "walk swap-in",
        title: "a load of a page in swap",
        most: counts(61, 26, 14, 35),
        before: counts(105, 28, 22, 77),
    },
    Ceiling {
        name: "compare",
        block: "walk compare",
        title: "a comparison of two accounts",
        most: counts(61, 26, 0, 35),
        before: counts(99, 26, 0, 73),
    },
];

impl Ceiling {
    /// Returns the goal for the number of returns to files: half of the returns in `before`.
    pub fn goal(&self) -> usize {
        self.before.returns / 2
    }

    /// Returns an error message if the figures are not exactly at their ceilings.
    pub fn complaint(&self, now: &Counts) -> Option<String> {
        if *now == self.most {
            return None;
        }
        let name = self.name;
        let figures = [
            ("stays", now.stays, self.most.stays),
            ("files", now.files, self.most.files),
            ("crossings", now.crossings, self.most.crossings),
            ("returns", now.returns, self.most.returns),
        ];
        let rose = figures.iter().find(|(_, now, most)| now > most);
        Some(match rose {
            Some((figure, now, most)) => format!(
                "{name}: {figure} rose from {most} to {now}: cargo xtask walk {name} prints the stays"
            ),
            None => format!(
                "{name}: fewer than its ceilings: lower them to ({}, {}, {}, {}) in xtask/src/walk/ceilings.rs",
                now.stays, now.files, now.crossings, now.returns
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_may_only_fall() {
        let ceiling = Ceiling {
            name: "fault",
            block: "walk fault",
            title: "a fault",
            most: counts(9, 4, 2, 5),
            before: counts(20, 9, 4, 11),
        };
        assert_eq!(ceiling.goal(), 5);
        for (now, expected) in [
            (counts(9, 4, 2, 5), None),
            (
                counts(9, 3, 2, 6),
                Some("fault: returns rose from 5 to 6: cargo xtask walk fault prints the stays"),
            ),
            (
                counts(8, 4, 2, 4),
                Some(
                    "fault: fewer than its ceilings: lower them to (8, 4, 2, 4) in xtask/src/walk/ceilings.rs",
                ),
            ),
        ] {
            assert_eq!(ceiling.complaint(&now).as_deref(), expected, "{now:?}");
        }
    }
}
