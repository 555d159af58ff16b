//! Loads and stores by the kernel on behalf of programs: `read`, `write`, `process_vm_writev`.

use memwright_table::{CpuId, VirtAddr};

use super::access::BYTES;
use super::kinds::{Kind, agree, kind_of_fault};
use super::{Difference, Lockstep};
use crate::machine::TestMachine;
use crate::process::Process;

impl<M: TestMachine> Lockstep<M> {
    pub(super) fn kernel_read(
        &mut self,
        process: usize,
        cpu: CpuId,
        page: u8,
        offset: u16,
    ) -> Result<(), Difference> {
        let start = self.start(page, offset);
        let real = self.copied_in(process, cpu, start)?;
        self.loaded("kernel read", (process, cpu, start), real)
            .map(drop)
    }

    pub(super) fn kernel_write(
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
            process.on(cpu, |_| copy_out(process, start, &stored))
        })?;
        let model = self.store(process, start, &stored);
        if agree("kernel write", model, real)? {
            self.succeeded("kernel write");
        }
        Ok(())
    }

    /// Copies memory of one process to another process. During the copy, the CPU has the address space of the first
    /// process loaded, as in `process_vm_writev`.
    pub(super) fn transfer(
        &mut self,
        cpu: CpuId,
        (process, from): (usize, u8),
        (other, to): (usize, u8),
    ) -> Result<(), Difference> {
        let (from, to) = (self.start(from, 0), self.start(to, 0));
        let taken = self.copied_in(process, cpu, from)?;
        if !self.loaded("transfer: read", (process, cpu, from), taken)? {
            return Ok(());
        }
        let taken = taken.expect("both succeeded");
        let caller = self.processes[&process].space().clone();
        let real = self.reach(other, cpu, to, |other| {
            let _running = other.host().enter(cpu, &caller);
            copy_out(other, to, &taken)
        })?;
        let model = self.store(other, to, &taken);
        if agree("transfer", model, real)? {
            self.succeeded("transfer");
        }
        Ok(())
    }

    fn copied_in(
        &mut self,
        process: usize,
        cpu: CpuId,
        start: u64,
    ) -> Result<Result<[u8; BYTES as usize], Kind>, Difference> {
        self.reach(process, cpu, start, |process| {
            let mut found = [0; BYTES as usize];
            let read = process.on(cpu, |space| space.read(VirtAddr::new(start), &mut found));
            read.map(|()| found)
                .map_err(|(error, _)| kind_of_fault(error))
        })
    }
}

/// Stores to the memory of a process as the kernel does. The address space of the process need not be loaded.
fn copy_out<M: TestMachine>(process: &Process<M>, start: u64, bytes: &[u8]) -> Result<(), Kind> {
    let written = process.space().write(VirtAddr::new(start), bytes);
    written.map_err(|(error, _)| kind_of_fault(error))
}
