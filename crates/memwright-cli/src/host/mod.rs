//! The host's resources: files, folders, processes, signals, the cache, the C compiler, package archives.

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
