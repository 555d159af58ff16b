//! MDWE: denying memory that gains execute permission (Linux 7.2 `PR_SET_MDWE`, `map_deny_write_exec`).

use memwright_table::Machine;

use super::AddressSpace;
use crate::vma::Rights;

/// The memory that a program is allowed to make executable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecGain {
    /// Any memory.
    #[default]
    Granted,
    /// Only memory that has been executable since it was mapped and is not writable.
    Refused {
        /// Whether the restriction is inherited by a forked child.
        inherited: bool,
    },
}

impl ExecGain {
    /// Returns whether `new` rights are denied for an area that has, or is mapped with, `old` rights.
    #[inline]
    pub(crate) fn forbids(self, old: Rights, new: Rights) -> bool {
        match self {
            Self::Granted => false,
            Self::Refused { .. } => {
                new.contains(Rights::EXECUTE)
                    && (new.contains(Rights::WRITE) || !old.contains(Rights::EXECUTE))
            }
        }
    }

    /// Returns the setting of a forked child, or of the next program executed.
    #[must_use]
    pub fn of_successor(self) -> Self {
        match self {
            Self::Granted | Self::Refused { inherited: false } => Self::Granted,
            Self::Refused { inherited: true } => self,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_always_executable_and_never_writable() {
        let (none, read, write, execute) = (
            Rights::empty(),
            Rights::READ,
            Rights::WRITE,
            Rights::EXECUTE,
        );
        let refused = ExecGain::Refused { inherited: true };
        for (old, new, expected) in [
            (none, none, false),
            (read | write, read, false),
            (read, read | execute, true),
            (read | execute, read | execute, false),
            (read | execute, read | write, false),
            (read | execute, write | execute, true),
            (write | execute, execute, false),
        ] {
            assert_eq!(refused.forbids(old, new), expected, "{old:?} {new:?}");
            assert!(!ExecGain::Granted.forbids(old, new));
        }
    }
}
