//! The PKRU register: the access rights that the running thread has for each protection key (Linux 7.2
//! `arch/x86/kernel/fpu/xstate.c`, `arch/x86/mm/pkeys.c`).

use crate::{
    Memory,
    host::{Host, Registers},
};
use memwright_table::Machine;

/// The initial value of PKRU for a program and for a signal handler: only memory with key 0 is accessible.
const INITIAL: u32 = 0x5555_5554;

/// Returns whether the processor has protection keys, which are a component of the extended state.
pub fn has_keys(registers: &dyn Registers) -> bool {
    const STATE: u64 = 1 << 9;
    registers.fpu_features() & STATE != 0
}

/// Resets the rights of the running thread to the initial ones.
pub fn reset(registers: &dyn Registers) {
    if has_keys(registers) {
        registers.set_key_rights(INITIAL);
    }
}

/// Permits the running thread all accesses, so that the rights of the thread do not restrict writes by the kernel.
/// Returns the previous rights, which the caller passes to [`restore`].
pub fn permit_all(registers: &dyn Registers, memory: &Memory) -> u32 {
    if !has_keys(registers) {
        return 0;
    }
    let before = memory.frames().machine().key_rights();
    registers.set_key_rights(0);
    before
}

/// Undoes a call of [`permit_all`], which returned `before`.
pub fn restore(registers: &dyn Registers, before: u32) {
    if has_keys(registers) {
        registers.set_key_rights(before);
    }
}

/// Reads and changes the rights of the running thread.
pub struct ProtectionKeys {
    host: &'static dyn Host,
}

impl ProtectionKeys {
    /// Creates the accessor for the rights of the thread that runs on the calling CPU.
    pub fn new(host: &'static dyn Host) -> Self {
        Self { host }
    }

    /// Returns whether the processor has protection keys.
    pub fn exist(&self) -> bool {
        has_keys(self.host)
    }

    /// Returns the accesses to memory with the key `key` that the running thread is denied, as `PKEY_DISABLE_` bits.
    pub fn denied(&self, key: u8) -> u32 {
        self.host.key_rights() >> (2 * key) & 3
    }

    /// Sets the accesses to memory with the key `key` that the running thread is denied, as `PKEY_DISABLE_` bits.
    pub fn deny(&self, key: u8, what: u32) {
        let shift = 2 * u32::from(key);
        let others = self.host.key_rights() & !(3 << shift);
        self.host.set_key_rights(others | what << shift);
    }
}
