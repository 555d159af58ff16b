//! Writes the breakpoints of probes to the memory of processes, and removes them.

use super::{BREAKPOINT, Place, Probe, Probes};
use crate::process::{Process, Tasks};
use alloc::sync::Arc;
use memwright::{Area, AreaFlags, Rights};
use memwright_linux_abi::{M, Space};
use memwright_table::{OutOfMemory, VirtAddr};

impl Probes {
    /// Adds a probe to the list, and sets its breakpoint at each address at which its process maps the place of the
    /// probe. After later mappings, [`mapped`](Self::mapped) sets the breakpoint.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn set(&self, tasks: &Tasks, probe: &Arc<Probe>) -> Result<(), OutOfMemory> {
        self.enter(probe)?;
        let process = tasks.process(probe.process);
        if let Some(space) = process.and_then(|process| process.space()) {
            install(&space, probe);
        }
        Ok(())
    }

    /// Removes a probe from the list. If no other probe has the same place, also removes the breakpoint from the memory
    /// of all processes: a child process has a copy of the breakpoints of its parent.
    pub fn unset(&self, tasks: &Tasks, probe: &Arc<Probe>) {
        self.leave(probe);
        let place = Place {
            file: probe.identity(),
            offset: probe.offset,
        };
        if self.first_at(place).is_some() {
            return;
        }
        for process in tasks.processes() {
            if let Some(space) = process.space() {
                each_address(&space, probe, |at| {
                    let mut first = [0];
                    let read = space.read_forced(at, &mut first);
                    if read.is_ok() && first[0] == BREAKPOINT {
                        // If the memory was unmapped in the meantime, there is no breakpoint to remove.
                        let _ = space.write_forced(at, &probe.instruction[..1]);
                    }
                });
            }
        }
    }

    /// Sets the breakpoints of all probes of `process`. Called after the process has mapped or executed a file.
    #[cold]
    pub fn mapped(&self, process: &Process) {
        if let Some(space) = process.space() {
            let mut before = None;
            while let Some(probe) = self.next_of_process(process.id, before.as_ref()) {
                install(&space, &probe);
                before = Some(probe);
            }
        }
    }
}

/// Sets the breakpoint at each address at which `space` maps the place of the probe. Skips an address if there is no
/// memory for a private copy of its page.
fn install(space: &Arc<Space>, probe: &Probe) {
    each_address(space, probe, |at| {
        let _ = space.write_forced(at, &[BREAKPOINT]);
    });
}

/// Calls `act` with each address at which a private code area of `space` maps the place of the probe. The address space
/// is not locked during the call.
fn each_address(space: &Arc<Space>, probe: &Probe, mut act: impl FnMut(VirtAddr)) {
    let wanted = probe.identity();
    let mut from = VirtAddr::new(0);
    loop {
        let mut found = None;
        space.areas_from(from, &mut |area| {
            let (first, bytes) = extent(area);
            let shown = area
                .object()
                .is_some_and(|object| object.identity() == wanted);
            if takes_probes(area) && shown && (first..first + bytes).contains(&probe.offset) {
                let start = area.start().address().as_u64();
                let at = VirtAddr::new(start + (probe.offset - first));
                found = Some((at, area.end().address()));
            }
            found.is_none()
        });
        let Some((at, end)) = found else {
            return;
        };
        act(at);
        from = end;
    }
}

/// Returns the offset of the area's first byte in its object, and the length of the area, both in bytes.
fn extent(area: &Area<M>) -> (u64, u64) {
    let pages = area.end().number() - area.start().number();
    (area.offset_of(area.start()) * 4096, pages * 4096)
}

/// Returns whether breakpoints can be set in an area: it contains code that its process cannot write (Linux 7.2
/// `kernel/events/uprobes.c`, `valid_vma`).
fn takes_probes(area: &Area<M>) -> bool {
    !area.is_shared()
        && !area.flags().contains(AreaFlags::HUGETLB)
        && area.max_rights().contains(Rights::EXECUTE)
        && !area.rights().contains(Rights::WRITE)
}

/// Returns the place in a file that is mapped at an address; `None` if the area there cannot have breakpoints.
pub fn place_of(space: &Space, address: u64) -> Option<Place> {
    space.find(VirtAddr::new(address), |area| {
        let start = area.start().address().as_u64();
        if address < start || !takes_probes(area) {
            return None;
        }
        let file = area.object()?.identity();
        let offset = extent(area).0 + (address - start);
        Some(Place { file, offset })
    })?
}
