//! File names, most of which are stored without an allocation.

use alloc::boxed::Box;
use core::{fmt, ops::Deref};

/// The maximum length in bytes of a name that is stored without an allocation.
const SHORT: usize = 30;

enum Stored {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

/// The name of a file. A short name is stored inline, without an allocation.
pub struct FileName(Stored);

impl FileName {
    /// Creates a copy of `name`, which can contain any bytes.
    #[must_use]
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; SHORT];
        Self(match bytes.get_mut(..name.len()) {
            Some(room) => {
                room.copy_from_slice(name);
                let length = name.len() as u8;
                Stored::Short { length, bytes }
            }
            None => Stored::Long(name.into()),
        })
    }
}

impl Default for FileName {
    /// Returns the empty name.
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Deref for FileName {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Stored::Short { length, bytes } => &bytes[..usize::from(*length)],
            Stored::Long(name) => name,
        }
    }
}

impl Clone for FileName {
    fn clone(&self) -> Self {
        Self::new(self)
    }
}

impl PartialEq for FileName {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for FileName {}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{FileName, SHORT};
    use crate::fs::name::NAME_MAX;

    #[test]
    fn names_of_every_length_are_kept() {
        let bytes: [u8; NAME_MAX] = core::array::from_fn(|index| index as u8);
        for length in [0, 1, SHORT - 1, SHORT, SHORT + 1, NAME_MAX] {
            let name = FileName::new(&bytes[..length]);
            assert_eq!(*name, bytes[..length]);
            assert_eq!(name.clone(), name);
        }
        assert_eq!(FileName::default(), FileName::new(b""));
        assert_ne!(FileName::new(b"a"), FileName::new(b"b"));
    }
}
