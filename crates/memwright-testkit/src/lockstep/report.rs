//! The text of a difference: the page with the number that scripts use, the bytes, and what the page tables contain.

use alloc::format;
use alloc::string::String;

use memwright_table::{Bits, CpuId, Entry, Frame, Page, PageRange};

use super::kinds::{Kind, agree};
use super::{Difference, Lockstep};
use crate::machine::TestMachine;
use crate::model::{PAGE, Refusal};

/// The maximum number of bytes that a text shows of each side.
const SHOWN: usize = 8;

const BEFORE: &str =
    "a store went to another frame, or a frame was not cleared or copied completely";

impl<M: TestMachine> Lockstep<M> {
    /// Returns how `found`, at `offset` of a page, differs from the bytes that the model has there.
    pub(super) fn other_bytes(
        &self,
        (process, page): (usize, u64),
        offset: usize,
        found: &[u8],
    ) -> String {
        let expected = self.model.bytes(process, page);
        let expected = &expected[offset..offset + found.len()];
        let differs = (0..found.len()).find(|&at| found[at] != expected[at]);
        let first = differs.unwrap_or(0);
        let end = found.len().min(first + SHOWN);
        format!(
            "{} has the bytes {:?} from byte {} on, {:?} in the model; {}",
            self.scale.name(page),
            &found[first..end],
            offset + first,
            &expected[first..end],
            self.cause((process, page), offset + first, &expected[first..end])
        )
    }

    /// Returns the frame and the state bits of a page, or `None` if the page tables map no frame there.
    fn shown(&self, process: usize, page: u64) -> Option<(Frame, Bits)> {
        let table = self.processes[&process].space().table();
        let mut cursor = table.look(PageRange::single(Page::new(page)));
        match cursor.next_filled()?.entry {
            Entry::Present(present) => Some((present.frame, present.bits)),
            Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => None,
        }
    }

    /// Returns a possible cause of the difference if the contents of a page at `offset` are not `expected`.
    fn cause(&self, (process, page): (usize, u64), offset: usize, expected: &[u8]) -> String {
        let Some((frame, _)) = self.shown(process, page) else {
            return "the page tables map no frame there: a stale translation?".into();
        };
        let mut bytes = [0; SHOWN];
        let bytes = &mut bytes[..expected.len()];
        self.host.frames().read(frame, offset, bytes);
        if bytes == expected {
            format!(
                "{frame:?}, which the page tables map, has those of the model: a stale translation?"
            )
        } else {
            format!("{frame:?}, which the page tables map, has {bytes:?}: {BEFORE}")
        }
    }

    /// Like [`agree`], for an access of a process on a CPU to the bytes from `start` on. The text of the difference
    /// names the process, the CPU and the page.
    pub(super) fn agree_on<T>(
        &self,
        what: &str,
        (process, cpu, start): (usize, CpuId, u64),
        model: Result<(), Refusal>,
        real: Result<T, Kind>,
    ) -> Result<bool, Difference> {
        let permitted = real.is_ok();
        agree(what, model, real).map_err(|difference| {
            let page = start / PAGE as u64;
            let hint = match self.shown(process, page) {
                _ if !permitted => String::new(),
                None => "; the page tables map no frame there: a stale translation?".into(),
                Some((frame, bits)) => format!(
                    "; the page tables map {frame:?} there with {bits:?}: a stale translation if that forbids the access"
                ),
            };
            match difference {
                Difference::Disagreement(text) => Difference::Disagreement(format!(
                    "process {process} on CPU {}, {}, {text}{hint}",
                    cpu.index(),
                    self.scale.name(page)
                )),
                Difference::Exhausted => Difference::Exhausted,
            }
        })
    }

    /// Checks that the frame of zeroes, which all programs share, was not written.
    pub(super) fn check_zeroes(&self) -> Result<(), String> {
        let frame = self.host.memory().zero_frame();
        let mut contents = [0; PAGE];
        self.host.frames().read(frame, 0, &mut contents);
        match contents.iter().position(|&byte| byte != 0) {
            None => Ok(()),
            Some(at) => Err(format!(
                "byte {at} of {frame:?}, the frame of zeroes that all programs share, is {:#x}: a store used a translation \
                 that forbids stores, or a stale one",
                contents[at]
            )),
        }
    }
}
