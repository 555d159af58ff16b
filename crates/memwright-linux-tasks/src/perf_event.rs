//! The open file behind a descriptor of `perf_event_open`: the hit count of a probe.

use crate::{
    probes::{Probe, Probes},
    process::Tasks,
};
use alloc::sync::Arc;
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::fs::{
    abilities::Positions,
    caller::Caller,
    open_file::{File, OpenFile},
    open_kind::OpenKind,
    transfer::Sink,
};
use memwright_table::OutOfMemory;

/// The number in `/sys/bus/event_source/devices/uprobe/type`. Linux assigns this number at boot, after those of the
/// types in `linux/perf_event.h` and of the hardware.
pub const UPROBE: u32 = 9;

/// `_IO('$', number)` of `linux/perf_event.h`.
const fn command(number: u32) -> u32 {
    0x2400 | number
}

/// `PERF_EVENT_IOC_ENABLE`.
const ENABLE: u32 = command(0);
/// `PERF_EVENT_IOC_DISABLE`.
const DISABLE: u32 = command(1);
/// `PERF_EVENT_IOC_RESET`.
const RESET: u32 = command(3);

/// An open event that counts the hits of a probe. The probe is installed as long as the file is open.
pub struct EventFile {
    probes: &'static Probes,
    tasks: &'static Tasks,
    probe: Arc<Probe>,
}

impl EventFile {
    /// Installs `probe` and returns the open event that counts its hits.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(
        probes: &'static Probes,
        tasks: &'static Tasks,
        probe: Probe,
    ) -> Result<Self, OutOfMemory> {
        let probe = Arc::new(probe);
        probes.set(tasks, &probe)?;
        Ok(Self {
            probes,
            tasks,
            probe,
        })
    }
}

impl Drop for EventFile {
    fn drop(&mut self) {
        self.probes.unset(self.tasks, &self.probe);
    }
}

impl File for EventFile {
    fn counted_as(&self) -> OpenKind {
        OpenKind::Performance
    }

    fn positions(&self) -> Positions {
        Positions::Refused
    }

    fn read(
        &self,
        _caller: &dyn Caller,
        _open: &OpenFile,
        _position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        let count = self.probe.hits().to_le_bytes();
        if sink.left() < count.len() {
            return Err(Errno::ENOSPC);
        }
        sink.put(&count)
    }

    fn control(
        &self,
        _caller: &dyn Caller,
        _open: &OpenFile,
        command: u32,
        _argument: u64,
    ) -> Result<u64, Errno> {
        match command {
            ENABLE => self.probe.enable(true),
            DISABLE => self.probe.enable(false),
            RESET => self.probe.reset(),
            _ => return Err(Errno::ENOTTY),
        }
        Ok(0)
    }
}
