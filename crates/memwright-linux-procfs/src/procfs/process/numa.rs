//! `/proc/PID/numa_maps`.

use crate::procfs::{
    node::{Subject, Text},
    process::{maps::Noted, pages::count_each_entry, smaps::pages_from},
    system::processors::write_list,
};
use core::fmt::{self, Write};
use linux_raw_sys::mempolicy::{MPOL_F_NUMA_BALANCING, MPOL_F_RELATIVE_NODES, MPOL_F_STATIC_NODES};
use memwright::{AreaFlags, PlacePolicy, PolicyId, Sight, object::HUGE_BYTES};
use memwright_linux_abi::{M, Memory, Space};
use memwright_linux_base::batch::Batch;
use memwright_linux_memory::numa::mode_name;
use memwright_table::{Bits, Extent, MAX_NODES, PAGE_SIZE};

/// The page counts of one area.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    pages: u64,
    anonymous: u64,
    dirty: u64,
    most_sharers: u64,
    on_node: [u64; MAX_NODES],
}

impl Counts {
    /// Counts the pages that the page-table entry `extent` maps. A page consists of `size` base pages.
    fn add(&mut self, memory: &Memory, extent: Extent, size: u64, others: u32) {
        let Some(page) = extent.entry.present() else {
            return;
        };
        if page.bits.contains(Bits::BORROWED) {
            return;
        }
        let frames = memory.frames();
        let pages = extent.range.len() / size;
        self.pages += pages;
        let node = frames.node_of(page.frame_of(extent.range.start));
        self.on_node[usize::from(node)] += pages;
        if frames.kind(page.frame).is_private() {
            self.anonymous += pages;
        }
        if page.bits.intersects(Bits::DIRTY | Bits::FOLDED_DIRTY) {
            self.dirty += pages;
        }
        let sharers = u64::from(frames.sharers(page.frame) + others);
        self.most_sharers = self.most_sharers.max(sharers);
    }
}

/// An area and its page counts.
struct Counted {
    noted: Noted,
    flags: AreaFlags,
    placement: PolicyId,
    counts: Counts,
}

/// Returns the number of base pages in one page of an area with the flags `flags`.
const fn base_pages(flags: AreaFlags) -> u64 {
    if flags.contains(AreaFlags::HUGETLB) {
        HUGE_BYTES / PAGE_SIZE as u64
    } else {
        1
    }
}

/// The number of areas whose pages are counted in one batch.
const TOGETHER: usize = 16;

/// Adds areas with their counts to `batch` until it is full. The first of them is the first area that ends after
/// `from`.
fn survey(space: &Space, from: u64, batch: &mut Batch<Counted>) {
    space
        .usage()
        .survey(pages_from(space, from), |sight: Sight<'_, M>| {
            match sight {
                Sight::Area(_) if !batch.has_room() => return false,
                Sight::Area(area) => {
                    batch.push(Counted {
                        noted: Noted::of(area),
                        flags: area.flags(),
                        placement: area.placement_of(area.start()),
                        counts: Counts::default(),
                    });
                }
                // The walk visits an area before the entries of the area, so this entry belongs to the last area of the
                // batch.
                Sight::Entry(_, extent, others) => {
                    if let Some(last) = batch.last_mut() {
                        let size = base_pages(last.flags);
                        last.counts.add(space.memory(), extent, size, others);
                    }
                }
            }
            true
        });
}

/// Writes `/proc/PID/numa_maps` (`show_numa_map` in `fs/proc/task_mmu.c` of Linux 7.2).
///
/// # Errors
/// The errors of `text`.
pub fn numa_maps(subject: &Subject, text: &mut Text) -> fmt::Result {
    let Some(space) = subject.space_of(text) else {
        return Ok(());
    };
    let first = subject.process.thread_after(None);
    let usual = first.and_then(|thread| thread.placement.policy(space.memory()));
    count_each_entry(space.memory())?;
    let note = |from, batch: &mut Batch<Counted>| survey(&space, from, batch);
    text.records(TOGETHER, note, |text, area| {
        let Counted {
            noted,
            flags,
            placement,
            counts,
        } = area;
        write!(text, "{:08x} ", noted.line().start)?;
        let own = space.memory().placement(*placement);
        write_policy(text, own.or(usual))?;
        if flags.contains(AreaFlags::HEAP) {
            text.write_str(" heap")?;
        } else if flags.contains(AreaFlags::STACK) {
            text.write_str(" stack")?;
        } else if let Some(object) = noted.object() {
            text.write_str(" file=")?;
            object.describe(&mut Words(text))?;
        }
        if flags.contains(AreaFlags::HUGETLB) {
            text.write_str(" huge")?;
        }
        let page = base_pages(*flags) * PAGE_SIZE as u64;
        write_counts(text, counts, page / 1024)?;
        Ok(noted.line().end)
    })
}

/// A writer for names. It writes separators as octal escapes, so that a name remains a single word (`seq_file_path`).
struct Words<'a>(&'a mut Text);

impl Write for Words<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| match character {
            '\n' | '\t' | '=' | ' ' => write!(self.0, "\\{:03o}", u32::from(character)),
            other => self.0.write_char(other),
        })
    }
}

/// Writes `policy` in the format of `mpol_to_str`.
fn write_policy(text: &mut Text, policy: Option<PlacePolicy>) -> fmt::Result {
    let Some(policy) = policy else {
        return text.write_str("default");
    };
    text.write_str(mode_name(policy.mode))?;
    let mut sign = '=';
    for (flag, name) in [
        (MPOL_F_STATIC_NODES, "static"),
        (MPOL_F_RELATIVE_NODES, "relative"),
        (MPOL_F_NUMA_BALANCING, "balancing"),
    ] {
        if u32::from(policy.flags) & flag != 0 {
            write!(text, "{sign}{name}")?;
            sign = '|';
        }
    }
    if !policy.nodes.is_empty() {
        text.write_char(':')?;
        write_list(text, policy.nodes.bits())?;
    }
    Ok(())
}

fn write_counts(text: &mut Text, counts: &Counts, kibibytes: u64) -> fmt::Result {
    let Counts {
        pages,
        anonymous,
        dirty,
        most_sharers,
        on_node,
    } = *counts;
    if pages == 0 {
        return text.write_char('\n');
    }
    if anonymous > 0 {
        write!(text, " anon={anonymous}")?;
    }
    if dirty > 0 {
        write!(text, " dirty={dirty}")?;
    }
    if pages != anonymous && pages != dirty {
        write!(text, " mapped={pages}")?;
    }
    if most_sharers > 1 {
        write!(text, " mapmax={most_sharers}")?;
    }
    for (node, pages) in on_node.iter().enumerate().filter(|(_, pages)| **pages > 0) {
        write!(text, " N{node}={pages}")?;
    }
    writeln!(text, " kernelpagesize_kB={kibibytes}")
}
