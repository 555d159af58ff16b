//! `/proc/PID/smaps` and `/proc/PID/smaps_rollup`.

use crate::procfs::{
    node::{Subject, Text, stub::stubs, text::kibibyte_row},
    process::{
        maps::{Noted, write_rollup},
        pages::{Run, Sums, bytes_of_shares, count_each_entry},
    },
};
use core::fmt::{self, Write};
use memwright::{
    AreaFlags, Rights,
    object::HUGE_BYTES,
    {Area, Sight},
};
use memwright_linux_abi::{M, Space, host::Registers, protection_keys::has_keys};
use memwright_linux_base::batch::Batch;
use memwright_table::{PageRange, VirtAddr};

stubs! {
    FILE_HUGE: "/proc/PID/smaps" "FilePmdMapped" Number(0), "Every file counts as shmem: see ShmemPmdMapped.";
    MMU_PAGE_SIZE: "/proc/PID/smaps" "MMUPageSize" Copy("KernelPageSize"), "The two sizes are equal on x86-64.";
}

/// An area and the sums over its pages.
struct Summed {
    noted: Noted,
    codes: Codes,
    locked: bool,
    may_be_huge: bool,
    sums: Sums,
}

/// The number of areas that are summed in one batch.
const TOGETHER: usize = 4;

/// Adds areas with their sums to `batch` until it is full. The first of them is the first area that ends after `from`.
fn survey(space: &Space, from: u64, batch: &mut Batch<Summed>) {
    let mut run = Run::default();
    space.usage().survey(pages_from(space, from), |sight| {
        match sight {
            Sight::Area(area) => {
                if let Some(last) = batch.last_mut() {
                    run.end(&mut last.sums);
                }
                if !batch.has_room() {
                    return false;
                }
                run.begin(area);
                batch.push(Summed {
                    noted: Noted::of(area),
                    codes: Codes::of(area),
                    locked: area.flags().contains(AreaFlags::LOCKED),
                    may_be_huge: space.huge_pages().may_be_huge(area),
                    sums: Sums::of_area(area),
                });
            }
            // The walk visits an area before the entries of the area, so this entry belongs to the last area of the
            // batch.
            Sight::Entry(_, extent, others) => {
                if let Some(last) = batch.last_mut() {
                    run.add_entry(&mut last.sums, space.memory(), extent, others);
                }
            }
        }
        true
    });
    if let Some(last) = batch.last_mut() {
        run.end(&mut last.sums);
    }
    for area in batch.iter_mut().filter(|area| area.locked) {
        area.sums.locked = area.sums.proportional;
    }
}

/// Returns the range of pages from the start of the first area that ends after `from` to the end of user memory. The
/// start of that area is included even if the area has grown downwards or was merged since the previous area was
/// written.
pub(super) fn pages_from(space: &Space, from: u64) -> PageRange {
    let first = space.find(VirtAddr::new(from), Area::start);
    PageRange::new(
        first.unwrap_or(VirtAddr::USER_END.page()),
        VirtAddr::USER_END.page(),
    )
}

/// Writes `/proc/PID/smaps` (`show_smap` in `fs/proc/task_mmu.c` of Linux 7.2).
///
/// # Errors
/// The errors of `text`.
pub fn smaps(registers: &dyn Registers, subject: &Subject, text: &mut Text) -> fmt::Result {
    let keyed = has_keys(registers);
    let Some(space) = subject.space_of(text) else {
        return Ok(());
    };
    count_each_entry(space.memory())?;
    let note = |from, batch: &mut Batch<Summed>| survey(&space, from, batch);
    text.records(TOGETHER, note, |text, area| {
        area.noted.write(text)?;
        let line = area.noted.line();
        row(text, "Size", line.end - line.start)?;
        let page = if area.codes.flags.contains(AreaFlags::HUGETLB) {
            HUGE_BYTES
        } else {
            4096
        };
        row(text, "KernelPageSize", page)?;
        row(text, "MMUPageSize", MMU_PAGE_SIZE.copied(page))?;
        write_sums(text, &area.sums, false)?;
        let eligible = u8::from(area.may_be_huge);
        writeln!(text, "{:<16}{eligible:8}", "THPeligible:")?;
        if keyed {
            let key = area.codes.rights.key();
            writeln!(text, "{:<16}{key:8}", "ProtectionKey:")?;
        }
        area.codes.write(text)?;
        Ok(line.end)
    })
}

/// The number of areas that are summed in one batch for the rollup.
const ROLLUP_TOGETHER: usize = 64;

/// Writes `/proc/PID/smaps_rollup`.
///
/// # Errors
/// The errors of `text`.
pub fn rollup(subject: &Subject, text: &mut Text) -> fmt::Result {
    let mut sums = Sums::default();
    let mut bounds: Option<(u64, u64)> = None;
    if let Some(space) = subject.process.space() {
        let mut batch: Batch<Summed> = Batch::with_room(ROLLUP_TOGETHER).map_err(|_| fmt::Error)?;
        count_each_entry(space.memory())?;
        // Sum up in batches, so that the lock of the address space is released between two batches
        // (`show_smaps_rollup`).
        loop {
            let from = bounds.map_or(0, |(_, end)| end);
            survey(&space, from, &mut batch);
            let last = batch.has_room();
            for area in batch.drain() {
                sums.add(&area.sums);
                let (start, end) = (area.noted.line().start, area.noted.line().end);
                bounds = Some((bounds.map_or(start, |(first, _)| first), end));
            }
            if last {
                break;
            }
        }
    }
    let (start, end) = bounds.unwrap_or_default();
    write_rollup(text, start, end)?;
    write_sums(text, &sums, true)
}

fn row(text: &mut Text, name: &str, bytes: u64) -> fmt::Result {
    kibibyte_row(text, name, bytes / 1024)
}

/// Writes the rows of `sums`, for an area or for the rollup. If `parts` is true, also writes the rows that only the
/// rollup has.
fn write_sums(text: &mut Text, sums: &Sums, parts: bool) -> fmt::Result {
    row(text, "Rss", sums.resident)?;
    row(text, "Pss", bytes_of_shares(sums.proportional))?;
    row(text, "Pss_Dirty", bytes_of_shares(sums.proportional_dirty))?;
    if parts {
        let file = sums.proportional - sums.proportional_anonymous - sums.proportional_memory;
        row(
            text,
            "Pss_Anon",
            bytes_of_shares(sums.proportional_anonymous),
        )?;
        row(text, "Pss_File", bytes_of_shares(file))?;
        row(text, "Pss_Shmem", bytes_of_shares(sums.proportional_memory))?;
    }
    let rows = [
        ("Shared_Clean", sums.shared_clean),
        ("Shared_Dirty", sums.shared_dirty),
        ("Private_Clean", sums.private_clean),
        ("Private_Dirty", sums.private_dirty),
        ("Referenced", sums.referenced),
        ("Anonymous", sums.anonymous),
        ("KSM", sums.merged),
        ("LazyFree", sums.lazy),
        ("AnonHugePages", sums.huge),
        ("ShmemPmdMapped", sums.huge_memory),
        ("FilePmdMapped", FILE_HUGE.number()),
        ("Shared_Hugetlb", sums.shared_hugetlb),
        ("Private_Hugetlb", sums.private_hugetlb),
        ("Swap", sums.swap + sums.swap_of_objects),
        ("SwapPss", bytes_of_shares(sums.swap_proportional)),
        ("Locked", bytes_of_shares(sums.locked)),
    ];
    rows.into_iter()
        .try_for_each(|(name, bytes)| row(text, name, bytes))
}

/// The state of an area from which the two-letter codes in the area's row `VmFlags:` are derived
/// (`show_smap_vma_flags`). The codes are in the order of the `VM_` flags of Linux.
struct Codes {
    rights: Rights,
    max_rights: Rights,
    flags: AreaFlags,
}

impl Codes {
    fn of(area: &Area<M>) -> Self {
        Self {
            rights: area.rights(),
            max_rights: area.max_rights(),
            flags: area.flags(),
        }
    }

    fn write(&self, text: &mut Text) -> fmt::Result {
        let Self {
            rights,
            max_rights,
            flags,
        } = *self;
        let shared = flags.contains(AreaFlags::SHARED);
        let codes = [
            ("rd", rights.contains(Rights::READ)),
            ("wr", rights.contains(Rights::WRITE)),
            ("ex", rights.contains(Rights::EXECUTE)),
            ("sh", shared),
            ("mr", max_rights.contains(Rights::READ)),
            ("mw", max_rights.contains(Rights::WRITE)),
            ("me", max_rights.contains(Rights::EXECUTE)),
            ("ms", shared),
            ("gd", flags.contains(AreaFlags::GROWSDOWN)),
            ("um", flags.contains(AreaFlags::UFFD_MISSING)),
            ("pf", flags.contains(AreaFlags::PHYSICAL)),
            ("gu", flags.contains(AreaFlags::GUARDED)),
            ("uw", flags.contains(AreaFlags::UFFD_WP)),
            ("lo", flags.contains(AreaFlags::LOCKED)),
            ("io", flags.contains(AreaFlags::PHYSICAL)),
            ("sr", flags.contains(AreaFlags::SEQUENTIAL)),
            ("rr", flags.contains(AreaFlags::RANDOM)),
            ("dc", flags.contains(AreaFlags::DONTFORK)),
            ("lf", flags.contains(AreaFlags::LOCK_ON_FAULT)),
            // On Linux, hugetlb areas have `VM_DONTEXPAND`, and `remap_pfn_range` sets it too.
            (
                "de",
                flags.intersects(AreaFlags::HUGETLB | AreaFlags::PHYSICAL),
            ),
            ("ac", flags.contains(AreaFlags::ACCOUNTED)),
            ("nr", flags.contains(AreaFlags::NORESERVE)),
            ("ht", flags.contains(AreaFlags::HUGETLB)),
            ("wf", flags.contains(AreaFlags::WIPEONFORK)),
            ("dd", flags.contains(AreaFlags::DONTDUMP)),
            ("sd", flags.contains(AreaFlags::SOFT_DIRTY)),
            ("dp", flags.contains(AreaFlags::DROPPABLE)),
            ("hg", flags.contains(AreaFlags::HUGE)),
            ("nh", flags.contains(AreaFlags::NOT_HUGE)),
            ("mg", flags.contains(AreaFlags::MERGEABLE)),
            ("ui", flags.contains(AreaFlags::UFFD_MINOR)),
            ("sl", flags.contains(AreaFlags::SEALED)),
            ("ur", flags.contains(AreaFlags::UFFD_RWP)),
        ];
        text.write_str("VmFlags: ")?;
        for (code, _) in codes.into_iter().filter(|(_, there)| *there) {
            write!(text, "{code} ")?;
        }
        text.write_char('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::node::text::written;

    #[test]
    fn rows_have_linux_columns() {
        let text = written(|text| row(text, "Size", 8192));
        assert_eq!(text, "Size:                  8 kB\n");
        let text = written(|text| row(text, "Private_Hugetlb", 0));
        assert_eq!(text, "Private_Hugetlb:       0 kB\n");
    }

    #[test]
    fn codes_are_in_the_order_of_linux() {
        let codes = Codes {
            rights: Rights::READ | Rights::WRITE,
            max_rights: Rights::all(),
            flags: AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT | AreaFlags::ACCOUNTED,
        };
        let text = written(|text| codes.write(text));
        assert_eq!(text, "VmFlags: rd wr mr mw me lo lf ac \n");
    }
}
