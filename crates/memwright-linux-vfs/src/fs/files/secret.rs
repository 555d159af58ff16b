//! Secret memory, which is accessible only through the mappings of processes (Linux 7.2 `mm/secretmem.c`).

use crate::fs::{
    abilities::Positions,
    inode::Body,
    open_file::{File, Mapping, OpenFile},
};
use alloc::sync::Arc;
use memwright_linux_abi::errno::Errno;

/// The open file behind a descriptor of `memfd_secret`. It can be mapped, but not read or written.
pub struct SecretFile;

impl File for SecretFile {
    fn positions(&self) -> Positions {
        Positions::Refused
    }

    fn mapping(&self, open: &Arc<OpenFile>) -> Result<Mapping, Errno> {
        Ok(Mapping::Object(open.clone()))
    }
}

/// Returns whether the open file is a file of `memfd_secret`.
#[must_use]
pub fn is_secret(open: &OpenFile) -> bool {
    matches!(&open.inode().body, Body::Regular(regular) if regular.is_secret())
}
