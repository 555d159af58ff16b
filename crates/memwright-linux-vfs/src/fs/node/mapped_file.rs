//! An open file as a memory object, which the areas of programs map.

use crate::fs::{inode::Body, open_file::OpenFile, regular::describe_object};
use core::fmt;
use memwright::object::{
    Asker, CachedRun, CollapseError, CollapseLimits, HugeView, Leaving, Left, Mappings, Object,
    ObjectError, ObjectIdentity, Put,
};
use memwright::{FolioOrders, PolicyId};
use memwright_linux_abi::{M, Memory};
use memwright_table::{Frame, OutOfMemory, PageSize};

/// An area that maps a file holds a reference to the open file, as in Linux. Two areas therefore merge only if they
/// were mapped through the same open file. The file stays open while it is mapped.
impl Object<M> for OpenFile {
    fn frame(&self, memory: &Memory, index: u64, write: bool) -> Result<Frame, ObjectError> {
        self.pages()?.frame(memory, index, write)
    }

    fn cached(&self, memory: &Memory, index: u64) -> Option<Frame> {
        self.pages().ok()?.cached(memory, index)
    }

    fn holds(&self, memory: &Memory, index: u64) -> bool {
        self.pages().is_ok_and(|pages| pages.holds(memory, index))
    }

    fn find(&self, memory: &Memory, index: u64) -> Result<Option<Frame>, ObjectError> {
        self.pages()?.find(memory, index)
    }

    fn swapped(&self, first: u64, pages: u64) -> u64 {
        self.pages()
            .map_or(0, |object| object.swapped(first, pages))
    }

    fn bring_in(&self, memory: &Memory, index: u64, most: u64) -> Result<u64, ObjectError> {
        self.pages()?.bring_in(memory, index, most)
    }

    fn begin_bring_in(
        &self,
        memory: &Memory,
        index: u64,
        most: u64,
        asker: Asker,
    ) -> Result<u64, ObjectError> {
        self.pages()?.begin_bring_in(memory, index, most, asker)
    }

    fn asked_for(&self, first: u64, pages: u64) -> u64 {
        self.pages()
            .map_or(0, |object| object.asked_for(first, pages))
    }

    fn send_out(&self, memory: &Memory, leaving: &Leaving) -> Left {
        let pages = self.pages();
        pages.map_or(Left::default(), |pages| pages.send_out(memory, leaving))
    }

    fn cached_run(&self, memory: &Memory, first: u64, wanted: u64, frames: &mut [Frame]) -> u64 {
        let pages = self.pages();
        pages.map_or(0, |pages| pages.cached_run(memory, first, wanted, frames))
    }

    fn frame_and_run(
        &self,
        memory: &Memory,
        index: u64,
        run: &mut CachedRun,
    ) -> Result<Frame, ObjectError> {
        self.pages()?.frame_and_run(memory, index, run)
    }

    fn contains(&self, index: u64) -> bool {
        self.pages().is_ok_and(|pages| pages.contains(index))
    }

    fn put(
        &self,
        memory: &Memory,
        index: u64,
        frame: Frame,
        map: &mut dyn FnMut() -> bool,
    ) -> Result<Put, ObjectError> {
        self.pages()?.put(memory, index, frame, map)
    }

    fn identity(&self) -> ObjectIdentity {
        let inode = self.inode();
        ObjectIdentity {
            device: inode.file_system.device.encode(),
            inode: inode.number,
        }
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        describe_object(&self.entry, out)
    }

    fn mappings(&self) -> &Mappings<M> {
        match &self.inode().body {
            Body::Regular(regular) => regular.pages().mappings(),
            _ => unreachable!("only regular files hand themselves out as objects"),
        }
    }

    fn remove(&self, memory: &Memory, first: u64, pages: u64) -> Result<bool, ObjectError> {
        self.pages()?.remove(memory, first, pages)
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn folio(&self, memory: &Memory, first: u64, asked: bool) -> Option<Frame> {
        self.pages().ok()?.folio(memory, first, asked)
    }

    fn part(&self, first: u64) {
        if let Ok(pages) = self.pages() {
            pages.part(first);
        }
    }

    fn fill_folio(
        &self,
        memory: &Memory,
        index: u64,
        fitting: FolioOrders,
        asked: bool,
    ) -> Option<u8> {
        self.pages().ok()?.fill_folio(memory, index, fitting, asked)
    }

    fn largest_folio(&self, memory: &Memory) -> Option<u8> {
        self.pages().ok()?.largest_folio(memory)
    }

    fn may_be_huge(&self, memory: &Memory, asked: bool) -> bool {
        let pages = self.pages();
        pages.is_ok_and(|pages| pages.may_be_huge(memory, asked))
    }

    fn collapse(&self, first: u64, limits: CollapseLimits) -> Result<(), CollapseError> {
        let pages = self.pages().map_err(|_| CollapseError::NotEligible)?;
        pages.collapse(first, limits)
    }

    fn place(&self, first: u64, pages: u64, policy: PolicyId) -> Result<bool, OutOfMemory> {
        self.pages()
            .map_or(Ok(false), |own| own.place(first, pages, policy))
    }

    fn placement(&self, index: u64) -> Option<PolicyId> {
        self.pages().ok()?.placement(index)
    }

    fn exchange(
        &self,
        memory: &Memory,
        index: u64,
        size: PageSize,
        exchange: &mut dyn FnMut(Frame) -> Option<Frame>,
    ) {
        if let Ok(pages) = self.pages() {
            pages.exchange(memory, index, size, exchange);
        }
    }

    fn huge(&self) -> Option<HugeView<'_, M>> {
        self.pages().ok()?.huge()
    }
}

impl OpenFile {
    fn pages(&self) -> Result<&dyn Object<M>, ObjectError> {
        match &self.inode().body {
            Body::Regular(regular) => Ok(regular.pages()),
            _ => Err(ObjectError::Io),
        }
    }
}
