//! QEMU: its command line, its process, and the sockets through which a run communicates with it.

pub mod backports;
pub mod command;
pub mod disk;
pub mod launch;
pub mod nodes;
pub mod process;
pub mod qmp;
pub mod runs;
pub mod version;
