//! `/proc/PID/numa_maps`.

use super::{Subject, maps::Noted};
use crate::{M, Memory, context::Context, fs::procfs::Text};
use alloc::vec::Vec;
use core::fmt::{self, Write};
use memwright::{AreaFlags, space::Sight};
use memwright_table::{Bits, Extent, Page, PageRange};

/// Pages of one area. All are on node 0, the only one.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    pages: u64,
    anonymous: u64,
    dirty: u64,
    most_sharers: u64,
}

impl Counts {
    fn add(&mut self, memory: &Memory, extent: Extent) {
        let Some(page) = extent.entry.present() else {
            return;
        };
        if page.bits.contains(Bits::BORROWED) {
            return;
        }
        let frames = memory.frames();
        let pages = extent.range.len();
        self.pages += pages;
        if frames.kind(page.frame).is_private() {
            self.anonymous += pages;
        }
        if page.bits.intersects(Bits::DIRTY | Bits::FOLDED_DIRTY) {
            self.dirty += pages;
        }
        let sharers = u64::from(frames.sharers(page.frame));
        self.most_sharers = self.most_sharers.max(sharers);
    }
}

/// `/proc/PID/numa_maps` (`show_numa_map` in `fs/proc/task_mmu.c` of Linux 7.2).
///
/// # Errors
/// Those of the text.
pub fn numa_maps(_context: &Context<'_>, subject: &Subject, text: &mut Text) -> fmt::Result {
    let Some(space) = subject.process.space() else {
        return Ok(());
    };
    let mut all: Vec<(Noted, AreaFlags, Counts)> = Vec::new();
    let user = PageRange::new(Page::new(0), Page::USER_END);
    space.survey(user, &mut |sight: Sight<'_, M>| {
        match (sight, all.last_mut()) {
            (Sight::Area(area), _) => {
                all.push((Noted::of(area), area.flags(), Counts::default()));
            }
            (Sight::Entry(_, extent), Some((.., counts))) => counts.add(space.memory(), extent),
            // An entry always follows its area.
            (Sight::Entry(..), None) => {}
        }
        true
    });
    for (noted, flags, counts) in all {
        write!(text, "{:08x} default", noted.line().start)?;
        if flags.contains(AreaFlags::HEAP) {
            text.write_str(" heap")?;
        } else if flags.contains(AreaFlags::STACK) {
            text.write_str(" stack")?;
        } else if noted.has_name() {
            text.write_str(" file=")?;
            noted.write_name(text)?;
        }
        write_counts(text, &counts)?;
    }
    Ok(())
}

fn write_counts(text: &mut Text, counts: &Counts) -> fmt::Result {
    let Counts {
        pages,
        anonymous,
        dirty,
        most_sharers,
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
    writeln!(text, " N0={pages} kernelpagesize_kB=4")
}
