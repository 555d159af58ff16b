//! NUMA: placement of pages on nodes, and migration.
//!
//! ```text
//! bind.rs     mbind: policies of areas, and the pages that violate them
//! migrate.rs  migration of a page with one entry
//! together.rs migration of a page with several entries
//! scan.rs     NUMA balancing: installs NUMA hints, whose faults ../fault/hint.rs handles
//! pace.rs     the scan period
//! ```
//!
//! Code in other folders: the NUMA policies themselves (`types/numa_policy.rs`), and the reverse mapping of a page with
//! several entries (`range/rmap.rs`).
//!
//! # First touch
//! A page is allocated on the node of the CPU that touches it first. If that node has no free memory, the page is
//! allocated on the nearest node that has some ([`memwright_table::frame::NodeChoice`]). A NUMA policy overrides
//! this; the policy of the area takes precedence over that of the thread.
//!
//! # Migration
//! A page with one entry and no other reference is migrated under the lock of that entry's page table: empty the entry,
//! flush, copy the page, set the new entry. A CPU that stores to the page meanwhile faults, waits for the lock and
//! finds the new frame. The exclusive, tracking and userfaultfd write-protection bits are part of the entry and are
//! kept. If a swap slot holds a copy of the page, the slot then refers to the new frame. The function
//! [`writable`](crate::writable) decides on write permission. A pinned page is not migrated.
//!
//! A page with several entries, because of a fork, an object or KSM, is migrated in all of them at once, under the
//! locks of their address spaces. It is not migrated if there is any other reference: from a system call that accesses
//! the page, from a swap slot that other entries name, or from an entry of another size than the page.

pub(crate) mod bind;
pub(crate) mod migrate;
pub(crate) mod pace;
pub(crate) mod scan;
pub(crate) mod together;
