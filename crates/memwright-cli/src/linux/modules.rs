//! The modules of Linux kernels that guests load.

use std::ffi::OsStr;
use std::path::Path;

use crate::model::size::SwapKind;

/// The version of these lists. A Debian kernel that was stored with another version counts as missing and must be
/// downloaded again.
pub const LISTS: u32 = 1;

/// The modules for swap in compressed memory (zram), in the order of loading.
const ZRAM: &[&str] = &[
    "lib/lz4/lz4_compress",
    "lib/lz4/lz4hc_compress",
    "crypto/lz4",
    "crypto/lz4hc",
    "mm/zsmalloc",
    "drivers/block/zram/zram",
];

/// The modules for a disk, in the order of loading.
const DISK: &[&str] = &[
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
];

/// Returns the paths of all modules relative to the folder of a kernel's modules, without suffixes, in the order of
/// loading. A kernel's folder lacks the modules that are built into the kernel or that the kernel does not have.
pub fn all() -> impl Iterator<Item = &'static str> {
    ZRAM.iter().chain(DISK).copied()
}

/// Returns whether this kind of swap needs the stored module with the path `stored`. The file name of a stored module
/// has the form `05-zram.ko.xz`.
pub fn serves(stored: &Path, kind: SwapKind) -> bool {
    let list = match kind {
        SwapKind::Zram => ZRAM,
        SwapKind::Disk => DISK,
    };
    let name = stored.file_name().and_then(OsStr::to_str);
    let name = name.and_then(|name| name.split_once('-'));
    let Some((module, _)) = name.and_then(|(_, name)| name.split_once('.')) else {
        return false;
    };
    list.iter()
        .any(|path| path.rsplit('/').next() == Some(module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_swap_has_its_modules() {
        for (stored, zram, disk) in [
            ("00-lz4_compress.ko", true, false),
            ("5-zram.ko.xz", true, false),
            ("modules/06-virtio.ko.zst", false, true),
            ("11-virtio_blk.ko", false, true),
            ("virtio_blk.ko", false, false),
            ("11-virtio_blk", false, false),
            ("12-other.ko", false, false),
        ] {
            let stored = Path::new(stored);
            assert_eq!(serves(stored, SwapKind::Zram), zram, "{stored:?}");
            assert_eq!(serves(stored, SwapKind::Disk), disk, "{stored:?}");
        }
    }
}
