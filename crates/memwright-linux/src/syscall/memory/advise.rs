//! The `madvise` system call.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright::{
    AdviseError,
    uffd::Watch,
    {Advice, Advised},
};
use memwright_linux_abi::{Space, errno::Errno};
use memwright_linux_memory::{
    huge_scan::HugeScan,
    memory::advise_errno,
    merge_scan::MergeScan,
    userfault::{Announced, Userfaults},
};
use memwright_linux_tasks::call_counts::CallCounts;
use memwright_linux_vfs::direct_reclaim::Retry;
use memwright_table::VirtAddr;

/// Advice that was applied to a range. The caller must complete the call with `finish`.
pub(crate) struct Applied {
    advice: Advice,
    name: &'static str,
    advised: Advised,
}

impl Applied {
    /// Wakes khugepaged or ksmd if the advice is for it. Counts advice without an effect as a stub, which the report
    /// lists by name.
    pub(in crate::syscall) fn finish(
        self,
        huge_scan: &HugeScan,
        merge_scan: &MergeScan,
        calls: &CallCounts,
    ) -> CallResult {
        if self.advice == Advice::Huge {
            huge_scan.want();
        }
        if self.advice == Advice::Mergeable {
            merge_scan.want();
        }
        if self.advised == Advised::AdvisedOnly {
            calls.count_stub(self.name);
        }
        Ok(0)
    }
}

/// Implements `madvise`. The caller must complete the call with [`Applied::finish`].
pub fn madvise(
    current: &Current<'_>,
    userfaults: &Userfaults,
    arguments: &Arguments,
) -> Result<Applied, Errno> {
    let [address, length, number, ..] = *arguments;
    let (advice, name) = advice(number).ok_or(Errno::EINVAL)?;
    let address = VirtAddr::new(address);
    let space = current.space();
    let advised = advise(current, userfaults, &space, (address, length), advice)?;
    Ok(Applied {
        advice,
        name,
        advised,
    })
}

/// Applies advice to a range. If the advice discards pages, sends the userfaultfd events before the pages are
/// discarded, so that the userfaultfd handler does not fill them again.
///
/// # Errors
/// The errors of `madvise`.
pub(in crate::syscall) fn advise(
    current: &Current<'_>,
    userfaults: &Userfaults,
    space: &Arc<Space>,
    (address, length): (VirtAddr, u64),
    advice: Advice,
) -> Result<Advised, Errno> {
    if let Some(write) = advice.populates() {
        return populate(current, userfaults, space, (address, length), write)
            .map(|()| Advised::Done);
    }
    let advised = if advice.takes_contents() {
        let mut tell = |watch: &Watch, event| {
            let mut announced = Announced::new(userfaults);
            announced.note(watch, event);
            announced.tell(current.thread);
        };
        let discard = || space.discard(address, length, advice, &mut tell);
        let done = current.reclaim().retry(discard);
        done.map(|()| Advised::Done)
    } else {
        userfaults.awaiting(current.thread, space, || {
            let advise = || space.advise(address, length, advice);
            match current.reclaim().retry(advise) {
                Err(AdviseError::Watched(awaited)) => Err(awaited),
                advised => Ok(advised),
            }
        })?
    };
    advised.map_err(advise_errno)
}

/// Populates a range. Continues where it stopped after direct reclaim, and after a userfaultfd context has resolved a
/// fault.
fn populate(
    current: &Current<'_>,
    userfaults: &Userfaults,
    space: &Arc<Space>,
    (address, length): (VirtAddr, u64),
    write: bool,
) -> Result<(), Errno> {
    let mut rest = space
        .residency()
        .to_populate(address, length)
        .map_err(advise_errno)?;
    userfaults
        .awaiting(current.thread, space, || {
            let populate = || {
                (
                    space.residency().populate_onward(&mut rest, write),
                    rest.next(),
                )
            };
            match current.reclaim().retry_onward(populate) {
                Err(AdviseError::Watched(awaited)) => Err(awaited),
                populated => Ok(populated),
            }
        })?
        .map_err(advise_errno)
}

/// Decodes the advice of `madvise`. Returns the advice, and its name in the report.
pub(in crate::syscall) fn advice(number: u64) -> Option<(Advice, &'static str)> {
    Some(match number as u32 {
        raw::MADV_NORMAL => (Advice::Normal, "MADV_NORMAL"),
        raw::MADV_RANDOM => (Advice::Random, "MADV_RANDOM"),
        raw::MADV_SEQUENTIAL => (Advice::Sequential, "MADV_SEQUENTIAL"),
        raw::MADV_WILLNEED => (Advice::Hint, "MADV_WILLNEED"),
        raw::MADV_MERGEABLE => (Advice::Mergeable, "MADV_MERGEABLE"),
        raw::MADV_UNMERGEABLE => (Advice::Unmergeable, "MADV_UNMERGEABLE"),
        raw::MADV_HUGEPAGE => (Advice::Huge, "MADV_HUGEPAGE"),
        raw::MADV_NOHUGEPAGE => (Advice::NotHuge, "MADV_NOHUGEPAGE"),
        raw::MADV_COLLAPSE => (Advice::Collapse, "MADV_COLLAPSE"),
        raw::MADV_COLD => (Advice::Cold, "MADV_COLD"),
        raw::MADV_PAGEOUT => (Advice::PageOut, "MADV_PAGEOUT"),
        raw::MADV_DONTNEED => (Advice::DontNeed, "MADV_DONTNEED"),
        raw::MADV_DONTNEED_LOCKED => (Advice::DontNeedLocked, "MADV_DONTNEED_LOCKED"),
        raw::MADV_FREE => (Advice::Free, "MADV_FREE"),
        raw::MADV_REMOVE => (Advice::Remove, "MADV_REMOVE"),
        raw::MADV_DONTFORK => (Advice::DontFork, "MADV_DONTFORK"),
        raw::MADV_DOFORK => (Advice::DoFork, "MADV_DOFORK"),
        raw::MADV_DONTDUMP => (Advice::DontDump, "MADV_DONTDUMP"),
        raw::MADV_DODUMP => (Advice::DoDump, "MADV_DODUMP"),
        raw::MADV_WIPEONFORK => (Advice::WipeOnFork, "MADV_WIPEONFORK"),
        raw::MADV_KEEPONFORK => (Advice::KeepOnFork, "MADV_KEEPONFORK"),
        raw::MADV_POPULATE_READ => (Advice::PopulateRead, "MADV_POPULATE_READ"),
        raw::MADV_POPULATE_WRITE => (Advice::PopulateWrite, "MADV_POPULATE_WRITE"),
        MADV_GUARD_INSTALL => (Advice::GuardInstall, "MADV_GUARD_INSTALL"),
        MADV_GUARD_REMOVE => (Advice::GuardRemove, "MADV_GUARD_REMOVE"),
        _ => return None,
    })
}

/// The value in `asm-generic/mman-common.h`.
const MADV_GUARD_INSTALL: u32 = 102;
/// The value in `asm-generic/mman-common.h`.
const MADV_GUARD_REMOVE: u32 = 103;
