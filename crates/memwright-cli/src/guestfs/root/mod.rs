//! The tree of `--root`, which is a read-only layer below the guest's own files, and the server of the guest's requests
//! for it.

mod archive;
mod folder;
mod record;
mod resolve;
mod server;
mod tree;

pub use record::Record;
pub use server::RootServer;
pub use tree::{RootNode, RootTree};
