//! The decision whether an area may have huge pages (Linux 7.2 `mm/huge_memory.c`, `__thp_vma_allowable_orders`).

use crate::types::huge::{HugeMode, HugeRefusal};
use crate::vma::area::AreaFlags;

/// The source of a request for a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeAsker {
    /// A fault or khugepaged. The settings apply.
    Setting,
    /// An explicit collapse (`MADV_COLLAPSE`), or a fault in shared memory. The mode for anonymous memory does not
    /// apply.
    Program,
}

/// Returns whether an area with these flags may have huge pages (`__thp_vma_allowable_orders`, `vma_thp_disabled`).
pub fn may_be_huge(
    flags: AreaFlags,
    mode: HugeMode,
    refusal: HugeRefusal,
    asker: HugeAsker,
) -> bool {
    let asked = flags.contains(AreaFlags::HUGE);
    let forced = match asker {
        HugeAsker::Program => true,
        HugeAsker::Setting => false,
    };
    if flags.contains(AreaFlags::NOT_HUGE) {
        return false;
    }
    let refused = match refusal {
        HugeRefusal::Nothing => false,
        HugeRefusal::Everywhere => true,
        HugeRefusal::ExceptAdvised => !asked && !forced,
    };
    let enabled = match mode {
        HugeMode::Always => true,
        HugeMode::Advised => asked,
        HugeMode::Never => false,
    };
    !refused && (enabled || forced)
}

/// The flags of areas in which no fault or collapse maps a huge page: those of droppable memory and device memory.
/// Areas that are registered with a userfaultfd may have huge pages. But a fault that finds a marker maps a 4 KiB page,
/// and so does a handler that fills a missing page.
pub(crate) const SMALL_ONLY: AreaFlags = AreaFlags::DROPPABLE.union(AreaFlags::PHYSICAL);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_have_huge_pages() {
        use {HugeAsker::*, HugeMode::*, HugeRefusal::*};
        let (none, asked, not) = (AreaFlags::empty(), AreaFlags::HUGE, AreaFlags::NOT_HUGE);
        #[rustfmt::skip]
        let rows = [
            (none,  Always,  Nothing,       Setting, true),
            (none,  Advised, Nothing,       Setting, false),
            (asked, Advised, Nothing,       Setting, true),
            (asked, Never,   Nothing,       Setting, false),
            (not,   Always,  Nothing,       Setting, false),
            (none,  Never,   Nothing,       Program, true),
            (not,   Always,  Nothing,       Program, false),
            (asked, Always,  Everywhere,    Setting, false),
            (asked, Always,  Everywhere,    Program, false),
            (none,  Always,  ExceptAdvised, Setting, false),
            (asked, Advised, ExceptAdvised, Setting, true),
            (none,  Always,  ExceptAdvised, Program, true),
        ];
        for (flags, mode, refusal, asker, expected) in rows {
            assert_eq!(
                may_be_huge(flags, mode, refusal, asker),
                expected,
                "{flags:?} {mode:?} {refusal:?} {asker:?}"
            );
        }
    }
}
