//! The steps that enable and disable a swap device.

use alloc::borrow::ToOwned;
use alloc::format;

use memwright::FaultError;
use memwright::ObjectPlace;
use memwright::object::ObjectError;
use memwright_table::{CpuId, Page};

use super::kinds::disagree;
use super::{Difference, Lockstep};
use crate::machine::TestMachine;

impl<M: TestMachine> Lockstep<M> {
    pub(super) fn swap_on(&mut self, cpu: CpuId) -> Result<(), Difference> {
        let Some((device, number @ None)) = &mut self.device else {
            return Ok(());
        };
        let _running = self.host.machine().act_as(cpu);
        let added = self.host.memory().add_swap(device.clone(), 0);
        *number = added.map_err(|_| Difference::Exhausted)?;
        self.succeeded("swap on");
        Ok(())
    }

    /// Disables the swap device. Either all pages are swapped in, or memory runs out and the device stays in use.
    pub(super) fn swap_off(&mut self, cpu: CpuId) -> Result<(), Difference> {
        let Some((device, Some(number))) = self.device.clone() else {
            return Ok(());
        };
        let memory = self.host.memory();
        memory.close_swap(number, true);
        for process in self.processes.values() {
            let back =
                |space: &crate::process::Space<M>| space.bring_back(number, Page::new(0), u64::MAX);
            match process.on(cpu, back) {
                Ok(None) => {}
                Err(FaultError::OutOfMemory) => {
                    memory.close_swap(number, false);
                    self.succeeded("swap off refused");
                    return Ok(());
                }
                other => return disagree(format!("a device is to be empty: {other:?}")),
            }
        }
        let _running = self.host.machine().act_as(cpu);
        match memory.bring_objects_back(number, &mut ObjectPlace::default(), u64::MAX) {
            Ok(true) => {}
            Err(ObjectError::OutOfMemory) => {
                memory.close_swap(number, false);
                self.succeeded("swap off refused");
                return Ok(());
            }
            other => return disagree(format!("a device is to be empty: {other:?}")),
        }
        if !memory.remove_swap(number) {
            return disagree("slots of a device are in use that no page is in".to_owned());
        }
        if device.kept() != 0 {
            return disagree(format!("a device keeps {} pages", device.kept()));
        }
        self.device = Some((device, None));
        self.succeeded("swap off");
        Ok(())
    }
}
