//! The object of all mappings of device memory, with the physical frame number as the index of a page, like Linux's
//! `/dev/mem` (`drivers/char/mem.c`).

use alloc::sync::Arc;
use core::fmt;
use memwright_table::{Frame, Machine};

use crate::mm::mappings::Mappings;
use crate::mm::memory::Memory;
use crate::mm::object::{Object, ObjectIdentity};
use crate::types::error::ObjectError;

/// The object of all device memory of a machine.
///
/// The object never returns a frame, because a frame of device memory has no metadata, so no reference to it can exist.
/// Mapping fills all entries at once, as `remap_pfn_range` of Linux does (`mm/memory.c`). If an entry is nevertheless
/// missing, a fault at it is an access beyond the object.
pub(crate) struct DeviceMemory<M: Machine> {
    mappings: Mappings<M>,
}

impl<M: Machine> Memory<M> {
    /// Returns the object of all device memory. The first call creates it.
    pub(crate) fn device(&self) -> Arc<dyn Object<M>> {
        let mut device = self.device.lock();
        let known = device.clone().map(Arc::downcast::<DeviceMemory<M>>);
        if let Some(Ok(known)) = known {
            return known;
        }
        #[expect(clippy::disallowed_methods, reason = "once for a machine")]
        let new = Arc::new(DeviceMemory {
            mappings: Mappings::new(),
        });
        *device = Some(new.clone());
        new
    }
}

impl<M: Machine> Object<M> for DeviceMemory<M> {
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
        ObjectIdentity::default()
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("/dev/mem")
    }

    fn mappings(&self) -> &Mappings<M> {
        &self.mappings
    }

    fn merges_areas(&self) -> bool {
        false
    }
}
