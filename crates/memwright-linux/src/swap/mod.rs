//! Swap devices: compressed memory, and which of them are in use.

mod store;
mod zram;

use crate::{Memory, errno::Errno};
use alloc::{string::String, sync::Arc};
use memwright::SwapDevice;
use memwright_table::PAGE_SIZE;

/// A device that the command asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes.
    pub size: u64,
}

impl Request {
    /// Reads `zram:BYTES`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, size) = text.split_once(':')?;
        let size = size.parse().ok()?;
        (kind == "zram").then_some(Self { size })
    }
}

/// Makes the devices of a run and lets pages go out to them.
///
/// # Errors
/// `ENOMEM`.
pub fn start(memory: &Memory, requests: &[Request]) -> Result<(), Errno> {
    let frames = memory.frames();
    if !requests.is_empty() {
        // Pages leave when there is next to no memory, and what keeps them needs some.
        frames.low_water(2 * frames.reserve());
    }
    for request in requests {
        let slots = u32::try_from(request.size / PAGE_SIZE as u64).unwrap_or(u32::MAX);
        let device = zram::Zram::new(frames, slots).map_err(|_| Errno::ENOMEM)?;
        let device: Arc<dyn SwapDevice<crate::M>> = Arc::new(device);
        memory.add_swap(device, -2).map_err(|_| Errno::ENOMEM)?;
    }
    Ok(())
}

/// Bytes of memory that the pages in swap take.
#[must_use]
pub fn stored(memory: &Memory) -> u64 {
    let devices = memory.swap().devices().unwrap_or_default();
    devices.iter().map(|device| device.stored).sum()
}

/// The name of a device.
#[must_use]
pub fn name(number: usize) -> String {
    alloc::format!("/dev/zram{number}")
}
