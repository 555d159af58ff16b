//! Supplementary groups.

use alloc::sync::Arc;
use core::cmp::Ordering;
use memwright_linux_base::paged::Paged;
use memwright_table::OutOfMemory;

/// A list of supplementary groups. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Groups(Option<Arc<Paged<u32>>>);

impl Groups {
    /// The empty list.
    pub const NONE: Self = Self(None);

    /// Creates a sorted list of `groups`. A group that occurs twice in `groups` occurs twice in the list (`groups_sort`
    /// in `kernel/groups.c` of Linux 7.3).
    ///
    /// # Errors
    /// [`OutOfMemory`].
    ///
    /// # Locks
    /// The caller holds no lock except those that [sleep](memwright_linux_base::sync::Rank::sleeps).
    pub fn sorted(mut groups: Paged<u32>) -> Result<Self, OutOfMemory> {
        if groups.is_empty() {
            return Ok(Self::NONE);
        }
        groups.sort();
        Ok(Self(Some(Arc::new(groups))))
    }

    /// Returns the number of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |groups| groups.len())
    }

    /// Returns whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the groups in ascending order, in slices.
    pub fn blocks(&self) -> impl Iterator<Item = &[u32]> {
        self.0.iter().flat_map(|groups| groups.blocks())
    }

    /// Returns whether `group` is in the list.
    #[must_use]
    #[inline]
    pub fn contains(&self, group: u32) -> bool {
        self.0.as_ref().is_some_and(|groups| {
            let (mut from, mut to) = (0, groups.len());
            while from < to {
                let middle = from + (to - from) / 2;
                match groups[middle].cmp(&group) {
                    Ordering::Less => from = middle + 1,
                    Ordering::Equal => return true,
                    Ordering::Greater => to = middle,
                }
            }
            false
        })
    }
}

impl PartialEq for Groups {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.blocks().flatten().eq(other.blocks().flatten())
    }
}

impl Eq for Groups {}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[u32]) -> Groups {
        let mut groups = Paged::new();
        groups.try_push_all(list).unwrap();
        Groups::sorted(groups).unwrap()
    }

    #[test]
    fn each_group_of_the_list_is_found_and_no_other() {
        for list in [&[][..], &[7], &[9, 3], &[9, 0, 9, 5, u32::MAX]] {
            let groups = of(list);
            assert_eq!(groups.len(), list.len());
            for group in (0..12).chain([u32::MAX - 1, u32::MAX]) {
                assert_eq!(
                    groups.contains(group),
                    list.contains(&group),
                    "{list:?} {group}"
                );
            }
        }
    }

    #[test]
    fn the_order_given_is_of_no_effect() {
        assert_eq!(of(&[3, 1, 2, 1]), of(&[1, 1, 2, 3]));
        assert_ne!(of(&[3, 1, 2]), of(&[1, 1, 2, 3]));
    }
}
