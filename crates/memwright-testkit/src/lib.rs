//! Tests of an embedder's own [`Machine`](memwright_table::Machine).
#![no_std]
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
pub mod process;
pub mod run;
mod saved;
pub mod script;
mod script_text;
pub mod terms;

pub use host_swap::HostSwap;
pub use machine::{TestMachine, Trap};
pub use run::{Failure, Options, Report, run};
