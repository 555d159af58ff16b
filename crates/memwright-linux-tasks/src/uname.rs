//! The strings that `uname` returns, and the names that programs can set.

use memwright_linux_base::sync::{Lock, Rank};

/// The name of the operating system (`sysname`), which is constant.
pub const SYSTEM: &str = "Linux";
/// The Linux version whose behaviour Memwright follows.
pub const RELEASE: &str = "7.2.0";
/// The version string. The kernel image is reproducible, so the string contains no build time.
pub const BUILD: &str = "#1 SMP PREEMPT_NONE Memwright";
/// The hardware identifier (`machine`).
pub const MACHINE: &str = "x86_64";

/// The maximum number of bytes of a name (`__NEW_UTS_LEN`).
pub const LONGEST: usize = 64;

/// A name that a program can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Name {
    /// Creates a name from the first [`LONGEST`] bytes of `text`.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        let text = &text[..text.len().min(LONGEST)];
        let mut bytes = [0; LONGEST];
        bytes[..text.len()].copy_from_slice(text);
        Self {
            bytes,
            length: text.len(),
        }
    }

    /// Returns the bytes, up to the first null byte.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let text = &self.bytes[..self.length];
        text.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// The host name and the NIS domain name, which programs can set.
pub struct Names {
    host: Lock<Name>,
    domain: Lock<Name>,
}

/// Selects one of the [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The host name (`nodename`), which `sethostname` sets.
    Host,
    /// The NIS domain name, which `setdomainname` sets.
    Domain,
}

impl Default for Names {
    fn default() -> Self {
        let name = |text| Lock::new(Rank::Leaf, Name::new(text));
        Self {
            host: name(b"memwright"),
            domain: name(b"(none)"),
        }
    }
}

impl Names {
    fn name(&self, which: Which) -> &Lock<Name> {
        match which {
            Which::Host => &self.host,
            Which::Domain => &self.domain,
        }
    }

    /// Returns a name.
    pub fn get(&self, which: Which) -> Name {
        *self.name(which).lock()
    }

    /// Replaces a name.
    pub fn set(&self, which: Which, name: Name) {
        *self.name(which).lock() = name;
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Name, Names, Which};

    #[test]
    fn a_name_ends_at_a_null_byte_and_at_its_greatest_length() {
        let long = [b'x'; LONGEST + 1];
        for (text, expected) in [
            (&b""[..], &b""[..]),
            (b"host", b"host"),
            (b"a\0b", b"a"),
            (b"\0", b""),
            (&long, &long[..LONGEST]),
        ] {
            assert_eq!(Name::new(text).bytes(), expected);
        }
    }

    #[test]
    fn each_name_is_set_alone() {
        let names = Names::default();
        names.set(Which::Domain, Name::new(b"example"));
        assert_eq!(names.get(Which::Host).bytes(), b"memwright");
        assert_eq!(names.get(Which::Domain).bytes(), b"example");
    }
}
