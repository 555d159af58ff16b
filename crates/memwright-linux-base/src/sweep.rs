//! Decides when to sweep a list of references, that is, to remove its dead entries: references to freed objects.

/// Decides when a list is swept: when it has become twice as long as it was after the last sweep. This keeps the
/// amortised cost of an addition constant. It also keeps the number of dead entries at most about as high as that of
/// the live ones.
#[derive(Debug)]
pub struct Sweep {
    at: usize,
}

impl Default for Sweep {
    fn default() -> Self {
        Self::new()
    }
}

impl Sweep {
    /// The minimum length at which a list is swept.
    const LEAST: usize = 8;

    /// Creates the state for an empty list.
    pub const fn new() -> Self {
        Self { at: Self::LEAST }
    }

    /// Returns whether a list of `length` entries should be swept before the next addition.
    pub const fn is_due(&self, length: usize) -> bool {
        length >= self.at
    }

    /// Records that a sweep left `left` entries in the list.
    pub fn done(&mut self, left: usize) {
        self.at = (2 * left).max(Self::LEAST);
    }
}

#[cfg(test)]
mod tests {
    use super::Sweep;

    #[test]
    fn sweeps_cost_a_constant_share_of_additions() {
        for share_that_goes in [0, 1, 2, 10] {
            let (mut sweep, mut length, mut swept) = (Sweep::new(), 0, 0);
            for _ in 0..100_000 {
                if sweep.is_due(length) {
                    swept += length;
                    length -= length * share_that_goes / 10;
                    sweep.done(length);
                }
                length += 1;
            }
            assert!(swept <= 200_000, "{share_that_goes}: {swept}");
        }
    }
}
