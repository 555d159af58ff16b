//! Defines sets of flags.

/// Defines a set of flags like `bitflags!`. The generated code combines flags by operations such as `extend`, which do
/// not allocate here, so the lints against allocation are disabled for it.
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
