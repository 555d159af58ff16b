//! The identity of a process and what it permits: credentials, capabilities, users, resource limits.

mod capabilities;
mod credentials;
mod limits;
mod users;

pub use capabilities::{Capabilities, CapabilitySets};
pub use credentials::{Credentials, Ids, UNCHANGED};
pub use limits::{INFINITY, Limit, Limits, Resource};
pub use users::{Tally, User, Users};
