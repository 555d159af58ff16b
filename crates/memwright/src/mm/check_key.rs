//! The check of the protection key of an access.

use memwright_table::Machine;

use crate::mm::core::Core;
use crate::types::access::Access;
use crate::types::error::FaultError;
use crate::types::protection_keys::refuses;
use crate::types::rights::Rights;

impl<M: Machine> Core<M> {
    /// Checks whether the protection keys of this CPU permit `access` to an area with `rights`. The processor checks
    /// accesses to mapped pages itself. This check is for unmapped pages, and for accesses by the kernel on behalf of
    /// the program.
    #[cold]
    #[inline(never)]
    pub(crate) fn check_key(&self, rights: Rights, access: Access) -> Result<(), FaultError> {
        let key_rights = self.memory.frames().machine().key_rights();
        if access.user && refuses(key_rights, rights, access) {
            return Err(FaultError::Key(rights.key()));
        }
        Ok(())
    }
}
