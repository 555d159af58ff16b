//! Pseudo-random numbers.

/// A deterministic pseudo-random number generator (SplitMix64): the same seed gives the same numbers on every platform.
#[derive(Clone, Debug)]
pub struct Chance {
    state: u64,
}

impl Chance {
    /// Creates a generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound as u64) as usize
    }

    /// Returns a number in `range`.
    pub(crate) fn from(&mut self, range: core::ops::Range<u8>) -> u8 {
        range.start + self.below(range.len()) as u8
    }

    /// Returns true or false with equal probability.
    pub(crate) fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Returns one of `all`.
    pub(crate) fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}
