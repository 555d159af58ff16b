//! Transparent huge pages: which areas get them, and the huge zero page (Linux 7.2 `include/linux/huge_mm.h` and
//! `mm/huge_memory.c`; Documentation/admin-guide/mm/transhuge.rst).
//!
//! A huge page is one entry over 2 MiB that holds one reference to a complete folio ([`memwright_table::frame`]). It is
//! created by a first touch (`fault/huge.rs`) or by a collapse (`huge/collapse.rs`). It is removed when it is
//! unmapped, or split into 4 KiB entries when an operation covers a part of it. A huge page never extends beyond its
//! area: an operation that splits the area splits the huge entry.

use core::sync::atomic::Ordering;
use memwright_table::{FOLIO_ORDER, Frame, FrameKind, Machine, Page, PageRange};

use crate::mm::core::Core;
use crate::mm::memory::Memory;
use crate::mm::space::Area;
use crate::mm::theme::HugePages;
use crate::types::folio_orders::FolioOrders;
use crate::types::huge::{HUGE_PAGES, HugeMode, SharedSetting, around};
use crate::types::huge_settings::NONE;
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;
use crate::vma::huge::{HugeAsker, SMALL_ONLY, may_be_huge};

impl<M: Machine> Memory<M> {
    /// Returns which areas get huge pages: the mode for 2 MiB, combined with the mode for all sizes.
    pub fn huge_mode(&self) -> HugeMode {
        self.huge()
            .sizes
            .mode(FOLIO_ORDER)
            .with(self.policy().huge())
    }

    /// Returns whether khugepaged has anything to scan. `asked` states whether any area has `MADV_HUGEPAGE` (Linux 7.2
    /// `mm/khugepaged.c`, `hugepage_pmd_enabled`).
    pub fn may_collapse(&self, asked: bool) -> bool {
        let anonymous = match self.huge_mode() {
            HugeMode::Always => true,
            HugeMode::Advised => asked,
            HugeMode::Never => false,
        };
        let settings = [SharedSetting::File, SharedSetting::Anonymous];
        let shared = |setting| self.huge().allows_shared(setting, asked);
        anonymous || settings.into_iter().any(shared)
    }

    /// Returns the huge zero page, or `None` if there is no memory for it. The page is allocated when it is first
    /// needed, and then kept.
    pub(crate) fn huge_zero_frame(&self) -> Option<Frame> {
        let zero = &self.huge().zero;
        let made = zero.load(Ordering::Acquire);
        if made != NONE {
            return Some(Frame::new(made));
        }
        let frames = self.frames();
        let folio = frames.allocate_zeroed(FOLIO_ORDER, FrameKind::Zero).ok()?;
        self.count(Row::FramesZeroed, HUGE_PAGES);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        match zero.compare_exchange(NONE, folio.frame().number(), order.0, order.1) {
            Ok(_) => Some(folio.into_raw()),
            Err(seen) => Some(Frame::new(seen)),
        }
    }

    /// Frees the huge zero page when the memory manager is dropped.
    pub(crate) fn drop_huge_zero_frame(&self) {
        let made = self.huge().zero.swap(NONE, Ordering::AcqRel);
        if made != NONE {
            drop(self.frames().adopt_whole(Frame::new(made)));
        }
    }
}

impl<M: Machine> HugePages<'_, M> {
    /// Returns whether `area`, of this address space, is eligible for a huge page (`THPeligible` in smaps).
    pub fn may_be_huge(&self, area: &Area<M>) -> bool {
        let first = area.start().number().next_multiple_of(HUGE_PAGES);
        let range = around(Page::new(first));
        self.space
            .core
            .area_may_be_huge(area, range, HugeAsker::Setting)
    }
}

impl<M: Machine> Core<M> {
    /// Returns the orders below 2 MiB of folios that may be allocated in `area`, which is anonymous. Memory registered
    /// with a userfaultfd gets single pages.
    pub(crate) fn folio_orders(&self, area: &Area<M>) -> FolioOrders {
        let flags = area.flags();
        if flags.intersects(SMALL_ONLY | AreaFlags::UFFD) {
            return FolioOrders::NONE;
        }
        let refusal = self.huge_refusal();
        let allows = |mode| may_be_huge(flags, mode, refusal, HugeAsker::Setting);
        let memory = &self.memory;
        memory.huge().sizes.orders(memory.policy().huge(), allows)
    }

    /// Returns whether `area` may have the huge page `range`.
    pub(crate) fn area_may_be_huge(
        &self,
        area: &Area<M>,
        range: PageRange,
        asker: HugeAsker,
    ) -> bool {
        let inside = area.start() <= range.start && range.end <= area.end();
        if !inside || area.flags().intersects(SMALL_ONLY) {
            return false;
        }
        let Some(object) = area.object() else {
            let mode = self.memory.huge_mode();
            return may_be_huge(area.flags(), mode, self.huge_refusal(), asker);
        };
        // The object checks the setting of shared memory.
        let asked = area.flags().contains(AreaFlags::HUGE);
        let enabled = match asker {
            HugeAsker::Setting => object.may_be_huge(&self.memory, asked),
            HugeAsker::Program => true,
        };
        enabled
            && area.offset_of(range.start) % HUGE_PAGES == 0
            && !area.flags().contains(AreaFlags::HUGETLB)
            && may_be_huge(area.flags(), HugeMode::Always, self.huge_refusal(), asker)
    }
}
