//! Declares the values in `/proc` and `/sys` that do not reflect kernel state (stubs).
//!
//! The function that writes a file takes the value of a stub from its declaration, and `docs/system-calls.md` lists the
//! declarations. A test of the sources finds constant numbers and words that are written without a declaration.

use core::fmt;

/// The kind of value that the field contains instead of kernel state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A constant number.
    Number(u64),
    /// A constant text.
    Text(&'static str),
    /// The value of the field or file with the contained name.
    Copy(&'static str),
    /// The value that a program wrote to the file last. The kernel ignores the value.
    Unused,
}

/// A value that does not reflect kernel state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// The path of the file.
    pub file: &'static str,
    /// The name of the field in the file; empty if the file consists only of this value.
    pub field: &'static str,
    /// The kind of value that the field contains instead of kernel state.
    pub kind: Kind,
    /// The reason why the value does not reflect kernel state.
    pub reason: &'static str,
}

impl Stub {
    /// Returns the constant number; 0 for other kinds.
    pub(in crate::procfs) const fn number(&self) -> u64 {
        match self.kind {
            Kind::Number(number) => number,
            Kind::Text(_) | Kind::Copy(_) | Kind::Unused => 0,
        }
    }

    /// Returns the constant text; an empty text for other kinds.
    pub(in crate::procfs) const fn text(&self) -> &'static str {
        match self.kind {
            Kind::Text(text) => text,
            Kind::Number(_) | Kind::Copy(_) | Kind::Unused => "",
        }
    }

    /// Returns `other`, which is the value of the field that this field copies.
    pub(in crate::procfs) const fn copied(&self, other: u64) -> u64 {
        other
    }
}

impl fmt::Display for Stub {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Number(number) => write!(formatter, "{number}"),
            Kind::Text(text) => formatter.write_str(text),
            Kind::Copy(_) | Kind::Unused => Ok(()),
        }
    }
}

/// Declares the stubs of a module, each with its file, field, kind and reason. Also declares `STUBS`, the list of these
/// stubs.
macro_rules! stubs {
    ($($name:ident: $file:literal $field:literal $kind:ident $(($value:expr))?, $reason:literal;)*) => {
        $(
            static $name: $crate::procfs::node::stub::Stub = $crate::procfs::node::stub::Stub {
                file: $file,
                field: $field,
                kind: $crate::procfs::node::stub::Kind::$kind $(($value))?,
                reason: $reason,
            };
        )*
        /// The stubs of this module.
        pub(in $crate::procfs) static STUBS: &[&$crate::procfs::node::stub::Stub] = &[$(&$name),*];
    };
}
pub(in crate::procfs) use stubs;

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    stubs! {
        ZERO: "/proc/a" "b" Number(0), "A reason.";
        WORD: "/proc/a" "c" Text("word"), "A reason.";
        SAME: "/proc/a" "d" Copy("b"), "A reason.";
        UNUSED: "/proc/e" "" Unused, "A reason.";
    }

    #[test]
    fn a_stub_writes_what_it_declares() {
        let texts: alloc::vec::Vec<_> = STUBS.iter().map(|stub| stub.to_string()).collect();
        assert_eq!(texts, ["0", "word", "", ""]);
        assert_eq!((ZERO.number(), WORD.number(), SAME.copied(7)), (0, 0, 7));
        assert_eq!((WORD.text(), ZERO.text()), ("word", ""));
        assert_eq!(UNUSED.field, "");
    }
}
