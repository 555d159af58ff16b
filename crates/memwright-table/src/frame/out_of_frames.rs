//! The error of allocations of frames.

use core::fmt;

/// The error of an allocation that finds no free frame, or only frames of the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfFrames;

impl fmt::Display for OutOfFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of frames")
    }
}

impl core::error::Error for OutOfFrames {}
