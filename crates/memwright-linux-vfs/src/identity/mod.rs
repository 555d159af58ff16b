//! The identity of a process and what it permits: credentials, capabilities, users and resource limits.

mod capabilities;
mod credentials;
mod groups;
mod limits;
mod privileges;
mod users;

pub use capabilities::{Capabilities, CapabilitySets, SecureBits};
pub use credentials::{Credentials, Ids, UNCHANGED};
pub use groups::Groups;
pub use limits::{INFINITY, Limit, Limits, Resource};
pub use users::{Tally, User, Users};

use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::Shared;

/// Maximum number of supplementary groups (`NGROUPS_MAX`).
pub const GROUPS_MAX: u64 = 65_536;

/// The credentials and resource limits of a process, and its user.
pub struct Identity {
    /// User and group ids, and capabilities.
    pub credentials: Lock<Credentials>,
    /// Resource limits.
    pub limits: Lock<Limits>,
    /// The user whose id is the real user id of the process. The threads of the process are accounted to this user.
    user: Lock<Shared<User>>,
}

impl Identity {
    /// Creates the identity of a process of `user` with root's credentials.
    #[must_use]
    pub fn new(limits: Limits, user: Shared<User>) -> Self {
        Self {
            credentials: Lock::new(Rank::Leaf, Credentials::default()),
            limits: Lock::new(Rank::Leaf, limits),
            user: Lock::new(Rank::Leaf, user),
        }
    }

    /// Returns the user to which the process is accounted.
    pub fn user(&self) -> Shared<User> {
        self.user.lock().clone()
    }

    /// Returns the soft limit of `resource`.
    #[must_use]
    pub fn soft_limit(&self, resource: Resource) -> u64 {
        self.limits.lock().get(resource).current
    }

    /// Returns whether the process with this identity is allowed to inspect a process with the identity `other`
    /// (`ptrace_may_access` of Linux 7.2, `kernel/ptrace.c`).
    #[must_use]
    pub fn may_look_into(&self, other: &Self) -> bool {
        // Hold one lock at a time, because both have the same rank and `other` can be this identity.
        let other = other.credentials.lock().clone();
        self.credentials.lock().may_look_into(&other)
    }

    /// Replaces the user to which the process is accounted. Returns the previous one.
    pub fn replace_user(&self, user: Shared<User>) -> Shared<User> {
        core::mem::replace(&mut *self.user.lock(), user)
    }
}
