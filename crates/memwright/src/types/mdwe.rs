//! MDWE: whether memory may gain execute permission (Linux 7.2 `PR_SET_MDWE`).

use crate::types::rights::Rights;

/// The choice of the memory that a program is allowed to make executable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecGain {
    /// Any memory.
    #[default]
    Granted,
    /// Only memory that is not writable and has been executable since it was mapped.
    Refused {
        /// Whether the restriction is inherited by a forked child.
        inherited: bool,
    },
}

impl ExecGain {
    /// Returns whether MDWE denies the rights `new` to an area. `old` are the rights that the area has or is mapped
    /// with.
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

    /// Returns the setting for a forked child, or for the next program that the process executes.
    #[must_use]
    pub fn of_successor(self) -> Self {
        let inherited = matches!(self, Self::Refused { inherited: true });
        if inherited { self } else { Self::Granted }
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
