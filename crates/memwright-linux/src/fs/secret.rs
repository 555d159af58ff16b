//! Memory that only the processes which map it can reach (Linux 7.2 `mm/secretmem.c`).

use super::{
    inode::Body,
    open_file::{File, Mapping, OpenFile, Positions},
};
use crate::errno::Errno;
use alloc::sync::Arc;

/// The open file behind a descriptor of `memfd_secret`: it is there to be mapped, and neither read nor written.
pub struct SecretFile;

impl File for SecretFile {
    fn positions(&self) -> Positions {
        Positions::Refused
    }

    fn mapping(&self, open: &Arc<OpenFile>) -> Result<Mapping, Errno> {
        Ok(Mapping::Object(open.clone()))
    }
}

/// Whether an open file is one.
#[must_use]
pub fn is_secret(open: &OpenFile) -> bool {
    matches!(&open.inode().body, Body::Regular(regular) if regular.is_secret())
}
