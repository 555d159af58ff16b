//! Tests of small races in every order. Two or three CPUs make one system call each, in all schedules with up to two
//! deviations (see `memwright_sim::schedule`), or up to the number in `MEMWRIGHT_DEVIATIONS`. With three CPUs the
//! number is one less. A failure prints its schedule. If `MEMWRIGHT_SCHEDULE` contains such a schedule, the test
//! repeats the failed run.
//!
//! Each case checks the results that programs may observe. In addition, at the end of every run no CPU has a stale
//! translation, the page tables agree with the areas, and no frame has leaked. The machine reports a violation if a
//! frame is filled while a CPU still has a translation for it.

mod armed;
mod cut;
mod fault;
mod file;
mod folio;
mod fork;
mod huge;
mod merge;
mod protect;
// On AArch64 and RISC-V, forks copy all entries.
#[cfg(not(any(simulated = "aarch64", simulated = "riscv64")))]
mod share;
#[path = "../support/mod.rs"]
mod support;
mod swap;
mod unmap;
mod wait;
mod watch;
mod world;
