//! A random number generator whose numbers depend only on the seed.

/// SplitMix64, by Steele, Lea and Flood. It must not be used for secrets: the seed determines all numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the generator for a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Returns a number below `end`, which must be a power of two.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() & (end - 1)
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let value = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&value[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_gives_one_sequence() {
        let mut bytes = [0; 11];
        Random::new(7).fill(&mut bytes);
        let mut again = [0; 11];
        Random::new(7).fill(&mut again);
        assert_eq!(bytes, again);
        Random::new(8).fill(&mut again);
        assert_ne!(bytes, again);
    }
}
