//! Pseudo-random numbers for tests with many cases. The sequence is the same in every run.

/// Returns a function that returns a pseudo-random number below its argument.
pub fn draws(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    }
}
