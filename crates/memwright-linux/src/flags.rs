//! Sets of flags.

/// Defines a set of flags as `bitflags!` does. What that makes adds flags to a number, by `extend` too: the lints that
/// look for memory do not concern it.
macro_rules! flags {
    (
        $(#[$outer:meta])*
        $visibility:vis struct $name:ident: $bits:ty { $($flags:tt)* }
    ) => {
        $(#[$outer])*
        $visibility struct $name($bits);

        #[allow(clippy::disallowed_methods, reason = "numbers are extended")]
        const _: () = {
            bitflags::bitflags! {
                impl $name: $bits { $($flags)* }
            }
        };
    };
}
