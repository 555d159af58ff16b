//! The state of KSM without the feature `merge`: settings that nothing reads.

use core::marker::PhantomData;
use memwright_table::{Frame, Machine, OutOfMemory, Page, Shared};

use crate::mm::core::Core;
use crate::mm::memory::Memory;
use crate::types::merge::MergeSettings;

/// The number of an address space in the scan. No address space has one.
pub(crate) struct MergeNumber;

impl MergeNumber {
    pub(crate) const fn new() -> Self {
        Self
    }

    /// Returns whether the address space may map KSM pages.
    pub(crate) fn may_have_merged(&self) -> bool {
        false
    }
}

/// The state of KSM: one per machine. Without the feature `merge`, no page is merged.
pub struct Merging<M: Machine> {
    settings: MergeSettings,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Merging<M> {
    pub(crate) const fn new() -> Self {
        Self {
            settings: MergeSettings::new(),
            machine: PhantomData,
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &MergeSettings {
        &self.settings
    }

    /// Returns whether any address space is registered for scanning.
    pub fn is_wanted(&self) -> bool {
        false
    }

    /// Calls `add` with no page.
    pub(crate) fn for_each_place(
        &self,
        _memory: &Memory<M>,
        _frame: Frame,
        _add: impl FnMut(&Shared<Core<M>>, Page) -> Result<(), OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// Does nothing.
    pub(crate) fn set_places<'a>(
        &self,
        _memory: &Memory<M>,
        _frame: Frame,
        _pages: impl Iterator<Item = (&'a Core<M>, Page)>,
    ) where
        M: 'a,
    {
    }
}
