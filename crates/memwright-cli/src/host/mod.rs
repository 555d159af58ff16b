//! Resources of the host: files, folders, processes, signals, the cache, the C compiler, and package archives.

pub mod apt;
pub mod bounded;
pub mod cache;
pub mod compile;
pub mod deb;
pub mod folder;
pub mod host_file;
pub mod output;
pub mod progress;
pub mod results;
pub mod signals;
pub mod taken;
