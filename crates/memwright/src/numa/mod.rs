//! Memory on several nodes: where pages are placed, and how they move.
//!
//! ```text
//! policy.rs   from which nodes the pages of an area, or of a thread, come
//! bind.rs     areas get a policy, and their pages move to where it says
//! migrate.rs  one page changes its frame
//! together.rs the same for one that several entries show
//! shown.rs    where such a page is shown
//! scan.rs     entries are made to tell who uses their pages; what becomes of that: ../fault/hint.rs
//! pace.rs     how often
//! ```
//!
//! # First touch
//! A page comes from the node of the CPU that touches it first, as far as that has memory, then from the nearest
//! ([`memwright_table::frame::NodeChoice`]). A policy says otherwise: that of the area before that of the thread.
//!
//! # Migration
//! A page that one entry shows, and nobody else has a reference of, moves under the lock of that entry's table:
//! emptied, flushed, copied, filled. Whoever stores to it meanwhile faults, waits for the lock and finds the new
//! frame. Exclusivity, tracking and userfaultfd's protection are bits of the entry and come along; a copy in swap is
//! the new frame's; write permission is what [the rule](crate::writable) says. A pinned page stays where it is.
//!
//! A page that several entries show moves for all of them at once, under the locks of their address spaces: after a
//! fork, of an object, or merged. It stays if anybody else has a reference: who reads it for a call, a slot in swap that
//! other entries name, an entry of another size.

mod bind;
mod migrate;
mod pace;
mod policy;
mod scan;
mod shown;
mod together;

pub use bind::{BindError, Moving};
pub use migrate::{Moved, Unmoved};
pub use policy::{PlaceMode, PlacePolicy, PolicyId};

pub(crate) use pace::{Pace, Told};
pub(crate) use policy::Policies;
pub(crate) use shown::ShownPage;
