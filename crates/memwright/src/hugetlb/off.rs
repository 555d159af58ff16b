//! hugetlb without the feature `hugetlb`: no area has hugetlb pages, and a file of huge pages has no pages.

use core::fmt;
use memwright_table::{CpuId, Cursor, Frame, Machine, OutOfFrames, PageRange, Present};

use crate::mm::core::Core;
use crate::mm::huge_file::{HugeFile, PrivateHuge};
use crate::mm::mappings::Mappings;
use crate::mm::memory::Memory;
use crate::mm::object::{Object, ObjectIdentity};
use crate::mm::space::Area;
use crate::types::error::{AdviseError, ObjectError};

impl<M: Machine> Area<M> {
    /// Does nothing: no area has a reservation.
    pub(crate) fn forget_reservation(&self) {}
}

impl<M: Machine> Core<M> {
    /// Refuses the advice: no area has hugetlb pages.
    pub(crate) fn drop_hugetlb(
        &self,
        _area: &Area<M>,
        range: PageRange,
    ) -> Result<(), AdviseError> {
        Err(AdviseError::NotApplicable(range.start.address()))
    }

    /// Fails: no page is a hugetlb page.
    pub(crate) fn copy_pinned_hugetlb(
        &self,
        _cpu: CpuId,
        _area: &Area<M>,
        _watched: bool,
        _to: &mut Cursor<'_, M>,
        _page: Present,
    ) -> Result<(), OutOfFrames> {
        Err(OutOfFrames)
    }
}

impl<M: Machine> HugeFile<M> {
    /// Does nothing: the size stays 0.
    pub fn set_size(&self, _size: u64) {}

    /// Does nothing: there is no page.
    pub fn punch(&self, _start: u64, _end: u64) {}
}

impl<M: Machine> Object<M> for HugeFile<M> {
    fn frame(&self, _memory: &Memory<M>, _index: u64, _write: bool) -> Result<Frame, ObjectError> {
        Err(ObjectError::BeyondEnd)
    }

    fn cached(&self, _memory: &Memory<M>, _index: u64) -> Option<Frame> {
        None
    }

    fn contains(&self, _index: u64) -> bool {
        false
    }

    fn identity(&self) -> ObjectIdentity {
        self.identity
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str(self.name)
    }

    fn mappings(&self) -> &Mappings<M> {
        &self.mappings
    }

    fn is_memory(&self) -> bool {
        true
    }
}

impl<M: Machine> Object<M> for PrivateHuge<M> {
    fn frame(&self, _memory: &Memory<M>, _index: u64, _write: bool) -> Result<Frame, ObjectError> {
        match self.never {}
    }

    fn cached(&self, _memory: &Memory<M>, _index: u64) -> Option<Frame> {
        match self.never {}
    }

    fn contains(&self, _index: u64) -> bool {
        match self.never {}
    }

    fn identity(&self) -> ObjectIdentity {
        match self.never {}
    }

    fn describe(&self, _out: &mut dyn fmt::Write) -> fmt::Result {
        match self.never {}
    }

    fn mappings(&self) -> &Mappings<M> {
        match self.never {}
    }
}
