//! Address-space tags: PCIDs on x86-64, ASIDs elsewhere. A CPU that has them keeps translations of roots that it no
//! longer has loaded, those of each root under a separate tag.
//!
//! Kept translations may be used again on two conditions. First, nothing was removed from the tables meanwhile: the
//! [`Table`](crate::Table) tracks this, and calls [`load_kept_root`](crate::Machine::load_kept_root) only then. Second,
//! their tag was not assigned to another root meanwhile: [`Tags`] tracks this.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::addr::Frame;

/// The largest number of tags that one CPU uses: Linux's number (`TLB_NR_DYN_ASIDS`, arch/x86/include/asm/tlbflush.h,
/// 7.2).
pub const MOST_TAGS: usize = 6;

/// No frame has this number.
const UNUSED: u32 = u32::MAX;

/// The roots that the tags of one CPU stand for. Only that CPU calls the methods, with interrupts disabled.
#[derive(Debug)]
pub struct Tags {
    roots: [AtomicU32; MOST_TAGS],
    /// The tag to be assigned next.
    next: AtomicU32,
}

/// How a root is to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagChoice {
    /// The tag, counted from 0.
    pub tag: usize,
    /// Whether the translations under it are kept; otherwise the load drops them.
    pub kept: bool,
}

impl Default for Tags {
    fn default() -> Self {
        Self::new()
    }
}

impl Tags {
    /// Creates the state in which no tag stands for a root.
    pub const fn new() -> Self {
        Self {
            roots: [const { AtomicU32::new(UNUSED) }; MOST_TAGS],
            next: AtomicU32::new(0),
        }
    }

    /// Chooses one of the first `count` tags for loading `root`. The translations kept under it are used if the tag
    /// already belongs to `root` and `keep` says that they match the tables.
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

    /// Drops the tag of `root`, which is not loaded: the next load of the root finds no kept translations.
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
