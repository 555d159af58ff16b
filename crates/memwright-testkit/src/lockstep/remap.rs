//! The steps that move and resize mappings.

use alloc::format;

use memwright::{AreaFlags, RemapError, RemapRequest};
use memwright_table::{CpuId, Page, PageRange};

use super::kinds::{agree, disagree, kind_of_remap};
use super::{Difference, Lockstep, address, bytes};
use crate::machine::TestMachine;
use crate::model::Refusal;
use crate::terms::Remap;

impl<M: TestMachine> Lockstep<M> {
    /// Performs an `mremap`. If the mappings in the range differ and the length changes, only shrinks the range:
    /// whether several pages are one area depends on how they were mapped, which the model does not track.
    pub(super) fn remap(
        &mut self,
        process: usize,
        cpu: CpuId,
        remap: Remap,
    ) -> Result<(), Difference> {
        let hole = self.model.is_free(process, remap.from, 1);
        let uniform = self.model.is_uniform(process, remap.from, remap.pages);
        let model = &self.model;
        let source = model.check_seals(process, remap.from, remap.pages);
        let target = remap
            .to
            .map_or(Ok(()), |to| model.check_seals(process, to, remap.new_pages));
        let refused_midway = source.and(target).is_err() || self.is_watched(process, remap);
        if !hole && refused_midway && self.has_several(process, remap) {
            // Skip the step: the number of parts that move before the refused one depends on where areas begin, which
            // the model does not track.
            return Ok(());
        }
        if !hole && !uniform && remap.to.is_none() {
            return self.shrink_several(process, cpu, remap);
        }
        let refused = if hole {
            self.model
                .may_remap(remap)
                .and(Err(Refusal::Hole(remap.from)))
        } else {
            self.model.may_remap(remap).and(source).and(target)
        };
        let several = self.has_several(process, remap);
        let real = self.processes[&process].on(cpu, |space| {
            space.remap(RemapRequest {
                old: address(remap.from),
                old_length: bytes(remap.pages),
                new_length: bytes(remap.new_pages),
                may_move: true,
                fixed: remap.to.map(address),
                dont_unmap: remap.keep,
            })
        });
        if let (None, Ok(()), Err(RemapError::NoArea(_)), true) =
            (remap.to, refused, &real, several)
        {
            // The range is uniform in the model but consists of several areas, as on Linux if memory was moved, or if
            // parts of it have different NUMA policies.
            self.succeeded("remap of several areas refused");
            return Ok(());
        }
        if !agree("remap", refused, real.map_err(kind_of_remap))? {
            return Ok(());
        }
        let to = real.expect("both succeeded").page().number();
        if remap.to.is_some_and(|fixed| fixed != to) {
            return disagree(format!("remap to a fixed place went to page {to:#x}"));
        }
        let taken = if to == remap.from {
            let grown = remap.new_pages.saturating_sub(remap.pages);
            grown > 0 && !self.model.is_free(process, to + remap.pages, grown)
        } else {
            remap.to.is_none() && !self.model.is_free(process, to, remap.new_pages)
        };
        if taken {
            return disagree(format!(
                "remap went to page {to:#x}, where something is mapped"
            ));
        }
        if uniform {
            self.model.remap(process, remap, to);
        } else {
            self.model.move_each(process, remap, to);
            self.succeeded("move of several kinds");
        }
        self.succeeded(if remap.to.is_some() { "move" } else { "resize" });
        Ok(())
    }

    /// Returns whether the range to be moved spans several areas. After a fork, neighbouring areas with equal
    /// properties can stay separate.
    pub(super) fn has_several(&self, process: usize, remap: Remap) -> bool {
        let (start, end) = (Page::new(remap.from), Page::new(remap.from + remap.pages));
        let mut whole = false;
        self.processes[&process].space().areas(&mut |area| {
            whole |= area.range().covers(PageRange::new(start, end));
        });
        !whole
    }

    /// Returns whether any part of the range to be moved is registered with a userfaultfd. A registered area cannot
    /// move together with other areas.
    pub(super) fn is_watched(&self, process: usize, remap: Remap) -> bool {
        let (start, end) = (Page::new(remap.from), Page::new(remap.from + remap.pages));
        let range = PageRange::new(start, end);
        let mut watched = false;
        self.processes[&process].space().areas(&mut |area| {
            let moves = !area.range().intersect(range).is_empty();
            watched |= moves && area.flags().intersects(AreaFlags::UFFD);
        });
        watched
    }

    pub(super) fn shrink_several(
        &mut self,
        process: usize,
        cpu: CpuId,
        remap: Remap,
    ) -> Result<(), Difference> {
        let (from, pages) = (remap.from, remap.pages);
        if remap.keep || remap.new_pages != 1 || pages == 1 {
            return Ok(());
        }
        let real = self.processes[&process].on(cpu, |space| {
            space.remap(RemapRequest {
                old: address(from),
                old_length: bytes(pages),
                new_length: bytes(1),
                may_move: true,
                fixed: None,
                dont_unmap: false,
            })
        });
        if real != Ok(address(from)) {
            return disagree(format!(
                "several areas did not shrink to one page: {real:?}"
            ));
        }
        self.model
            .unmap(process, from + 1, pages - 1)
            .expect("none is sealed");
        self.succeeded("shrink of several kinds");
        Ok(())
    }
}
