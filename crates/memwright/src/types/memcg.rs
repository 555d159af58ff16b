//! Numbers of memcgs.

/// The maximum number of memcgs that can be charged.
pub const MAX_MEMCGS: usize = 63;

/// The memcg that is charged for the slots of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memcg(pub(crate) u8);

impl Memcg {
    /// No memcg: there is no limit.
    pub const NOBODY: Self = Self(0);

    /// Returns the memcg with `number`, below [`MAX_MEMCGS`].
    ///
    /// # Panics
    /// If `number` is [`MAX_MEMCGS`] or more.
    #[must_use]
    pub const fn new(number: usize) -> Self {
        assert!(number < MAX_MEMCGS, "there are fewer memcgs");
        Self(number as u8 + 1)
    }

    pub(crate) const fn from_raw(raw: u8) -> Self {
        Self(raw)
    }

    pub(crate) const fn raw(self) -> u8 {
        self.0
    }
}
