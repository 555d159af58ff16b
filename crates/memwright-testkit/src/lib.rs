//! Tests of an embedder's own [`Machine`](memwright_table::Machine), and of Memwright on it.
//!
//! An embedder implements [`TestMachine`] and calls [`run`](fn@run), which runs scripts and random programs of several
//! processes. After each step, it compares memory with a model.
//! ```text
//!   run ── Script ── Lockstep ──┬── Model
//!                               └── Process ──┬── TestMachine::{load, store, fetch}
//!                                             │         │ Trap
//!                                             └── AddressSpace::{fault, map, protect, ...} ── Machine
//! ```
//!
//! - [`machine`]: what a machine implements.
//! - [`mod@run`]: the run; [`judge`]: one script of it; [`generate`]: random scripts, from the numbers of
//!   [`chance`]. Before the first script, `preflight` checks the machine.
//! - [`process`]: a user program on the machine, whose accesses fault and are retried.
//! - [`model`]: the expected contents and rights of memory, computed in a slow but obvious way; [`lockstep`] runs a
//!   [`script`] on both the model and Memwright and compares them. [`terms`] are the types that scripts and the model
//!   share, [`noted_file`] is a file that must be notified of first writes, and [`host_swap`] is a swap device.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod chance;
pub mod generate;
pub mod host_swap;
pub mod judge;
pub mod leak;
pub mod lockstep;
pub mod machine;
pub mod model;
pub mod noted_file;
mod preflight;
pub mod process;
pub mod run;
mod saved;
pub mod script;
mod script_text;
pub mod terms;

pub use host_swap::HostSwap;
pub use machine::{TestMachine, Trap};
pub use run::{Failure, Options, Report, run};
