//! Address-space tags: PCIDs on x86-64, ASIDs elsewhere. A CPU with tags keeps translations of roots that it no longer
//! has loaded. The translations of each root have a separate tag.
//!
//! A CPU may use kept translations again on two conditions. First, no translation or right was removed from the tables
//! since the CPU unloaded the root. [`Table`](crate::Table) tracks these removals, and calls
//! [`load_kept_root`](crate::Machine::load_kept_root) only if there was none. Second, the tag was not assigned to
//! another root since then. [`Tags`] tracks these assignments.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::addr::Frame;

/// The maximum number of tags that one CPU uses, as on Linux (`TLB_NR_DYN_ASIDS`, arch/x86/include/asm/tlbflush.h,
/// 7.2).
pub const MOST_TAGS: usize = 6;

/// The value of a tag that is assigned to no root. No frame has this number.
const UNUSED: u32 = u32::MAX;

/// The roots to which the tags of one CPU are assigned. Only that CPU calls the methods, with interrupts disabled.
#[derive(Debug)]
pub struct Tags {
    roots: [AtomicU32; MOST_TAGS],
    /// The tag to be assigned next.
    next: AtomicU32,
}

/// The tag with which a CPU loads a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagChoice {
    /// The tag, counted from 0.
    pub tag: usize,
    /// Whether the CPU may keep the translations that have the tag. If false, the load of the root must drop them.
    pub kept: bool,
}

impl Default for Tags {
    fn default() -> Self {
        Self::new()
    }
}

impl Tags {
    /// Creates the state in which no tag is assigned.
    pub const fn new() -> Self {
        Self {
            roots: [const { AtomicU32::new(UNUSED) }; MOST_TAGS],
            next: AtomicU32::new(0),
        }
    }

    /// Chooses one of the first `count` tags for loading `root`. The choice keeps the translations with the tag if the
    /// tag is already assigned to `root` and `keep` is true, which means that these translations match the tables.
    ///
    /// # Panics
    /// If `count` is not from 1 to [`MOST_TAGS`].
    pub fn choose(&self, root: Frame, count: usize, keep: bool) -> TagChoice {
        let roots = &self.roots[..count];
        let number = root.number();
        let found = roots
            .iter()
            .position(|of| of.load(Ordering::Relaxed) == number);
        if let Some(tag) = found {
            return TagChoice { tag, kept: keep };
        }
        let tag = self.next.load(Ordering::Relaxed) as usize % count;
        self.next.store(tag as u32 + 1, Ordering::Relaxed);
        roots[tag].store(number, Ordering::Relaxed);
        TagChoice { tag, kept: false }
    }

    /// Releases the tag of `root`, which must not be loaded. The next load of the root uses no kept translations.
    pub fn forget(&self, root: Frame) {
        for of in &self.roots {
            if of.load(Ordering::Relaxed) == root.number() {
                of.store(UNUSED, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(tags: &Tags, root: u32, keep: bool) -> (usize, bool) {
        let choice = tags.choose(Frame::new(root), 2, keep);
        (choice.tag, choice.kept)
    }

    #[test]
    fn a_root_finds_its_tag_until_that_is_given_away() {
        let tags = Tags::new();
        assert_eq!(choose(&tags, 7, true), (0, false), "never loaded before");
        assert_eq!(choose(&tags, 8, false), (1, false));
        assert_eq!(choose(&tags, 7, true), (0, true));
        assert_eq!(choose(&tags, 8, false), (1, false), "stale");
        assert_eq!(choose(&tags, 9, true), (0, false));
        assert_eq!(choose(&tags, 7, true), (1, false), "its tag is another's");
        assert_eq!(choose(&tags, 9, true), (0, true));
    }

    #[test]
    fn a_root_that_was_forgotten_finds_nothing() {
        let tags = Tags::new();
        choose(&tags, 7, false);
        choose(&tags, 8, false);
        tags.forget(Frame::new(7));
        tags.forget(Frame::new(5));
        assert!(!choose(&tags, 7, true).1);
        assert_eq!(choose(&tags, 7, true), (0, true));
    }

    #[test]
    fn one_tag_serves_one_root() {
        let tags = Tags::new();
        let mut load = |root| tags.choose(Frame::new(root), 1, true);
        let loads = [7, 8, 7, 7].map(&mut load);
        assert_eq!(loads.map(|choice| choice.tag), [0; 4]);
        assert_eq!(loads.map(|choice| choice.kept), [false, false, false, true]);
    }
}
