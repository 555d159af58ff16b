//! Runs a script on the memory manager and on the model, and compares after each step.

mod access;
mod area;
mod armed;
mod check;
mod copies;
mod end;
mod file;
mod fill;
mod frames;
mod kinds;
mod merge;
mod nodes;
mod process;
mod reclaim;
mod remap;
mod report;
mod seen;
mod state;
mod swap;
mod tracking;

pub(crate) use end::{ACCESS, FAULT};
pub use seen::Seen;
pub use state::{Difference, Lockstep, Successes};

use alloc::format;
use alloc::vec::Vec;

use memwright_table::CpuId;

use crate::machine::TestMachine;
use crate::script::{ARENA, Action, Range, Script, Step};
use crate::terms::Remap;
use state::{File, address, bytes, model_rights, real_rights};

/// The maximum number of attempts at a step that runs out of memory.
const TRIES: usize = 4;

impl<M: TestMachine> Lockstep<M> {
    /// Runs all steps, and compares the memory manager with the model after each. At the end every process reads all of
    /// its memory and exits. Returns the number of successful steps of each kind.
    ///
    /// # Errors
    /// The first difference, with the step at which it was found.
    pub fn run(mut self, script: &Script) -> Result<Successes, Difference> {
        let outcome = self.run_steps(script);
        if cfg!(not(feature = "std")) && outcome.is_err() {
            // The state may be inconsistent, so that a drop would panic, which nothing can catch.
            core::mem::forget(self);
        }
        outcome
    }

    fn run_steps(&mut self, script: &Script) -> Result<Successes, Difference> {
        for (number, step) in script.0.iter().enumerate() {
            let outcome = self.step_or_reclaim(step);
            if self.reclaims && outcome == Err(Difference::Exhausted) {
                return self.end_exhausted();
            }
            outcome
                .and_then(|()| Ok(self.check()?))
                .map_err(|difference| difference.at(&format!("step {number} ({step:?})")))?;
        }
        match self.finish() {
            Err(Difference::Exhausted) if self.reclaims => self.end_exhausted(),
            outcome => outcome.map(|()| core::mem::take(&mut self.successes)),
        }
    }

    /// Like [`run`](Self::run), for a caller that has injected a failed allocation. Before the final comparison,
    /// `disarm` removes the injection. A step that runs out of memory must change nothing, and must succeed when it is
    /// retried. Returns the number of steps that ran out of memory.
    ///
    /// # Errors
    /// Like [`run`](Self::run).
    pub fn run_failing(mut self, script: &Script, disarm: &dyn Fn()) -> Result<u64, Difference> {
        let mut exhausted = 0;
        for (number, step) in script.0.iter().enumerate() {
            let before = self.model.clone();
            let mut outcome = self.step(step);
            if outcome == Err(Difference::Exhausted) {
                exhausted += 1;
                self.model = before;
                // If one of these steps fails, the areas below the failing address stay changed, as on Linux.
                let stands = matches!(
                    step.action,
                    Action::Protect(..)
                        | Action::Advise(..)
                        | Action::Watch(..)
                        | Action::Unwatch(..)
                        | Action::WriteProtect(..)
                        | Action::Scan(..)
                        | Action::Relocate(..)
                );
                outcome = if stands {
                    Ok(())
                } else {
                    self.check().map_err(Difference::from)
                }
                .and_then(|()| self.step(step));
            }
            outcome
                .and_then(|()| Ok(self.check()?))
                .map_err(|difference| difference.at(&format!("step {number} ({step:?})")))?;
        }
        disarm();
        self.finish()?;
        Ok(exhausted)
    }

    /// Performs a step. If it runs out of memory and `reclaims` is set, reclaims pages and retries the step.
    fn step_or_reclaim(&mut self, step: &Step) -> Result<(), Difference> {
        if !self.reclaims {
            return self.step(step);
        }
        for _ in 0..TRIES {
            let before = self.model.clone();
            match self.step(step) {
                Err(Difference::Exhausted) => self.model = before,
                outcome => return outcome,
            }
            self.relieve(CpuId::new(0));
            self.find_discarded()?;
        }
        Err(Difference::Exhausted)
    }

    /// Returns the `mremap` request that resizes a range to `pages` places.
    fn resizing(&self, range: Range, pages: u8) -> Remap {
        let (from, old) = self.scale.range(range);
        Remap {
            from,
            pages: old,
            new_pages: u64::from(pages).clamp(1, ARENA) * self.scale.0,
            to: None,
            keep: false,
        }
    }

    /// Returns the `mremap` request that moves a range to place `to` (`MREMAP_FIXED`).
    fn moving(&self, range: Range, to: u8, keep: bool) -> Remap {
        let (from, pages) = self.scale.range(range);
        Remap {
            from,
            pages,
            new_pages: pages,
            to: Some(self.scale.place(to)),
            keep,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Difference> {
        let alive: Vec<usize> = self.processes.keys().copied().collect();
        let process = alive[usize::from(step.process) % alive.len()];
        let cpu = CpuId::new(u16::from(step.cpu) % self.host.cpus() as u16);
        match step.action {
            Action::Map(range, rights, what, populate) => {
                self.map(process, cpu, range, rights, what, populate)?;
            }
            Action::Unmap(range) => self.unmap(process, cpu, range)?,
            Action::Seal(range) => self.seal(process, cpu, range)?,
            Action::Protect(range, rights) => self.protect(process, cpu, range, rights)?,
            Action::Resize(range, pages) => {
                self.remap(process, cpu, self.resizing(range, pages))?;
            }
            Action::Move(range, to, keep) => {
                self.remap(process, cpu, self.moving(range, to, keep))?;
            }
            Action::Advise(range, advice) => self.advise(process, cpu, range, advice)?,
            Action::Fork => self.fork(process, cpu)?,
            Action::Exit if alive.len() > 1 => self.exit(process),
            Action::Exit => {}
            Action::Read(page, offset) => self.read(process, cpu, page, offset)?,
            Action::Write(page, offset, value) => self.write(process, cpu, page, offset, value)?,
            Action::Fetch(page) => self.fetch(process, cpu, page)?,
            Action::ReadFile(file, index) => self.read_file(file, index)?,
            Action::WriteFile(file, index, value) => self.write_file(cpu, file, index, value)?,
            Action::Truncate(file, pages) => self.truncate(cpu, file, pages),
            Action::Punch(file, index, pages) => self.punch(cpu, file, index, pages),
            Action::Clean(file) => self.clean(cpu, file),
            Action::Watch(range, watcher) => self.watch(process, cpu, range, watcher)?,
            Action::Unwatch(range, watcher) => self.unwatch(process, cpu, range, watcher)?,
            Action::WriteProtect(range, watcher, on) => {
                self.write_protect(process, cpu, range, watcher, on)?;
            }
            Action::ReadWriteProtect(range, on) => {
                self.read_write_protect(process, cpu, range, on)?;
            }
            Action::CountAccesses(on) => self.count_accesses(process, cpu, on)?,
            Action::ScanAccessed(range) => self.scan_accessed(process, cpu, range)?,
            Action::Scan(range, protect) => self.scan(process, cpu, range, protect)?,
            Action::ClearSoftDirty => self.clear_soft_dirty(process, cpu),
            Action::Collapse(range) => self.collapse(process, cpu, range)?,
            Action::Split(range, order) => self.split(process, cpu, range, order),
            Action::KernelRead(page, offset) => self.kernel_read(process, cpu, page, offset)?,
            Action::KernelWrite(page, offset, value) => {
                self.kernel_write(process, cpu, page, offset, value)?;
            }
            Action::Transfer(from, to, other) => {
                let other = alive[usize::from(other) % alive.len()];
                self.transfer(cpu, (process, from), (other, to))?;
            }
            Action::Reclaim => self.reclaim(cpu),
            Action::Swap(true) => self.swap_on(cpu)?,
            Action::Swap(false) => self.swap_off(cpu)?,
            Action::Merge => self.merge(cpu),
            Action::Bind(range, node) => self.bind(process, cpu, range, node)?,
            Action::Migrate(range, node) => self.migrate(process, cpu, range, node)?,
            Action::Hint => self.hint(process, cpu),
            Action::Fill(page, value, protect) => self.fill(process, cpu, page, value, protect)?,
            Action::Relocate(range, to) => self.relocate(process, cpu, range, to)?,
        }
        Ok(())
    }
}
