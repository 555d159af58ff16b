//! Physical frames: the buddy allocator, per-CPU caches, and per-frame metadata.
//!
//! Each node has a buddy allocator, protected by a lock of rank `Frames`. Each CPU has a cache of single frames,
//! protected by a lock of rank `FrameCache`. Another CPU acquires that lock only when memory runs out, and to read
//! counters or set policies. Free frames are linked through their metadata, so that allocating and freeing frames needs
//! no memory beyond what [`Frames::new`] sets up. Allocation is deterministic: the same sequence of requests always
//! yields the same frames.
//!
//! User programs and hardware may write the contents of a frame at any time. Therefore, this crate forms references to
//! the contents only as atomics, and otherwise copies the contents through raw pointers.

extern crate alloc as rust_alloc;

mod allocate;
mod audit;
mod buddy;
mod cache;
mod chooser;
mod data;
mod dropping;
mod earmark;
mod failure;
mod folio;
mod frames;
mod free;
mod kind;
mod mapped;
mod meta;
mod node;
mod node_tally;
mod node_words;
mod order;
mod out_of_frames;
mod pages;
mod pinned;
mod poison;
mod pool;
mod pool_state;
mod reference;
mod refill;
mod setup;
mod setup_error;
mod slots;
mod subpool;
mod topology;
mod unshared;

pub use audit::FrameAudit;
pub use chooser::Chooser;
pub use frames::{Frames, Usage};
pub use kind::FrameKind;
pub use node_tally::NodeCounts;
pub use node_words::NodeWords;
pub use order::{FOLIO_FRAMES, FOLIO_ORDER, MAX_ORDER};
pub use out_of_frames::OutOfFrames;
pub use pages::FolioPages;
pub use pinned::Pinned;
pub use pool_state::{NoHugePage, PoolCounts};
pub use reference::FrameRef;
pub use setup::Region;
pub use setup_error::SetupError;
pub use slots::Slots;
pub use subpool::{SubpoolCounts, SubpoolId};
pub use topology::{MAX_NODES, NodeChoice, NodeSet, Topology};
pub use unshared::UnsharedCounts;

pub(crate) use buddy::Metas;
pub(crate) use dropping::Alike;
pub(crate) use meta::{END, Meta, UNLINKED};
pub(crate) use node_words::{TOGETHER, zero_bits};
pub(crate) use reference::add_references;
