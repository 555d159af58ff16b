//! The tree of `--root`, which the guest sees read-only below its own files, and which answers what the guest asks.

mod archive;
mod folder;
mod record;
mod resolve;
mod server;
mod tree;

pub use record::Record;
pub use server::RootServer;
pub use tree::{RootNode, RootTree};
