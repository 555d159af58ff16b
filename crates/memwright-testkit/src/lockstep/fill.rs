//! The steps of a userfaultfd handler that fills missing pages.

use alloc::format;

use memwright::error::MoveError;
use memwright::uffd::{Fill, Relocation};
use memwright_table::{CpuId, Page};

use super::access::BYTES;
use super::kinds::{Kind, agree, disagree, kind_of_fill};
use super::{Difference, Lockstep};
use crate::machine::TestMachine;
use crate::model::PAGE;
use crate::process::Process;
use crate::script::{Range, Watcher};

impl<M: TestMachine> Lockstep<M> {
    /// Accesses the bytes that start at `start`. If the access finds a missing page that a userfaultfd handler must
    /// fill, fills the page with zeroes and retries.
    pub(super) fn reach<T>(
        &mut self,
        process: usize,
        cpu: CpuId,
        start: u64,
        mut access: impl FnMut(&Process<M>) -> Result<T, Kind>,
    ) -> Result<Result<T, Kind>, Difference> {
        loop {
            let outcome = access(&self.processes[&process]);
            let refused = matches!(outcome, Err(Kind::Bus));
            if !refused || !self.fill_missing(process, cpu, start)? {
                return Ok(outcome);
            }
        }
    }

    /// Fills the first missing page of an access with zeroes. Returns false if no page is missing.
    fn fill_missing(&mut self, process: usize, cpu: CpuId, start: u64) -> Result<bool, Difference> {
        for page in start / PAGE as u64..=(start + BYTES - 1) / PAGE as u64 {
            if !self.model.is_filled(process, page, 1) {
                continue;
            }
            let protect = self.model.refuses_stores(process, page);
            let zeroes = self.real_fill(process, cpu, page, Fill::Zeroes, protect);
            let filled = match zeroes {
                // Mapping the zero page does not replace a marker; mapping a copy does.
                Err(Kind::Exists) => {
                    self.real_fill(process, cpu, page, Fill::Bytes(&[0; PAGE]), protect)
                }
                Ok(()) | Err(_) => zeroes,
            };
            match filled {
                Ok(()) => {}
                Err(Kind::Resources) => return Err(Difference::Exhausted),
                Err(_) => continue,
            }
            if let Err(refusal) = self.model.fill(process, page, 0, protect) {
                return disagree(format!("page {page:#x} is missing in spite of {refusal:?}"));
            }
            self.succeeded("fill of a missing page");
            return Ok(true);
        }
        Ok(false)
    }

    fn real_fill(
        &self,
        process: usize,
        cpu: CpuId,
        page: u64,
        fill: Fill<'_>,
        protect: bool,
    ) -> Result<(), Kind> {
        let filled = self.processes[&process].on(cpu, |space| {
            space.uffd().fill(Page::new(page), fill, protect)
        });
        filled.map_err(kind_of_fill)
    }

    pub(super) fn fill(
        &mut self,
        process: usize,
        cpu: CpuId,
        page: u8,
        value: u8,
        protect: bool,
    ) -> Result<(), Difference> {
        let page = self.scale.place(page);
        let bytes = [value; PAGE];
        let fill = match value {
            0 => Fill::Zeroes,
            _ => Fill::Bytes(&bytes),
        };
        let real = self.real_fill(process, cpu, page, fill, protect);
        if real == Err(Kind::Exists) {
            // A load may have populated the page. The model does not track which pages are present, so it accepts the
            // error.
            self.succeeded("fill refused");
            return Ok(());
        }
        let model = self.model.fill(process, page, value, protect);
        if agree("fill", model, real)? {
            self.succeeded("fill");
        }
        Ok(())
    }

    /// Moves pages as `UFFDIO_MOVE` does. A page that another process maps too does not move, and ends the call. The
    /// model checks each page that moves: it must be private to this process, and must not replace a page at the
    /// target.
    pub(super) fn relocate(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        to: u8,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let relocation = Relocation {
            from: Page::new(from),
            to: Page::new(self.scale.place(to)),
            pages,
            holes: true,
        };
        // A target that is registered for read-write protection has the userfaultfd of the kind `Accesses`. For every
        // other target, use the one of the kind `Fills`: if the target is not registered with it, the call fails.
        let to = relocation.to.number();
        let kind = match self.model.armed(process, to, 1).next() {
            Some(_) => Watcher::Accesses,
            None => Watcher::Fills,
        };
        let watch = self.watcher(process, kind)?;
        let (done, outcome) =
            self.processes[&process].on(cpu, |space| space.uffd().relocate(&relocation, &watch));
        for page in 0..done {
            let (from, to) = (from + page, relocation.to.number() + page);
            if let Err(refusal) = self.model.relocate(process, from, to) {
                return disagree(format!(
                    "page {from:#x} went to {to:#x} in spite of {refusal:?}"
                ));
            }
            self.succeeded("relocate");
        }
        match outcome {
            Err(MoveError::OutOfMemory) => Err(Difference::Exhausted),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
