//! The orders of blocks of frames: a block of order `n` has 2^`n` frames.

/// The maximum order: 1 GiB.
pub const MAX_ORDER: u8 = 18;
/// The buddy order of a folio: 2 MiB.
pub const FOLIO_ORDER: u8 = 9;
/// The number of frames of a folio.
pub const FOLIO_FRAMES: u32 = 1 << FOLIO_ORDER;
