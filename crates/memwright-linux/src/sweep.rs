//! When a list of weak references drops those whose targets have gone.

/// Decides when a list is swept: once it is twice as long as the last sweep left it. Adding to the
/// list then costs the same on average however long it is, and at most half of it is of no use.
#[derive(Debug)]
pub(crate) struct Sweep {
    at: usize,
}

impl Sweep {
    /// A list that is shorter is not worth a sweep.
    const LEAST: usize = 8;

    /// For an empty list.
    pub(crate) const fn new() -> Self {
        Self { at: Self::LEAST }
    }

    /// Whether a list of this length is to be swept before something is added.
    pub(crate) const fn is_due(&self, length: usize) -> bool {
        length >= self.at
    }

    /// A sweep left so many.
    pub(crate) fn done(&mut self, left: usize) {
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
