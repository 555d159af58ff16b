//! `/proc` and `/sys`: directories and files whose contents are generated on access.
//!
//! ```text
//! node/      types of nodes, text, and the parts of the kernel that files report
//! system/    files about the system and about cgroups
//! process/   files about processes
//! fixed.rs   the fixed entries
//! open.rs, lookup.rs, list.rs, stream.rs, polled.rs   operations on nodes
//! ```
//!
//! Each value in a file is read from the state that it describes, or is declared as a [`stub`] in the module of the
//! file. Most features that this kernel lacks have no files.

mod entry;
mod fixed;
mod list;
mod lookup;
mod node;
mod open;
mod polled;
mod process;
mod stream;
mod stubs;
mod system;

pub use entry::{ProcEntry, roots};
pub use node::view::{MachineParts, MemoryParts, ProcessParts};
pub use node::{PlaceLink, ProcNode, Text, stub};
pub use process::maps::{Noted, area_at};
pub use stubs::all as all_stubs;
