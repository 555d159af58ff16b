//! Runs a program on any kernel image, Linux's or Memwright's, with counts measured by QEMU.

pub mod column;
pub mod columns;
pub mod fault_runs;
pub mod image;
pub mod input;
mod kernel_symbols;
pub mod laboratory;
mod linux_run;
pub mod load;
mod missed_names;
mod options;
mod own_run;
mod profiled;
mod rehearsal;
pub mod run;
