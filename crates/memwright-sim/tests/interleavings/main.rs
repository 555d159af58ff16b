//! Tests of small races in every order: two or three CPUs make one system call each, in all schedules with up to two
//! deviations (see `memwright_sim::schedule`), or up to `MEMWRIGHT_DEVIATIONS`; with three CPUs one less. A failure
//! prints its schedule; `MEMWRIGHT_SCHEDULE` with that text runs it again.
//!
//! Each case checks what programs are allowed to observe. In addition, at the end of every run no CPU has a stale
//! translation, the tables agree with the areas, and no frame is lost. The machine reports a violation when a frame is
//! filled while some CPU still has a translation for it.

mod armed;
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
