//! Clusters of nearby pages of an object.

use core::ops::Range;

/// The number of pages that a cluster spans. It is half of Linux's `SWAP_CLUSTER_MAX`, because the other threads of the
/// CPU wait while the pages are written to a device.
pub(crate) const CLUSTER: usize = u16::BITS as usize;

/// A set of page indices, all within 16 consecutive indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    first: u64,
    /// A bit for each of the 16 pages from `first` on. The bit is set if the page is in the cluster.
    members: u16,
}

impl Cluster {
    /// Returns whether the cluster has no pages.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.members == 0
    }

    /// Adds page `index`. Returns false if the page is before the first page that was added, or 16 or more pages after
    /// it.
    pub fn insert(&mut self, index: u64) -> bool {
        if self.is_empty() {
            self.first = index;
        }
        let Some(distance) = index.checked_sub(self.first) else {
            return false;
        };
        let fits = distance < CLUSTER as u64;
        if fits {
            self.members |= 1 << distance;
        }
        fits
    }

    /// Removes page `index`.
    pub fn remove(&mut self, index: u64) {
        if let Some(distance) = index.checked_sub(self.first) {
            if distance < CLUSTER as u64 {
                self.members &= !(1 << distance);
            }
        }
    }

    /// Returns whether page `index` is in the cluster.
    #[must_use]
    pub fn contains(&self, index: u64) -> bool {
        let distance = index.wrapping_sub(self.first);
        distance < CLUSTER as u64 && self.members & 1 << distance != 0
    }

    /// Returns the pages in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        let Self { first, members } = *self;
        (0..u16::BITS)
            .filter(move |bit| members & 1 << bit != 0)
            .map(move |bit| first + u64::from(bit))
    }

    /// Returns the runs of consecutive pages in ascending order.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let Self { first, members } = *self;
        let mut left = members;
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let start = left.trailing_zeros();
            let length = (left >> start).trailing_ones();
            left &= !((u16::MAX >> (u16::BITS - length)) << start);
            let start = first + u64::from(start);
            Some(start..start + u64::from(length))
        })
    }

    /// Returns the range from the first to the last page of the cluster, or an empty range if the cluster is empty.
    #[must_use]
    pub fn span(&self) -> Range<u64> {
        let last = u16::BITS - self.members.leading_zeros();
        let before = self.members.trailing_zeros().min(last);
        self.first + u64::from(before)..self.first + u64::from(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_one_by_one_and_in_runs() {
        let mut cluster = Cluster::default();
        assert!(cluster.is_empty() && cluster.span().is_empty());
        for (index, fits) in [
            (70, true),
            (71, true),
            (74, true),
            (69, false),
            (85, true),
            (86, false),
        ] {
            assert_eq!(cluster.insert(index), fits, "{index}");
        }
        assert!(cluster.iter().eq([70, 71, 74, 85]));
        assert!(cluster.runs().eq([70..72, 74..75, 85..86]));
        assert_eq!(cluster.span(), 70..86);
        for index in [69, 70, 73, 85, 86] {
            cluster.remove(index);
        }
        assert!(cluster.runs().eq([71..72, 74..75]));
        assert_eq!(cluster.span(), 71..75);
    }

    #[test]
    fn a_full_cluster_is_one_run() {
        let mut cluster = Cluster::default();
        let all = 5..5 + CLUSTER as u64;
        assert!(all.clone().all(|index| cluster.insert(index)));
        assert!(cluster.runs().eq([all.clone()]));
        assert_eq!(cluster.span(), all);
    }
}
