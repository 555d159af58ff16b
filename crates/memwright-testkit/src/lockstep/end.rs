//! The end of a script: all memory is read once more, and no frame, slot or commit charge is allowed to remain.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use memwright::Row;
use memwright_table::{CpuId, FrameKind};

use super::kinds::{Kind, disagree, kind_of_signal};
use super::{Difference, Lockstep, address, bytes};
use crate::machine::TestMachine;
use crate::model::PAGE;
use crate::terms::Intent;

/// The name under which attempted accesses are counted.
pub(crate) const ACCESS: &str = "access";
/// The name under which page faults are counted.
pub(crate) const FAULT: &str = "page fault";

impl<M: TestMachine> Lockstep<M> {
    pub(super) fn finish(&mut self) -> Result<(), Difference> {
        self.sweep()
            .map_err(|difference| difference.at(&"at the end"))?;
        self.note_counts();
        self.leave()
            .map_err(|difference| difference.at(&"after every exit"))
    }

    /// Adds counts to the successes: of accesses, page faults, page tables that forks shared, and shared page tables
    /// that processes then copied or took over.
    fn note_counts(&mut self) {
        let (accesses, faults) = self.host.attempts();
        for (name, count) in [(ACCESS, accesses), (FAULT, faults)] {
            *self.successes.entry(name).or_default() += count;
        }
        let account = self.host.memory().account();
        for (name, row) in [
            ("share tables", Row::TablesShared),
            ("copy tables", Row::TablesCopied),
            ("take tables over", Row::TablesTaken),
        ] {
            *self.successes.entry(name).or_default() += account.count(row);
        }
    }

    /// Reads every mapped page of every process, and the page before and the page after the arena. Compares each with
    /// the model.
    fn sweep(&mut self) -> Result<(), Difference> {
        let cpu = CpuId::new(0);
        let numbers: Vec<usize> = self.processes.keys().copied().collect();
        for number in numbers {
            let mapped: Vec<u64> = self.model.rights(number).map(|(page, _)| page).collect();
            for page in mapped
                .into_iter()
                .chain([self.scale.start() - 1, self.scale.end()])
            {
                let mut real = self.read_page(number, cpu, page)?;
                if self.reclaims && real == Err(Kind::Resources) {
                    self.relieve(cpu);
                    self.find_discarded()?;
                    real = self.read_page(number, cpu, page)?;
                }
                let model = self.model.permit(number, page, Intent::Read);
                if model.is_ok() {
                    self.model.accessed(number, page);
                }
                let place = (number, cpu, bytes(page));
                let compared = real.as_ref().map_err(|kind| *kind);
                let readable = self.agree_on("last read", place, model, compared)?;
                let Some(found) = real.ok().filter(|_| readable) else {
                    continue;
                };
                if !self.model.shows(number, page, 0, &found[..]) {
                    return disagree(format!(
                        "process {number} reads on CPU {}: {}",
                        cpu.index(),
                        self.other_bytes((number, page), 0, &found[..])
                    ));
                }
            }
        }
        Ok(self.check()?)
    }

    fn read_page(
        &mut self,
        process: usize,
        cpu: CpuId,
        page: u64,
    ) -> Result<Result<Box<[u8; PAGE]>, Kind>, Difference> {
        self.reach(process, cpu, bytes(page), |process| {
            let mut contents = Box::new([0; PAGE]);
            let read = process.read(cpu, address(page), &mut *contents);
            read.map(|()| contents).map_err(kind_of_signal)
        })
    }

    /// Ends every process, deletes every file, and checks that all frames, slots and commit charges are released.
    pub(super) fn leave(&mut self) -> Result<(), Difference> {
        while let Some((number, process)) = self.processes.pop_first() {
            drop(process);
            self.model.exit(number);
            self.check()?;
        }
        self.watchers.clear();
        let memory = self.host.memory();
        let running = self.host.machine().act_as(CpuId::new(0));
        self.files.clear();
        while memory.merging().shed(memory) > 0 {}
        drop(running);
        let audit = self.host.frames().audit();
        for kind in FrameKind::ALL {
            let left = match kind {
                FrameKind::Hole
                | FrameKind::Free
                | FrameKind::Reserved
                | FrameKind::Kernel
                | FrameKind::Zero
                | FrameKind::Table => 0,
                FrameKind::Anonymous
                | FrameKind::Object
                | FrameKind::Slab
                | FrameKind::Pool
                | FrameKind::PoolAnonymous
                | FrameKind::PoolObject
                | FrameKind::Merged => audit.of(kind),
            };
            if left != 0 {
                return disagree(format!("{left} frames of kind {kind:?} are left"));
            }
        }
        let earmarked = memory.commit().committed();
        let slots = memory.swap().totals().1;
        let kept = self.device.as_ref().map_or(0, |(device, _)| device.kept());
        if (earmarked, slots, kept) != (0, 0, 0) {
            return disagree(format!(
                "{earmarked} pages are earmarked, {slots} slots in use, {kept} pages on the device"
            ));
        }
        Ok(())
    }
}
