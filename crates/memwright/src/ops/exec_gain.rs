//! MDWE: denying memory that gains execute permission (Linux 7.2 `PR_SET_MDWE`, `map_deny_write_exec`).

use memwright_table::Machine;

use crate::mm::space::AddressSpace;
use crate::types::mdwe::ExecGain;

impl<M: Machine> AddressSpace<M> {
    /// Returns which memory the program is allowed to make executable.
    pub fn exec_gain(&self) -> ExecGain {
        self.core.areas.read(self.core.cpu()).exec_gain
    }

    /// Sets which memory the program is allowed to make executable from now on. Memory that is already executable stays
    /// executable.
    pub fn set_exec_gain(&self, gain: ExecGain) {
        self.core.areas.write().exec_gain = gain;
    }
}
