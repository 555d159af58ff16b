//! The steps that access memory: loads, stores and instruction fetches.

use alloc::format;

use memwright_table::{CpuId, VirtAddr};

use super::kinds::{Kind, disagree, kind_of_signal};
use super::{Difference, Lockstep, address, bytes};
use crate::machine::TestMachine;
use crate::model::{PAGE, Refusal};
use crate::terms::Intent;

/// The number of bytes of one load or store.
pub(super) const BYTES: u64 = 8;

impl<M: TestMachine> Lockstep<M> {
    /// Returns the byte address at which an access to a place begins.
    pub(super) fn start(&self, place: u8, offset: u16) -> u64 {
        bytes(self.scale.access(place, offset)) + u64::from(offset) % PAGE as u64
    }

    pub(super) fn read(
        &mut self,
        process: usize,
        cpu: CpuId,
        page: u8,
        offset: u16,
    ) -> Result<(), Difference> {
        let start = self.start(page, offset);
        let real = self.reach(process, cpu, start, |process| {
            let mut found = [0; BYTES as usize];
            let read = process.read(cpu, VirtAddr::new(start), &mut found);
            read.map(|()| found).map_err(kind_of_signal)
        })?;
        self.loaded("read", (process, cpu, start), real).map(drop)
    }

    /// Compares a load from `start` with the model. Returns whether the load succeeded.
    pub(super) fn loaded(
        &mut self,
        what: &'static str,
        (process, cpu, start): (usize, CpuId, u64),
        real: Result<[u8; BYTES as usize], Kind>,
    ) -> Result<bool, Difference> {
        let first = PAGE - start as usize % PAGE;
        let mut pages = start / PAGE as u64..=(start + BYTES - 1) / PAGE as u64;
        let model = pages.try_for_each(|page| self.model.permit(process, page, Intent::Read));
        for page in start / PAGE as u64..=(start + BYTES - 1) / PAGE as u64 {
            if self.model.permit(process, page, Intent::Read).is_err() {
                break;
            }
            self.model.accessed(process, page);
        }
        if !self.agree_on(what, (process, cpu, start), model, real)? {
            return Ok(false);
        }
        let found = real.expect("both succeeded");
        let (here, beyond) = found.split_at(first.min(found.len()));
        let page = start / PAGE as u64;
        for (page, offset, found) in [(page, start as usize % PAGE, here), (page + 1, 0, beyond)] {
            if !found.is_empty() && !self.model.shows(process, page, offset, found) {
                return disagree(format!(
                    "{what} by process {process} on CPU {}: {}",
                    cpu.index(),
                    self.other_bytes((process, page), offset, found)
                ));
            }
        }
        self.succeeded(what);
        Ok(true)
    }

    pub(super) fn write(
        &mut self,
        process: usize,
        cpu: CpuId,
        page: u8,
        offset: u16,
        value: u8,
    ) -> Result<(), Difference> {
        let start = self.start(page, offset);
        let stored = [value; BYTES as usize];
        let real = self.reach(process, cpu, start, |process| {
            let written = process.write(cpu, VirtAddr::new(start), &stored);
            written.map_err(kind_of_signal)
        })?;
        let model = self.store(process, start, &stored);
        if self.agree_on("write", (process, cpu, start), model, real)? {
            self.succeeded("write");
        }
        Ok(())
    }

    /// Performs a store on the model.
    pub(super) fn store(
        &mut self,
        process: usize,
        start: u64,
        stored: &[u8],
    ) -> Result<(), Refusal> {
        (start..).zip(stored).try_for_each(|(at, &value)| {
            let (page, offset) = (at / PAGE as u64, at as usize % PAGE);
            self.model.write(process, page, offset, value)
        })
    }

    pub(super) fn fetch(&mut self, process: usize, cpu: CpuId, page: u8) -> Result<(), Difference> {
        let page = self.scale.place(page);
        let real = self.reach(process, cpu, bytes(page), |process| {
            process.fetch(cpu, address(page)).map_err(kind_of_signal)
        })?;
        let model = self.model.permit(process, page, Intent::Fetch);
        if self.agree_on("fetch", (process, cpu, bytes(page)), model, real)? {
            self.model.accessed(process, page);
            self.succeeded("fetch");
        }
        Ok(())
    }
}
