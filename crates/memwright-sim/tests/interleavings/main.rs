//! Small races in every order: two or three CPUs, one system call each, and all schedules with up to two deviations
//! (see `memwright_sim::schedule`), or as many as `MEMWRIGHT_DEVIATIONS` says; with three CPUs one less. A failure
//! prints its schedule; `MEMWRIGHT_SCHEDULE` with that text runs it again.
//!
//! What each case expects is what a program may see. In addition, at the end of every run no CPU has a stale
//! translation, the tables agree with the areas, and no frame is lost. The machine reports a violation when a frame is
//! filled that some CPU can still reach.

mod fault;
mod file;
mod folio;
mod fork;
mod huge;
mod merge;
mod protect;
#[path = "../support/mod.rs"]
mod support;
mod swap;
mod unmap;
mod wait;
mod watch;
mod world;
