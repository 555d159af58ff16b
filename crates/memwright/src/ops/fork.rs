//! Copying an address space (Linux 7.2 `kernel/fork.c`, `dup_mmap`, and `mm/memory.c`,
//! `copy_page_range`).
//!
//! Parent and child share each private page that the child inherits until one of them writes it. A pinned page is
//! copied at once. While both page-table locks are held, fork clears the exclusive bit and write permission in the
//! parent's and the child's entry. Neither process treats the page as exclusive again before the other has dropped it
//! (rule: exclusive-in-the-entry).

use memwright_table::sync::{PausePoints, Rank};
use memwright_table::{
    Copied, CopyRule, CopyStop, CpuId, Cursor, Entry, FrameKind, Gather, Machine, OutOfFrames,
    PageRange, Present, Shared,
};

use crate::mm::areas::{Areas, Backing};
use crate::mm::core::Core;
use crate::mm::cut::is_splittable;
use crate::mm::space::{AREAS, AddressSpace, Area};
use crate::ops::share_tables::Sharing;
use crate::types::error::ForkError;
use crate::types::stats::Row;
use crate::types::swap_window::{Window, WindowCell};
use crate::types::trace::Event;
use crate::types::uffd::Watch;
use crate::vma::anon_vma::{AnonVma, AnonVmaCell};
use crate::vma::area::{AreaFlags, Backed};
use crate::vma::map::Position;

impl<M: Machine> AddressSpace<M> {
    /// Returns a copy of this address space for a child process.
    ///
    /// # Errors
    /// See [`ForkError`]. On error the partial child is freed. The parent's pages stay usable: a page that was already
    /// shared becomes exclusive again at the next write.
    pub fn fork(&self) -> Result<AddressSpace<M>, ForkError> {
        self.fork_watched(&mut |_| None)
    }

    /// Like [`fork`](Self::fork), and also calls `child_context` with the userfaultfd context of each registered area.
    /// If `child_context` returns a context, the child's area is registered with that context and keeps its write
    /// protection (rule: uffd-wp-survives). `child_context` runs with the address space locked.
    ///
    /// # Errors
    /// See [`fork`](Self::fork).
    pub fn fork_watched(
        &self,
        child_context: &mut dyn FnMut(&Watch) -> Option<Watch>,
    ) -> Result<AddressSpace<M>, ForkError> {
        let core = &*self.core;
        let cpu = core.cpu();
        // Declared first so that it is dropped last. On error, this drop frees the partial child.
        let memory = core.memory.clone();
        let child = Self::forked(memory, core.layout, Some(core))?;
        child.core.inherit(core);
        let areas = core.areas.write();
        let mut copies = child.core.areas.write_as(Rank::SpaceChild);
        copies.limits = areas.limits;
        copies.exec_gain = areas.exec_gain.of_successor();
        copies.keys = areas.keys;
        copies.merge_all = areas.merge_all;
        if !areas.moved.is_empty() {
            copies.moved = areas.moved.try_clone()?;
        }
        copies.map.reserve_in_order(areas.map.len())?;
        let mut gather = core.gather();
        let mut sharing = Sharing::begin(core);
        let mut entries = 0;
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        let mut previous = None;
        let result = areas.map.iter().try_for_each(|area| {
            if area.flags().contains(AreaFlags::DONTFORK) {
                if let Some(sharing) = &mut sharing {
                    sharing.pass(area);
                }
                return Ok(());
            }
            let child_context = area.backing().watcher().and_then(&mut *child_context);
            // Entries of the child stay write-protected only if its area is registered for faults on protected
            // pages.
            let watched = child_context.is_some() && area.flags().intersects(PROTECTED);
            let area_of_child = (area, child_context);
            let place = copy_area(core, &child.core, cpu, &mut copies, area_of_child, previous)?;
            previous = Some((area, place));
            let copied = |range, gather: &mut Gather<'_, M>| {
                copy_entries(core, &child.core, cpu, (area, range, watched), gather)
            };
            match (&mut sharing, needs_entries(area, watched)) {
                (None, true) => entries += copied(area.range, &mut gather)?,
                (Some(sharing), true) => {
                    let (parent, child) = ((core, &*areas), (&*child.core, cpu));
                    entries += sharing.share(parent, child, area, &mut gather, copied)?;
                }
                (Some(sharing), false) => sharing.pass(area),
                (None, false) => {}
            }
            points.round();
            Ok(())
        });
        let is_whole = result.is_ok();
        core.conclude(cpu, &mut gather, (copies, areas), |_| {
            is_whole.then_some(Event::Fork { entries })
        });
        core.memory.count_on(cpu, Row::ForkCopied, entries);
        if core.merge_number.may_have_merged() {
            core.memory.merging().enter_child(&child.core);
        }
        result.map(|()| {
            core.memory.count_on(cpu, Row::Forks, 1);
            child
        })
    }
}

/// The flags of areas whose entries userfaultfd protects.
const PROTECTED: AreaFlags = AreaFlags::UFFD_WP.union(AreaFlags::UFFD_RWP);

/// Returns whether fork must copy the entries of the area, because faults in the child would not map the pages that
/// these entries map (Linux 7.2 `vma_needs_copy`).
fn needs_entries<M: Machine>(area: &Area<M>, watched: bool) -> bool {
    let wiped = area.flags().contains(AreaFlags::WIPEONFORK);
    // The registration of the area may have ended while its entries are still protected. Protected entries alone need
    // no copy, because only a registered child would use their protection. Device memory needs a copy, because faults
    // do not map it (rule: device-memory-is-borrowed).
    let marked = watched
        || area
            .flags
            .intersects(AreaFlags::GUARDED | AreaFlags::PHYSICAL);
    !wiped && (area.has_faulted() || marked)
}

/// Adds the copy of an area to the child and returns its position. If `child_context` is given, registers the copy with
/// that context. `previous` is the area that was copied before this one, and the position of its copy.
fn copy_area<M: Machine>(
    core: &Core<M>,
    child: &Shared<Core<M>>,
    cpu: CpuId,
    copies: &mut Areas<M>,
    (area, child_context): (&Area<M>, Option<Watch>),
    previous: Option<(&Area<M>, Position)>,
) -> Result<Position, ForkError> {
    let lost = if child_context.is_some() {
        AreaFlags::empty()
    } else {
        AreaFlags::UFFD
    };
    let mut backing = match area.backing().attachment() {
        None => Backing::ANONYMOUS,
        Some(attachment) => {
            let object = attachment.object();
            // The child's area does not reserve huge pages: the reservation for a private mapping stays with the
            // parent.
            let shown = if area.flags().contains(AreaFlags::HUGETLB) {
                object.unreserved().unwrap_or(object)
            } else {
                object
            };
            let before = previous.and_then(|(own, copy)| {
                let copy = copies.map.get(copy).backing().attachment();
                own.backing().attachment().zip(copy)
            });
            Backing::object_of(attachment.of_child(shown, child, before)?)
        }
    };
    if area.flags().contains(AreaFlags::ACCOUNTED) {
        core.memory
            .promise(area.pages())
            .map_err(|_| ForkError::Overcommit)?;
    }
    let wiped = area.flags().contains(AreaFlags::WIPEONFORK);
    let anon_vma = if area.has_faulted() && !wiped {
        AnonVma::forked(child.next_anon_vma(cpu)).moved_like(area.anon_vma())
    } else {
        AnonVma::NONE
    };
    let name = area.backing().name();
    if child_context.is_some() || name.is_some() {
        let copied = previous.map(|(_, copy)| copies.map.get(copy).backing());
        let models = copied.into_iter().chain([area.backing()]);
        backing.set_tag(Backing::tag_with(models, child_context.as_ref(), name)?);
    }
    let copy: Area<M> = Area {
        range: area.range,
        offset: area.offset,
        // A child does not inherit `mlock`.
        flags: area.flags - (AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT) - lost,
        rights: area.rights,
        max_rights: area.max_rights,
        placement: area.placement,
        anon_vma: AnonVmaCell::new(anon_vma),
        window: WindowCell::new(Window::NONE),
        backing,
    };
    copies.count_in(copy.rights, copy.flags, copy.pages());
    Ok(copies.map.insert(copy))
}

/// Copies the entries of a part of one area and returns how many were copied.
fn copy_entries<M: Machine>(
    core: &Core<M>,
    child: &Core<M>,
    cpu: CpuId,
    (area, range, watched): (&Area<M>, PageRange, bool),
    gather: &mut Gather<'_, M>,
) -> Result<u64, OutOfFrames> {
    let mut rule = if !area.is_shared() {
        if area.object().is_none() {
            CopyRule::PRIVATE
        } else {
            CopyRule::PRIVATE_OF_OBJECT
        }
    } else if area.backing().notifies_first_write() {
        CopyRule::SHARED_NOTIFIED
    } else {
        CopyRule::SHARED
    };
    if watched {
        rule = rule.keep_uffd_wp();
    }
    if area.flags().intersects(AreaFlags::MARKED) {
        // A neighbour that was once part of this area can share a marker with it. Split a marker that extends beyond
        // the area.
        core.table.cursor(range).split_edges(gather)?;
    }
    if area.watches_accesses() {
        core.forget_past_idle(area, gather);
    }
    let mut entries = 0;
    let mut rest = range;
    while !rest.is_empty() {
        let (mut from, mut to) = core.table.cursors_to_copy(&child.table, rest);
        let copied = from.copy_to(&mut to, rule, gather)?;
        entries += copied.entries;
        note_copied(child, cpu, &copied);
        match copied.stop {
            CopyStop::Done => break,
            CopyStop::Pinned(page) if area.flags().contains(AreaFlags::HUGETLB) => {
                child.copy_pinned_hugetlb(cpu, area, watched, &mut to, page)?;
                entries += 1;
            }
            CopyStop::Pinned(page) if is_splittable(page) => {
                // Continue with the small pages of the split huge page, because each of them is copied or shared
                // separately.
                drop(to);
                from.split(gather)?;
                core.memory.count_on(cpu, Row::HugeSplitsFork, 1);
                rest = PageRange::new(from.position(), rest.end);
                continue;
            }
            CopyStop::Pinned(page) => {
                copy_pinned(child, cpu, (area, watched), &mut to, page)?;
                entries += 1;
            }
        }
        rest = PageRange::new(from.entry().range.end, rest.end);
    }
    if area.watches_accesses() && !watched {
        child.open_copies(area, range);
    }
    Ok(entries)
}

/// Counts the child's entries that a fork filled, and the resident pages among them.
fn note_copied<M: Machine>(child: &Core<M>, cpu: CpuId, copied: &Copied) {
    child.note_resident(cpu, copied.counted);
    if copied.objects > 0 {
        child.note_objects(cpu, copied.objects);
    }
    if copied.pages != copied.counted {
        child.note_uncounted(cpu, copied.pages - copied.counted);
    }
    let entries = copied.entries;
    child.memory.count_on(cpu, Row::EntriesFilled, entries);
    if copied.swapped > 0 {
        child.note_swapped(copied.swapped as i64);
    }
}

/// Copies `page` to the child during the fork, because the parent's page is pinned and must stay exclusive (rule:
/// exclusive-before-pin).
fn copy_pinned<M: Machine>(
    child: &Core<M>,
    cpu: CpuId,
    (area, watched): (&Area<M>, bool),
    to: &mut Cursor<'_, M>,
    page: Present,
) -> Result<(), OutOfFrames> {
    let frames = child.memory.frames();
    let copy = frames.allocate(0, FrameKind::Anonymous)?;
    frames.copy(page.frame, copy.frame());
    let bits = area.copied_bits(page.bits, watched);
    to.fill(Entry::page(copy.frame(), bits))?;
    let _ = copy.into_raw();
    child.memory.count_on(cpu, Row::FramesCopied, 1);
    child.note_filled(cpu, 1);
    Ok(())
}
