//! References to frames that devices use.

use core::fmt;

use super::{FrameRef, Frames};
use crate::addr::Frame;
use crate::machine::Machine;

/// A counted reference to a pinned frame, which a device or the kernel can write at any time (rule:
/// exclusive-before-pin). Dropping the reference removes its pin.
#[must_use = "dropping it unpins the frame"]
pub struct Pinned<'a, M: Machine>(FrameRef<'a, M>);

impl<M: Machine> Pinned<'_, M> {
    /// The frame.
    #[inline]
    pub fn frame(&self) -> Frame {
        self.0.frame()
    }

    /// Converts the reference into a raw frame, which stays pinned. [`Frames::adopt_pinned`] converts it back.
    #[inline]
    #[must_use = "the frame stays pinned until it is adopted"]
    pub fn into_raw(self) -> Frame {
        let frame = self.frame();
        core::mem::forget(self);
        frame
    }
}

impl<M: Machine> Frames<M> {
    /// Pins `frame`, which the caller has a reference to, and returns a further reference.
    pub fn share_pinned(&self, frame: Frame) -> Pinned<'_, M> {
        self.pin(frame);
        Pinned(self.share(frame))
    }

    /// Converts a raw frame back into a reference that unpins it.
    ///
    /// # Panics
    /// If nothing has a reference to the frame.
    pub fn adopt_pinned(&self, frame: Frame) -> Pinned<'_, M> {
        Pinned(self.adopt(frame))
    }
}

impl<M: Machine> Drop for Pinned<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.0.frames().unpin(self.frame());
    }
}

impl<M: Machine> fmt::Debug for Pinned<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pinned").field(&self.frame()).finish()
    }
}
