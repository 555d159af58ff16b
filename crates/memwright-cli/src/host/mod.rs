//! What this machine gives: files, folders, processes, signals, a cache, a C compiler, archives of packages.

pub mod apt;
pub mod bounded;
pub mod cache;
pub mod compile;
pub mod folder;
pub mod host_file;
pub mod output;
pub mod progress;
pub mod signals;
pub mod taken;
