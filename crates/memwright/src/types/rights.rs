//! Access rights of areas and entries.

use bitflags::bitflags;

bitflags! {
    /// The accesses that a program is allowed to make to the pages of an area, and the protection key of these pages.
    /// Each CPU can deny further data accesses by key. The default key is 0.
    ///
    /// x86-64 cannot deny reads alone. As on Linux, any right therefore makes a page readable.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Rights: u8 {
        /// Loads.
        const READ = 1;
        /// Stores.
        const WRITE = 2;
        /// Instruction fetches.
        const EXECUTE = 4;
    }
}

impl Rights {
    const KEY_SHIFT: u32 = 3;

    const KEY: Self = Self::from_bits_retain(0xf << Self::KEY_SHIFT);

    /// Returns whether the rights permit no access.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.without_key().is_empty()
    }

    /// Returns the protection key, 0 to 15.
    #[inline]
    pub const fn key(self) -> u8 {
        self.intersection(Self::KEY).bits() >> Self::KEY_SHIFT
    }

    /// Returns the rights with key 0.
    #[inline]
    pub const fn without_key(self) -> Self {
        self.intersection(Self::all())
    }

    /// Returns the rights with the protection key `key`, of which the lowest 4 bits are used.
    #[inline]
    pub const fn with_key(self, key: u8) -> Self {
        let key = Self::from_bits_retain((key & 0xf) << Self::KEY_SHIFT);
        self.without_key().union(key)
    }

    /// Returns these rights with the key of `other`. These rights must have key 0.
    #[inline]
    pub(crate) const fn with_key_of(self, other: Self) -> Self {
        self.union(other.intersection(Self::KEY))
    }
}
