//! Swap-in without the feature `swap`: no entry names a slot.

use memwright_table::{Cursor, Machine, Page, PageRange, Swapped};

use crate::fault::attempt::Fault;
use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::object::Object;
use crate::mm::space::{AddressSpace, Area};
use crate::swap::asker::Asker;
use crate::types::access::FaultKind;
use crate::types::error::{FaultError, ObjectError};
use crate::types::purpose::{Finished, Purpose};

impl<'a, M: Machine> Fault<'a, M> {
    /// Denies the access.
    pub(super) fn swap_in(
        self,
        _cursor: Cursor<'a, M>,
        _swapped: Swapped,
    ) -> Result<FaultKind, FaultError> {
        Err(FaultError::Denied)
    }

    /// Swaps in page `index` of an object. An object of the embedder can have its own swap. Returns whether a device
    /// was read.
    pub(super) fn bring_object_in(
        self,
        object: &dyn Object<M>,
        index: u64,
    ) -> Result<bool, ObjectError> {
        let asker = Asker {
            space: self.core.space_number(),
            page: self.page,
            wanted: 1,
        };
        Ok(object.begin_bring_in(&self.core.memory, index, 1, asker)? > 0)
    }
}

impl<M: Machine> Core<M> {
    /// Returns [`Finished::Nothing`]: no read was put off.
    pub(crate) fn finish_reads(&self, _asked: Page, _purpose: Purpose) -> Finished {
        Finished::Nothing
    }

    /// Returns [`Finished::Nothing`]: no read was put off.
    pub(crate) fn await_reads(&self, _asked: Page, _purpose: Purpose) -> Finished {
        Finished::Nothing
    }

    /// Returns false.
    pub(super) fn is_in_swap(&self, _page: Page) -> bool {
        false
    }

    /// Swaps in nothing.
    pub(crate) fn bring_back(
        &self,
        _areas: &Areas<M>,
        _area: &Area<M>,
        _range: PageRange,
        _device: Option<usize>,
        _left: &mut u64,
    ) -> Result<Option<Page>, (Page, FaultError)> {
        Ok(None)
    }

    /// Counts nothing.
    pub(crate) fn note_read_back(&self, _kind: FaultKind) {}
}

impl<M: Machine> AddressSpace<M> {
    /// Swaps in nothing. Returns `None`, as at the end of the address space.
    ///
    /// # Errors
    /// None.
    pub fn bring_back(
        &self,
        _device: usize,
        _from: Page,
        _most: u64,
    ) -> Result<Option<Page>, FaultError> {
        Ok(None)
    }
}

/// Does nothing: no thread reads a page from swap.
pub(super) fn wait_a_moment<H>() {}
