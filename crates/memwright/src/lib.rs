//! The memory manager.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod audit;
pub mod commit;
pub mod error;
pub mod fault;
pub mod memory;
pub mod object;
pub mod policy;
pub mod space;
pub mod stats;
pub mod trace;
pub mod vma;
pub mod writable;

pub use audit::AuditError;
pub use commit::{Commit, Overcommit};
pub use error::{
    AdviseError, FaultError, ForkError, Limit, LockError, MapError, ObjectError, ProtectError,
    RemapError, SyncError, UnmapError,
};
pub use fault::{Access, FaultKind};
pub use memory::Memory;
pub use policy::{Policy, PolicyError, WriteUpgrade};
pub use space::{
    AddressSpace, Area, Backing, Layout, Limits, LockFuture, MapKind, MapRequest, Placement, Totals,
};
pub use space::{Advice, Advised, RemapRequest, SyncFlags};
pub use stats::{Account, Definition, ROWS, Row, Source, Value};
pub use trace::{Event, TraceSink};
pub use vma::{AreaFlags, Rights};
