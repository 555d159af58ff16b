//! The readahead windows without the feature `swap`: nothing is read ahead.

/// The readahead window of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window;

impl Window {
    /// The only window.
    pub(crate) const NONE: Self = Self;
}

/// The readahead window of an area.
#[derive(Debug)]
pub(crate) struct WindowCell;

impl WindowCell {
    pub(crate) const fn new(_window: Window) -> Self {
        Self
    }

    /// Returns the only window.
    pub(crate) fn get(&self) -> Window {
        Window
    }
}
