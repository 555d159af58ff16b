//! The steps that access a file other than through its mappings.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use memwright::object::Object;
use memwright_table::{CpuId, Entry, Page, PageRange};

use super::kinds::disagree;
use super::{Difference, File, Lockstep, bytes};
use crate::machine::TestMachine;
use crate::script::FILE_PLACES;

impl<M: TestMachine> Lockstep<M> {
    pub(super) fn file(&self, file: u8) -> usize {
        usize::from(file) % self.files.len()
    }

    pub(super) fn object(&self, file: usize) -> Arc<dyn Object<M>> {
        match &self.files[file] {
            File::Plain(file) => file.clone(),
            File::Noted(file) => file.clone(),
        }
    }

    pub(super) fn read_file(&mut self, file: u8, index: u8) -> Result<(), Difference> {
        let file = self.file(file);
        let index = self.scale.index(index);
        let mut found = [0];
        let length = match &self.files[file] {
            File::Plain(file) => file.read_at(bytes(index), &mut found),
            File::Noted(file) => file.pages().read_at(bytes(index), &mut found),
        };
        let length = length.map_err(|_| Difference::Exhausted)?;
        let inside = index < self.model.object_pages(file);
        let expected = if inside {
            self.model.read_object(file, index, 0)
        } else {
            0
        };
        if length != usize::from(inside) || found[0] != expected {
            return disagree(format!(
                "file read gave {length} bytes, {found:?}, not {expected}"
            ));
        }
        self.succeeded("read file");
        Ok(())
    }

    pub(super) fn write_file(
        &mut self,
        cpu: CpuId,
        file: u8,
        index: u8,
        value: u8,
    ) -> Result<(), Difference> {
        let _running = self.host.machine().act_as(cpu);
        let file = self.file(file);
        let index = self.scale.index(index);
        if index >= self.model.object_pages(file) {
            return Ok(());
        }
        let written = match &self.files[file] {
            File::Plain(file) => file.write_at(bytes(index), &[value]),
            File::Noted(file) => file.write_at(bytes(index), &[value]),
        };
        if written.is_err() {
            return Err(Difference::Exhausted);
        }
        if !matches!(written, Ok(1)) {
            return disagree(format!("file write gave {written:?}"));
        }
        self.model.write_object(file, index, 0, value);
        self.succeeded("write file");
        Ok(())
    }

    pub(super) fn truncate(&mut self, cpu: CpuId, file: u8, pages: u8) {
        let _running = self.host.machine().act_as(cpu);
        let file = self.file(file);
        let pages = u64::from(pages) % (FILE_PLACES + 1) * self.scale.0;
        match &self.files[file] {
            File::Plain(file) => file.set_size(bytes(pages)).expect("whole pages"),
            File::Noted(file) => file.truncate(pages),
        }
        self.model.truncate(file, pages);
        self.succeeded("truncate");
    }

    pub(super) fn punch(&mut self, cpu: CpuId, file: u8, index: u8, pages: u8) {
        let _running = self.host.machine().act_as(cpu);
        let file = self.file(file);
        let index = self.scale.index(index);
        let pages = u64::from(pages).clamp(1, FILE_PLACES) * self.scale.0;
        match &self.files[file] {
            File::Plain(file) => {
                let punched = file.punch(bytes(index), bytes(index + pages));
                punched.expect("whole pages");
            }
            File::Noted(file) => file.punch(index, pages),
        }
        self.model.punch(file, index, pages);
        self.find_lost_zeroes(file, index, pages);
        self.succeeded("punch");
    }

    /// Determines which zero-filled pages of private mappings a punched hole removed: those that mapped the zero page,
    /// not a private copy.
    fn find_lost_zeroes(&mut self, file: usize, index: u64, pages: u64) {
        for (&number, process) in &self.processes {
            let filled = self.model.filled_with_zeroes(number, file, index, pages);
            for page in filled.collect::<Vec<_>>() {
                let range = PageRange::single(Page::new(page));
                let entry = process.space().table().look(range).entry().entry;
                match entry {
                    Entry::Empty | Entry::Marker(_) => self.model.lost(number, page),
                    Entry::Present(_) | Entry::Swapped(_) | Entry::Migrating(_) => {}
                }
            }
        }
    }

    pub(super) fn clean(&mut self, cpu: CpuId, file: u8) {
        let _running = self.host.machine().act_as(cpu);
        let file = self.file(file);
        if let File::Noted(file) = &self.files[file] {
            if file.clean() > 0 {
                self.succeeded("clean");
            }
        }
    }
}
