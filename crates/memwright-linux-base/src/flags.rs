//! Defines sets of flags.

/// Defines a set of flags like `bitflags!`. The lints against allocation are disabled in the generated code, because it
/// calls methods such as `extend`. They allocate for collections, but not for a set of flags.
#[macro_export]
macro_rules! flags {
    (
        $(#[$outer:meta])*
        $visibility:vis struct $name:ident: $bits:ty { $($flags:tt)* }
    ) => {
        $(#[$outer])*
        $visibility struct $name($bits);

        #[allow(clippy::disallowed_methods, reason = "numbers are extended")]
        const _: () = {
            $crate::bitflags::bitflags! {
                impl $name: $bits { $($flags)* }
            }
        };
    };
}
