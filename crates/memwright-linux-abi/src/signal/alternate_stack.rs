//! The alternate stack of signal handlers.

crate::abi_struct! {
    /// `stack_t` of `asm-generic/signal.h`.
    pub struct AlternateStack {
        /// Lowest address.
        pub base: u64,
        /// `SS_ONSTACK`, `SS_DISABLE`, `SS_AUTODISARM`.
        pub flags: u32,
        /// Padding.
        pub padding: u32,
        /// Size in bytes.
        pub size: u64,
    }
}

impl AlternateStack {
    /// `SS_ONSTACK`.
    pub const ONSTACK: u32 = 1;
    /// `SS_DISABLE`.
    pub const DISABLE: u32 = 2;
    /// `SS_AUTODISARM` of `asm-generic/signal.h`: the stack is disabled while a handler runs on it.
    pub const AUTODISARM: u32 = 1 << 31;

    /// Returns whether `stack_pointer` is on this stack. With `SS_AUTODISARM`, returns false.
    pub fn holds(&self, stack_pointer: u64) -> bool {
        self.flags & Self::AUTODISARM == 0
            && stack_pointer > self.base
            && stack_pointer - self.base <= self.size
    }

    /// Returns the `ss_flags` that `sigaltstack` reports to a thread with `stack_pointer`.
    pub fn state(&self, stack_pointer: u64) -> u32 {
        if self.size == 0 {
            Self::DISABLE
        } else if self.holds(stack_pointer) {
            Self::ONSTACK
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AlternateStack;

    #[test]
    fn the_stack_grows_down_from_its_top() {
        let stack = AlternateStack {
            base: 0x1000,
            flags: 0,
            padding: 0,
            size: 0x2000,
        };
        assert!(!stack.holds(0x1000));
        assert!(stack.holds(0x1001));
        assert!(stack.holds(0x3000));
        assert!(!stack.holds(0x3001));
        assert_eq!(stack.state(0x2000), AlternateStack::ONSTACK);
        assert_eq!(stack.state(0x4000), 0);
        assert_eq!(
            AlternateStack::default().state(0x2000),
            AlternateStack::DISABLE
        );
    }
}
