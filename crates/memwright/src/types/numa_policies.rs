//! The list of all NUMA policies.

use alloc::vec::Vec;
use memwright_table::grow::lock_with_room;
use memwright_table::sync::{Lock, Rank, Threads};
use memwright_table::{OutOfMemory, TryPush};

use crate::types::numa_policy::{PlacePolicy, PolicyId};

/// All policies that areas refer to, in the order of their numbers. Policies are never removed, because programs use
/// few. Frame allocation looks up a policy with other locks held, so no other lock is taken while the lock of this list
/// is held.
pub(crate) struct Policies<H>(Lock<Vec<PlacePolicy>, H>);

impl<H: Threads> Policies<H> {
    pub(crate) const fn new() -> Self {
        Self(Lock::new(Rank::Leaf, Vec::new()))
    }

    /// Returns the number of `policy`, and adds it if it is new.
    pub(crate) fn number(&self, policy: PlacePolicy) -> Result<PolicyId, OutOfMemory> {
        let number_in = |known: &[PlacePolicy]| {
            let place = known.iter().position(|one| *one == policy)?;
            Some(PolicyId::from_bits(place as u16 + 1))
        };
        if let Some(id) = number_in(&self.0.lock()) {
            return Ok(id);
        }
        let mut known = lock_with_room(&self.0, |known| known)?;
        // Search again: another thread may have added the policy meanwhile.
        if let Some(id) = number_in(&known) {
            return Ok(id);
        }
        if known.len() == usize::from(u16::MAX) {
            return Err(OutOfMemory);
        }
        known.try_push(policy)?;
        Ok(PolicyId::from_bits(known.len() as u16))
    }

    /// Returns the policy with this number.
    pub(crate) fn get(&self, id: PolicyId) -> Option<PlacePolicy> {
        let place = usize::from(id.bits()).checked_sub(1)?;
        self.0.lock().get(place).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::numa_policy::PlaceMode;
    use memwright_table::{NodeSet, OneCpu};

    #[test]
    fn equal_policies_have_one_number() {
        let policies = Policies::<OneCpu>::new();
        let local = PlacePolicy {
            mode: PlaceMode::Local,
            nodes: NodeSet::EMPTY,
            named: None,
            flags: 0,
            home: None,
        };
        let bound = PlacePolicy {
            mode: PlaceMode::Bind,
            nodes: NodeSet::single(1),
            ..local
        };
        let first = policies.number(local).unwrap();
        assert_ne!(policies.number(bound).unwrap(), first);
        assert_eq!(policies.number(local).unwrap(), first);
        assert_eq!(policies.get(first), Some(local));
        assert_eq!(policies.get(PolicyId::NONE), None);
    }
}
