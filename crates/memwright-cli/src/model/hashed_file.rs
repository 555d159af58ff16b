//! A file of the host that a run used.

use serde::{Deserialize, Serialize};

/// A file of the host that a run used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashedFile {
    /// The path of the file, on the host and in the guest.
    pub path: String,
    /// SHA-256 of its contents.
    pub sha256: String,
}
