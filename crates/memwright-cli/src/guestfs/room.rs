//! Calculates how much memory a guest's configuration requires, before its program runs.
//!
//! The constants are rounded up. A guest that passes the check boots. A guest that fails the check would have almost no
//! memory left for its program.

use crate::guestfs::tree::{Node, Tree};
use crate::model::size::{SwapKind, SwapSize};

/// The number of bytes that the kernel itself uses: image, first page tables, heap.
const KERNEL: u64 = 8 << 20;
/// The number of bytes that each additional CPU uses: stacks and per-CPU lists.
const CPU: u64 = 170 << 10;
/// The number of bytes of metadata per page in the frame allocator.
const PAGE_RECORD: u64 = 72;
/// The number of bytes that a file, folder or link uses in addition to its contents, including its entry in its folder.
const NODE: u64 = 1100;
/// The number of files, folders and devices in every guest, rounded up.
const OWN_NODES: u64 = 100;
/// The number of bytes of metadata for each page of an empty swap device: `SLOT_OF_DISK` for a disk, and `SLOT_OF_ZRAM`
/// for compressed memory (zram), which also has an index.
const SLOT_OF_DISK: u64 = 11;
const SLOT_OF_ZRAM: u64 = 33;
/// With a hugetlb pool, one in `RESERVE_SHARE` pages outside the pool is reserved, but at least `LEAST_RESERVE` bytes
/// and at most `MOST_RESERVE` bytes.
const RESERVE_SHARE: u64 = 64;
const LEAST_RESERVE: u64 = 1 << 20;
const MOST_RESERVE: u64 = 16 << 20;

const PAGE: u64 = 4096;

/// The parts of a guest that take memory.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The sizes of its files.
    pub files: Files,
    /// The number of its CPUs.
    pub cpus: u8,
    /// The size of its hugetlb pool in bytes.
    pub pool: u64,
    /// Its swap devices.
    pub swap: &'a [SwapSize],
}

impl Wanted<'_> {
    /// Returns whether this amount of memory, in bytes, suffices.
    pub fn fits(&self, memory: u64) -> bool {
        self.missing(memory) == 0
    }

    /// Returns how many usable bytes a guest with `memory` bytes lacks; 0 if the memory suffices.
    fn missing(&self, memory: u64) -> u64 {
        let files = &self.files;
        // The tmpfs with the guest's files uses at most half of the frames, and has one inode per two frames
        // (mm/shmem.c, `shmem_default_max_blocks` and `shmem_default_max_inodes`).
        let halves = files.pages.max(files.nodes.saturating_add(OWN_NODES));
        let halves = halves.saturating_mul(2 * PAGE);
        // The kernel's heap also uses at most half of the frames.
        let heap = files
            .nodes
            .saturating_mul(NODE)
            .saturating_add(self.slots());
        let halves = halves.max(heap.saturating_mul(2)).saturating_add(KERNEL);
        let usable = self.usable(memory);
        self.bytes().max(halves).saturating_sub(usable)
    }

    /// Returns the minimum amount of memory that suffices, in MiB.
    pub fn mebibytes(&self) -> u64 {
        let mut memory: u64 = 0;
        // The memory that an iteration adds also needs metadata, but only a fraction of its size. The loop therefore
        // ends after a few iterations.
        while memory < u64::MAX && !self.fits(memory) {
            memory = memory.saturating_add(self.missing(memory).max(PAGE));
        }
        memory.div_ceil(1 << 20)
    }

    /// Returns the size of the swap devices' metadata in bytes.
    fn slots(&self) -> u64 {
        let slots = |swap: &SwapSize| {
            let each = match swap.kind {
                SwapKind::Disk => SLOT_OF_DISK,
                SwapKind::Zram => SLOT_OF_ZRAM,
            };
            swap.bytes() / PAGE * each
        };
        self.swap.iter().map(slots).sum()
    }

    /// Returns how many bytes the guest requires. The metadata and the reserve whose size depends on the guest's memory
    /// are not included: see [`usable`](Self::usable).
    fn bytes(&self) -> u64 {
        let swap = self.slots();
        let cpus = CPU * u64::from(self.cpus.saturating_sub(1));
        let Files {
            archived,
            pages,
            nodes,
        } = self.files;
        let (contents, nodes) = (pages.saturating_mul(PAGE), nodes.saturating_mul(NODE));
        [archived, contents, nodes, cpus, self.pool, swap]
            .into_iter()
            .fold(KERNEL, u64::saturating_add)
    }

    /// Returns how many of `memory` bytes the guest can use. The metadata of frames and, with a hugetlb pool, the
    /// reserve are subtracted.
    fn usable(&self, memory: u64) -> u64 {
        let records = memory / PAGE * PAGE_RECORD;
        let reserve = match self.pool {
            0 => 0,
            _ => (memory / RESERVE_SHARE).clamp(LEAST_RESERVE, MOST_RESERVE),
        };
        memory.saturating_sub(records).saturating_sub(reserve)
    }
}

/// The sizes of a guest's files, in the archive and after unpacking.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files {
    /// The size of the archive in bytes.
    pub archived: u64,
    /// The number of pages of the files' contents.
    pub pages: u64,
    /// The number of files, folders and links.
    pub nodes: u64,
}

impl Files {
    /// Returns the sizes of a tree's files.
    pub fn of(tree: &Tree) -> Self {
        let mut files = Self::default();
        for (path, node) in tree.nodes() {
            let (contents, pages) = match node {
                Node::Folder { .. } => (0, 0),
                Node::Link { target } => (target.as_os_str().len() as u64, 0),
                Node::HostFile { size, .. } => (*size, size.div_ceil(PAGE)),
                Node::Text { contents, .. } => {
                    let size = contents.len() as u64;
                    (size, size.div_ceil(PAGE))
                }
            };
            // A header of 110 bytes, and the padding of the name and of the contents to multiples of four bytes.
            let name = path.as_os_str().len() as u64 + 120;
            let archived = name.saturating_add(contents);
            files.archived = files.archived.saturating_add(archived);
            files.pages = files.pages.saturating_add(pages);
            files.nodes += 1;
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::size::parse_swap;

    const MEBIBYTE: u64 = 1 << 20;

    #[test]
    fn what_does_not_fit_says_how_much_would() {
        let swap = |text: &str| -> Vec<SwapSize> {
            let words = text.split_whitespace();
            words.map(|text| parse_swap(text).unwrap()).collect()
        };
        for (cpus, pool, devices, least) in [
            (1, 0, "", 9),
            (8, 0, "", 10),
            (64, 0, "", 19),
            (1, 0, "zram:1G", 25),
            (1, 0, "disk:1G", 14),
            (1, 0, "zram:16G", 277),
            (1, 0, "disk:63G zram:63G", 1419),
            (1, 4, "", 14),
            (1, 500, "", 526),
            (1, 1 << 20, "", 1_067_363),
            (64, 4, "zram:1G", 33),
        ] {
            let wanted = Wanted {
                files: Files::default(),
                cpus,
                pool: pool * MEBIBYTE,
                swap: &swap(devices),
            };
            assert_eq!(wanted.mebibytes(), least, "{cpus} {pool} {devices}");
            assert!(wanted.fits(least * MEBIBYTE) && !wanted.fits((least - 1) * MEBIBYTE));
        }
        let endless = Files {
            archived: u64::MAX,
            pages: u64::MAX,
            nodes: u64::MAX,
        };
        let all = Wanted {
            files: endless,
            cpus: 1,
            pool: u64::MAX,
            swap: &[],
        };
        assert!(!all.fits(u64::MAX) && all.mebibytes() == u64::MAX.div_ceil(MEBIBYTE));
    }

    #[test]
    fn files_take_pages_and_nodes() {
        let mut tree = Tree::default();
        for number in 0..1000 {
            tree.add_text(&format!("/{number}"), 0o644, "");
        }
        tree.add_text("/one", 0o644, "x");
        let files = Files::of(&tree);
        // The root folder is counted too.
        assert_eq!((files.pages, files.nodes), (1, 1002));
        assert!((122_000..125_000).contains(&files.archived), "{files:?}");
        for (nodes, pages, least) in [
            (100_000, 0, 805),
            (100_000, 100_000, 805),
            (1000, 100_000, 804),
            (1000, 1000, 17),
        ] {
            let wanted = Wanted {
                files: Files {
                    archived: nodes * 128,
                    pages,
                    nodes,
                },
                cpus: 1,
                pool: 0,
                swap: &[],
            };
            assert_eq!(wanted.mebibytes(), least, "{nodes} {pages}");
        }
    }
}
