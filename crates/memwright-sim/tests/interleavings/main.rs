//! Small races in every order: two or three CPUs, a call each, and all schedules with up to two deviations
//! (see `memwright_sim::schedule`), or as many as `MEMWRIGHT_DEVIATIONS` says; with three CPUs one less. A failure
//! prints its schedule; `MEMWRIGHT_SCHEDULE` with that text runs it again.
//!
//! What each case expects is what a program may see; besides, at the end of every run nothing is stale on any
//! CPU, the tables agree with the areas, and no frame is lost. The machine objects when a frame is filled
//! that some CPU still reaches.

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
