//! The identity of a process and what it permits: credentials, capabilities, users, resource limits.

mod capabilities;
mod credentials;
mod limits;
mod privileges;
mod users;

pub use capabilities::{Capabilities, CapabilitySets, SecureBits};
pub use credentials::{Credentials, Ids, UNCHANGED};
pub use limits::{INFINITY, Limit, Limits, Resource};
pub use users::{Tally, User, Users};

use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::Shared;

/// Maximum number of supplementary groups (`NGROUPS_MAX`).
pub const GROUPS_MAX: u64 = 65_536;

/// The credentials and limits of a process.
pub struct Identity {
    /// User and group ids, and capabilities.
    pub credentials: Lock<Credentials>,
    /// Resource limits.
    pub limits: Lock<Limits>,
    /// The real user, to which the threads of the process are accounted.
    user: Lock<Shared<User>>,
}

impl Identity {
    /// Creates the identity of a process of `user` with the initial credentials.
    #[must_use]
    pub fn new(limits: Limits, user: Shared<User>) -> Self {
        Self {
            credentials: Lock::new(Rank::Leaf, Credentials::default()),
            limits: Lock::new(Rank::Leaf, limits),
            user: Lock::new(Rank::Leaf, user),
        }
    }

    /// Returns the real user.
    pub fn user(&self) -> Shared<User> {
        self.user.lock().clone()
    }

    /// Returns the soft limit of `resource`.
    #[must_use]
    pub fn soft_limit(&self, resource: Resource) -> u64 {
        self.limits.lock().get(resource).current
    }

    /// Returns whether this identity permits its process to inspect a process of identity `other`
    /// (`ptrace_may_access` of Linux 7.2, `kernel/ptrace.c`).
    #[must_use]
    pub fn may_look_into(&self, other: &Self) -> bool {
        // Take one lock at a time: both have the same rank, and `other` can be this identity.
        let other = other.credentials.lock().clone();
        self.credentials.lock().may_look_into(&other)
    }

    /// Replaces the real user. Returns the previous one.
    pub fn replace_user(&self, user: Shared<User>) -> Shared<User> {
        core::mem::replace(&mut *self.user.lock(), user)
    }
}
