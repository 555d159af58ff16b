//! Page faults, grouped by the code that caused them and by the memory that it accessed.

use std::collections::{BTreeMap, HashMap};

use crate::model::faults::Tally;

/// A place in a mapped file, or in memory without a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The name of the area in `/proc/PID/maps`; empty if it has none.
    pub name: String,
    /// The offset in the file.
    pub offset: u64,
}

/// The origin of page faults, as the kernel or QEMU reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The process; `None` if it is not known.
    pub process: Option<u64>,
    /// The name of the thread.
    pub name: String,
    /// The address of the instruction; `None` if the fault has none, or if it is not known.
    pub instruction: Option<u64>,
    /// Where the instruction is: the file, and the instruction's offset in it.
    pub code: Option<Place>,
    /// The name of the system call in which the kernel took the fault.
    pub call: Option<String>,
    /// The accessed area: its name, and the offset of its first page in the file.
    pub area: Option<Place>,
}

/// The error if, for a kind of fault, the sites have more faults than the account counts.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMany {
    kind: String,
    found: u64,
    counted: u64,
}

impl std::fmt::Display for TooMany {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{} page faults of the kind {} were reported, but {} were counted",
            self.found, self.kind, self.counted
        )
    }
}

impl std::error::Error for TooMany {}

/// The page faults of a run by site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sites(BTreeMap<Site, Tally>);

impl Sites {
    /// Adds `count` faults of a kind.
    pub fn add(&mut self, site: Site, kind: &str, count: u64, flushes: Option<u64>) {
        if count == 0 && flushes.unwrap_or(0) == 0 {
            return;
        }
        let kinds = BTreeMap::from([(kind.to_owned(), count)]);
        self.0
            .entry(site)
            .or_default()
            .add(&Tally { kinds, flushes });
    }

    /// Sets the name of each site that has none to the name of its process in `names`.
    pub fn name_processes(&mut self, names: &HashMap<u64, String>) {
        for (mut site, tally) in std::mem::take(&mut self.0) {
            if site.name.is_empty()
                && let Some(name) = site.process.and_then(|process| names.get(&process))
            {
                site.name.clone_from(name);
            }
            self.0.entry(site).or_default().add(&tally);
        }
    }

    /// Returns the sites with their faults.
    pub fn iter(&self) -> impl Iterator<Item = (&Site, &Tally)> {
        self.0.iter()
    }

    /// Returns the number of faults.
    pub fn total(&self) -> u64 {
        self.0.values().map(Tally::faults).sum()
    }

    /// Adds the faults that the account counts but that no site contains, as a site with all fields unknown. Afterwards
    /// the numbers of faults at all sites add up to the account, kind by kind.
    ///
    /// # Errors
    /// If the sites have more faults of a kind than the account counts.
    pub fn complete(&mut self, account: &[(String, u64)]) -> Result<(), TooMany> {
        let mut found = Tally::default();
        for tally in self.0.values() {
            found.add(tally);
        }
        for (kind, count) in &found.kinds {
            let counted = account.iter().find(|(name, _)| name == kind);
            let counted = counted.map_or(0, |(_, counted)| *counted);
            if *count > counted {
                return Err(TooMany {
                    kind: kind.clone(),
                    found: *count,
                    counted,
                });
            }
        }
        for (kind, counted) in account {
            let missing = counted - found.kinds.get(kind).copied().unwrap_or(0);
            self.add(Site::default(), kind, missing, None);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_add_up_to_the_account_or_are_refused() {
        let account = |counts: [u64; 2]| {
            let names = ["cow", "file"].map(str::to_owned);
            names.into_iter().zip(counts).collect::<Vec<_>>()
        };
        let site = Site {
            process: Some(2),
            ..Site::default()
        };
        let mut sites = Sites::default();
        sites.add(site.clone(), "cow", 3, Some(1));
        sites.add(site, "cow", 2, Some(0));
        for (counts, unknown) in [([5, 0], None), ([5, 4], Some(4)), ([6, 1], Some(2))] {
            let mut sites = sites.clone();
            sites.complete(&account(counts)).unwrap();
            let found = sites.0.get(&Site::default()).map(Tally::faults);
            assert_eq!(found, unknown);
            assert_eq!(sites.total(), counts.iter().sum::<u64>());
        }
        let refused = sites.complete(&account([4, 9])).unwrap_err().to_string();
        assert_eq!(
            refused,
            "5 page faults of the kind cow were reported, but 4 were counted"
        );
    }
}
