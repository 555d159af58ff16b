//! Transfers without the feature `swap`: there is no device to transfer pages to.

use core::marker::PhantomData;
use memwright_table::{Frame, Frames, Machine};

use crate::swap::Swap;
use crate::swap::device::{DeviceError, Direction};

/// The transfers of several pages.
pub(crate) struct Transfers<M: Machine, const MOST: usize>(PhantomData<fn() -> M>);

impl<M: Machine, const MOST: usize> Transfers<M, MOST> {
    pub(crate) const NONE: Self = Self(PhantomData);

    /// Begins nothing.
    pub(crate) fn begin(
        &mut self,
        _swap: &Swap<M>,
        _frames: &Frames<M>,
        _number: usize,
        _direction: Direction,
        _page: (u64, Frame),
    ) {
    }

    /// Returns [`DeviceError::Full`].
    pub(crate) fn finish(
        &mut self,
        _frames: &Frames<M>,
        _number: usize,
    ) -> Result<(), DeviceError> {
        Err(DeviceError::Full)
    }
}
