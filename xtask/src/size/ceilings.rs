//! The features of the memory manager, and the ceilings of its size.

/// A feature of `memwright`.
pub struct Feature {
    pub name: &'static str,
    /// The modules whose functions are in the program only with the feature. The compiler may inline all functions of
    /// some of these modules, but not of all of them.
    pub modules: &'static [&'static str],
    /// The features that enable this one.
    pub enabled_by: &'static [&'static str],
}

impl Feature {
    /// Returns the names of all features that can be on while this one is off.
    pub fn without(&self, all: &[Self]) -> Vec<&'static str> {
        all.iter()
            .map(|feature| feature.name)
            .filter(|name| *name != self.name && !self.enabled_by.contains(name))
            .collect()
    }
}

/// The features, as in `crates/memwright/Cargo.toml`.
pub const FEATURES: &[Feature] = &[
    Feature {
        name: "huge",
        modules: &[
            "memwright::huge",
            "memwright::fault::huge",
            "memwright::fault::folio",
            "memwright::fault::shared_folio",
            "memwright::fault::whole_folio",
            "memwright::mm::cut",
        ],
        enabled_by: &[],
    },
    Feature {
        name: "hugetlb",
        modules: &["memwright::hugetlb", "memwright::fault::hugetlb"],
        enabled_by: &[],
    },
    Feature {
        name: "inline",
        modules: &[],
        enabled_by: &[],
    },
    Feature {
        name: "merge",
        modules: &["memwright::ksm"],
        enabled_by: &[],
    },
    Feature {
        name: "numa",
        modules: &["memwright::numa", "memwright::fault::hint"],
        enabled_by: &[],
    },
    Feature {
        name: "objects",
        modules: &[
            "memwright::fault::file",
            "memwright::fault::object_entry",
            "memwright::mm::attachment",
            "memwright::mm::mappings",
            "memwright::ops::physical",
        ],
        enabled_by: &["hugetlb"],
    },
    Feature {
        name: "reclaim",
        // The program does not call the operations of this feature.
        modules: &[],
        enabled_by: &["swap"],
    },
    Feature {
        name: "share",
        modules: &[
            "memwright::ops::share_tables",
            "memwright::mm::shared_tables",
            "memwright_table::table::share_tables",
            "memwright_table::table::leave_tables",
        ],
        enabled_by: &[],
    },
    Feature {
        name: "swap",
        modules: &[
            "memwright::swap::cache",
            "memwright::swap::reads",
            "memwright::swap::slot",
            "memwright::swap::transfers",
            "memwright::fault::swap",
            "memwright::fault::swap_around",
            "memwright::fault::swapped_page",
        ],
        enabled_by: &[],
    },
    Feature {
        name: "trace",
        modules: &["memwright::mm::tracing"],
        enabled_by: &[],
    },
    Feature {
        name: "tracking",
        // The program does not call the operations of this feature.
        modules: &[],
        enabled_by: &[],
    },
    Feature {
        name: "uffd",
        modules: &["memwright::uffd", "memwright::fault::armed"],
        enabled_by: &[],
    },
];

/// A figure and its ceiling.
pub struct Ceiling {
    pub title: &'static str,
    /// The maximum, in kilobytes of 1000 bytes. It may only be lowered.
    pub most: u64,
}

/// The ceilings: with all features, and with none. The goal for the program without features is 60.
pub const CEILINGS: [Ceiling; 2] = [
    Ceiling {
        title: "with all features",
        most: 208,
    },
    Ceiling {
        title: "without features",
        most: 77,
    },
];

/// The number of kilobytes by which a figure may be below its ceiling, because the size differs a little from compiler
/// to compiler.
const SLACK: u64 = 1;

impl Ceiling {
    /// Returns the size in kilobytes, rounded up.
    pub fn kilobytes(bytes: u64) -> u64 {
        bytes.div_ceil(1000)
    }

    /// Returns an error message if the figure is above its ceiling, or below it by more than the slack.
    pub fn complaint(&self, bytes: u64) -> Option<String> {
        let (title, most, now) = (self.title, self.most, Self::kilobytes(bytes));
        if now > most {
            Some(format!(
                "{title}: rose from {most} to {now} KB: cargo xtask size --functions prints the largest functions"
            ))
        } else if now + SLACK < most {
            Some(format!(
                "{title}: fell from {most} to {now} KB: lower its ceiling in xtask/src/size/ceilings.rs"
            ))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_may_only_fall() {
        let ceiling = Ceiling {
            title: "all",
            most: 100,
        };
        assert_eq!(ceiling.complaint(100_000), None);
        assert_eq!(ceiling.complaint(98_001), None);
        assert!(
            ceiling
                .complaint(98_000)
                .is_some_and(|why| why.contains("fell"))
        );
        assert!(
            ceiling
                .complaint(100_001)
                .is_some_and(|why| why.contains("rose"))
        );
    }

    #[test]
    fn a_feature_goes_with_those_that_need_it() {
        let all = [
            Feature {
                name: "huge",
                modules: &["memwright::huge"],
                enabled_by: &["hugetlb"],
            },
            Feature {
                name: "hugetlb",
                modules: &["memwright::hugetlb"],
                enabled_by: &[],
            },
            Feature {
                name: "merge",
                modules: &["memwright::ksm"],
                enabled_by: &[],
            },
        ];
        assert_eq!(all[0].without(&all), ["merge"]);
        assert_eq!(all[1].without(&all), ["huge", "merge"]);
    }
}
