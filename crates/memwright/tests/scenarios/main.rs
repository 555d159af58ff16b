//! What programs do to their memory, played on the simulated machine: its CPUs keep stale translations, so
//! a flush that is missing shows as a wrong byte. Every scenario ends with an audit, and with every frame
//! back where it began.

mod advise;
mod failures;
mod faults;
mod fork;
mod limits;
mod locks;
mod objects;
mod protect;
mod remap;
mod world;
