//! `/proc/sys/vm` and `/proc/vmstat`.

use super::{
    counts,
    node::SystemControl,
    stub::stubs,
    text::{Text, setting},
};
use crate::{context::Context, errno::Errno, memory::LOWEST};
use core::{
    fmt::{self, Write},
    sync::atomic::Ordering,
};
use memwright::{FaultKind, OvercommitMode, Row, Value};
use memwright_table::{FOLIO_ORDER, FrameKind, NodeCounts, PAGE_SIZE};

/// Size of a page in KiB.
const PAGE_KIB: u64 = PAGE_SIZE as u64 / 1024;

stubs! {
    DROPPED: "/proc/sys/vm/drop_caches" "" Number(0),
        "No cache holds a copy of what a disk has. The account counts each write as a call without effect.";
    LOWEST_ADDRESS: "/proc/sys/vm/mmap_min_addr" "" Number(LOWEST), "The limit holds; on Linux it can be set.";
    MOST_SEGMENTS: "/proc/sys/kernel/shmmni" "" Number(crate::ipc::MOST_SEGMENTS), "The limit holds; on Linux it can be set.";
    UNEVICTABLE: "/proc/vmstat" "nr_unevictable" Copy("nr_mlock"),
        "Only pages of locked areas are counted as unevictable.";
    FILE_PAGES: "/proc/vmstat" "nr_file_pages" Copy("nr_shmem"), "Every file is on tmpfs or is made by the kernel.";
    DIRTY: "/proc/vmstat" "nr_dirty" Number(0), "No file system is on a block device.";
    WRITEBACK: "/proc/vmstat" "nr_writeback" Number(0),
        "No file system is on a block device, and pages that are being written to swap are not counted.";
}

/// `/proc/sys/vm/drop_caches`. There is no cache whose contents are stored elsewhere too.
pub static DROP_CACHES: SystemControl = SystemControl {
    read: |_, text| writeln!(text, "{DROPPED}"),
    store: drop_caches,
};

/// `/proc/sys/vm/max_map_count`.
pub static MOST_AREAS: SystemControl = SystemControl {
    read: |context, text| {
        let most = context.kernel.most_areas.load(Ordering::Relaxed);
        writeln!(text, "{most}")
    },
    store: set_most_areas,
};

/// `/proc/sys/vm/overcommit_memory`.
pub static OVERCOMMIT: SystemControl = SystemControl {
    read: |context, text| writeln!(text, "{}", context.kernel.memory.commit().mode() as u8),
    store: set_overcommit,
};

/// `/proc/sys/vm/overcommit_kbytes`.
pub static OVERCOMMIT_KIBIBYTES: SystemControl = SystemControl {
    read: |context, text| writeln!(text, "{}", context.kernel.memory.commit().most() * PAGE_KIB),
    store: |context, bytes| {
        let kibibytes = setting(bytes)?;
        context
            .kernel
            .memory
            .commit()
            .set_most(kibibytes / PAGE_KIB);
        Ok(())
    },
};

/// `/proc/sys/vm/overcommit_ratio`.
pub static OVERCOMMIT_RATIO: SystemControl = SystemControl {
    read: |context, text| writeln!(text, "{}", context.kernel.memory.commit().ratio()),
    store: |context, bytes| {
        let ratio = setting(bytes)
            .ok()
            .and_then(|ratio| u32::try_from(ratio).ok());
        context
            .kernel
            .memory
            .commit()
            .set_ratio(ratio.ok_or(Errno::EINVAL)?);
        Ok(())
    },
};

/// `/proc/sys/vm/unprivileged_userfaultfd`.
pub static UNPRIVILEGED_USERFAULTFD: SystemControl = SystemControl {
    read: |context, text| {
        let anybody = &context.kernel.userfaults.anybody;
        writeln!(text, "{}", u8::from(anybody.load(Ordering::Relaxed)))
    },
    store: |context, bytes| {
        let value = setting(bytes)?;
        if value > 1 {
            return Err(Errno::EINVAL);
        }
        let anybody = &context.kernel.userfaults.anybody;
        anybody.store(value == 1, Ordering::Relaxed);
        Ok(())
    },
};

/// `/proc/sys/kernel/shmall`.
pub static MOST_SEGMENT_PAGES: SystemControl = SystemControl {
    read: |context, text| {
        let most = &context.kernel.segments.most_pages;
        writeln!(text, "{}", most.load(Ordering::Relaxed))
    },
    store: |context, bytes| {
        let most = setting(bytes)?;
        let limit = &context.kernel.segments.most_pages;
        limit.store(most, Ordering::Relaxed);
        Ok(())
    },
};

/// `/proc/sys/kernel/shmmax`.
pub static MOST_SEGMENT_BYTES: SystemControl = SystemControl {
    read: |context, text| {
        let most = &context.kernel.segments.most_bytes;
        writeln!(text, "{}", most.load(Ordering::Relaxed))
    },
    store: |context, bytes| {
        let most = setting(bytes)?;
        let limit = &context.kernel.segments.most_bytes;
        limit.store(most, Ordering::Relaxed);
        Ok(())
    },
};

/// `/proc/sys/kernel/shmmni`.
pub fn most_segments(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{MOST_SEGMENTS}")
}

/// `/proc/sys/vm/mmap_min_addr`.
pub fn lowest_address(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{LOWEST_ADDRESS}")
}

/// Accepts a write to `drop_caches`, and counts it as a call without effect.
fn drop_caches(context: &Context<'_>, bytes: &[u8]) -> Result<(), Errno> {
    match setting(bytes)? {
        1..=4 => {
            context.kernel.calls.count_stub("drop_caches");
            Ok(())
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Sets the limit for every address space. Existing areas beyond it stay.
fn set_most_areas(context: &Context<'_>, bytes: &[u8]) -> Result<(), Errno> {
    let most = i32::try_from(setting(bytes)?).map_err(|_| Errno::EINVAL)? as usize;
    context.kernel.most_areas.store(most, Ordering::Relaxed);
    for process in context.kernel.tasks.processes() {
        if let Some(space) = process.space() {
            let limits = memwright::Limits {
                areas: most,
                ..space.limits()
            };
            space.set_limits(limits);
        }
    }
    Ok(())
}

fn set_overcommit(context: &Context<'_>, bytes: &[u8]) -> Result<(), Errno> {
    let mode = match setting(bytes)? {
        0 => OvercommitMode::Guess,
        1 => OvercommitMode::Always,
        2 => OvercommitMode::Never,
        _ => return Err(Errno::EINVAL),
    };
    context.kernel.memory.commit().set_mode(mode);
    Ok(())
}

/// `/proc/vmstat` (`mm/vmstat.c` of Linux 7.2; the rows about TLB flushes are those of `CONFIG_DEBUG_TLBFLUSH`), with
/// the rows that are supported.
pub fn statistics(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    let memory = &context.kernel.memory;
    let frames = memory.frames();
    let account = memory.account();
    let count = |row| match account.get(row) {
        Value::Count(count) => count,
        Value::NotObservable => 0,
    };
    // As in `mm_account_fault`, including faults that the kernel resolves without a trap, and failed ones.
    let faults = FaultKind::ALL.map(FaultKind::row);
    let faults = faults.into_iter().chain([Row::FaultGup, Row::FaultFailed]);
    let splits = [
        Row::HugeSplitsProtect,
        Row::HugeSplitsUnmap,
        Row::HugeSplitsRemap,
        Row::HugeSplitsAdvise,
        Row::HugeSplitsCopy,
        Row::HugeSplitsFork,
        Row::HugeSplitsSwap,
        Row::HugeSplitsMerge,
        Row::HugeSplitsAsked,
    ];
    let placed = |of: fn(NodeCounts) -> u64| -> u64 {
        let nodes = frames.topology().all();
        nodes.iter().map(|node| of(frames.node_counts(node))).sum()
    };
    let locked = counts::locked(context)?;
    let objects = frames.used_by(FrameKind::Object);
    let anonymous = frames.used_by(FrameKind::Anonymous) + frames.used_by(FrameKind::Merged);
    let sizes = memory.huge().sizes.counts(FOLIO_ORDER);
    // Read by `do_swap_page` without a fault (`__collapse_huge_page_swapin`).
    let read_to_collapse = memory.huge().scan.read_back.load(Ordering::Relaxed);
    let (shared_folios, mapped_folios) = frames.object_folios();
    let rows = [
        ("nr_free_pages", frames.free()),
        ("nr_unevictable", UNEVICTABLE.copied(locked)),
        ("nr_mlock", locked),
        ("nr_anon_pages", anonymous),
        ("nr_mapped", frames.objects_shown()),
        ("nr_file_pages", FILE_PAGES.copied(objects)),
        ("nr_dirty", DIRTY.number()),
        ("nr_writeback", WRITEBACK.number()),
        ("nr_shmem", objects),
        ("nr_page_table_pages", frames.used_by(FrameKind::Table)),
        ("nr_slab_unreclaimable", frames.used_by(FrameKind::Slab)),
        ("nr_swapcached", memory.swap().cached_pages()),
        ("pgfault", faults.map(count).sum()),
        (
            "pgmajfault",
            count(Row::FaultSwapIn) + count(Row::FaultGupMajor) + read_to_collapse,
        ),
        ("pswpin", count(Row::SwapIn)),
        ("pswpout", count(Row::SwapWritten)),
        ("pglazyfree", count(Row::LazyFreed)),
        ("pglazyfreed", count(Row::LazyDropped)),
        ("numa_hit", placed(|counts| counts.hit)),
        ("numa_miss", placed(|counts| counts.miss)),
        ("numa_foreign", placed(|counts| counts.foreign)),
        ("numa_interleave", placed(|counts| counts.interleaved)),
        ("numa_local", placed(|counts| counts.local)),
        ("numa_other", placed(|counts| counts.other)),
        ("numa_pte_updates", count(Row::EntriesHinted)),
        (
            "numa_hint_faults",
            count(Row::HintLocal) + count(Row::HintRemote),
        ),
        ("numa_hint_faults_local", count(Row::HintLocal)),
        ("numa_pages_migrated", count(Row::PagesMigrated)),
        ("pgmigrate_success", count(Row::PagesMigrated)),
        ("pgmigrate_fail", count(Row::PagesNotMigrated)),
        ("nr_shmem_hugepages", shared_folios),
        ("nr_shmem_pmdmapped", mapped_folios),
        ("nr_anon_transparent_hugepages", frames.folios()),
        (
            "cow_ksm",
            count(Row::UnmergesWritten) + count(Row::UnmergesAsked),
        ),
        ("thp_fault_alloc", sizes.filled.load(Ordering::Relaxed)),
        ("thp_fault_fallback", count(Row::HugeFallbacks)),
        ("thp_collapse_alloc", count(Row::HugeCollapses)),
        ("thp_split_pmd", splits.into_iter().map(count).sum()),
        (
            "thp_file_alloc",
            sizes.shared_filled.load(Ordering::Relaxed),
        ),
        (
            "thp_file_fallback",
            sizes.shared_refused.load(Ordering::Relaxed),
        ),
        (
            "thp_file_mapped",
            sizes.shared_mapped.load(Ordering::Relaxed),
        ),
        ("thp_zero_page_alloc", memory.huge().zero_pages()),
        ("nr_tlb_remote_flush", count(Row::FlushRemote)),
        (
            "nr_tlb_remote_flush_received",
            count(Row::FlushCpusInterrupted),
        ),
        ("nr_tlb_local_flush_all", count(Row::FlushLocalFull)),
        ("nr_tlb_local_flush_one", count(Row::FlushLocalPages)),
        // Linux counts flushed pages and full flushes, but not the number of flushes.
        ("memwright_flush_local", count(Row::FlushLocal)),
        (
            "oom_kill",
            context.kernel.memory_kills.load(Ordering::Relaxed),
        ),
    ];
    rows.into_iter()
        .try_for_each(|(name, value)| writeln!(text, "{name} {value}"))
}
