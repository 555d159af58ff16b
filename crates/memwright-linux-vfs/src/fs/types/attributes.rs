//! Attributes of inodes and file systems, and the structures in which system calls return them.

use crate::fs::{kind::Kind, tmpfs::MountFlags};
use core::mem::{offset_of, size_of};
use linux_raw_sys::general as raw;

/// A point in time of the real-time clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Seconds since the epoch (1970-01-01).
    pub seconds: i64,
    /// Nanoseconds within that second.
    pub nanoseconds: u32,
}

impl Moment {
    /// Returns the point in time that is `nanoseconds` nanoseconds after the epoch (1970-01-01).
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self {
            seconds: (nanoseconds / 1_000_000_000) as i64,
            nanoseconds: (nanoseconds % 1_000_000_000) as u32,
        }
    }
}

/// The number of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// The driver (major number).
    pub major: u32,
    /// The driver's device (minor number).
    pub minor: u32,
}

impl DeviceNumber {
    /// Creates a device number.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Packs the number into one word, in the encoding of `st_dev`.
    #[must_use]
    pub const fn encode(self) -> u64 {
        let low = (self.minor & 0xff) | (self.major << 8);
        (low | ((self.minor & !0xff) << 12)) as u64
    }

    /// Unpacks the device argument of `mknod`; the inverse of [`Self::encode`].
    #[must_use]
    pub const fn decode(number: u32) -> Self {
        Self {
            major: (number & 0xf_ff00) >> 8,
            minor: (number & 0xff) | ((number >> 12) & 0xf_ff00),
        }
    }
}

/// The attributes of an inode that `stat`, `fstat` and `statx` report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The device of the file system.
    pub device: DeviceNumber,
    /// Inode number, unique on that device.
    pub inode: u64,
    /// The file type.
    pub kind: Kind,
    /// The twelve permission bits.
    pub permissions: u32,
    /// Number of hard links.
    pub links: u32,
    /// User id of the owner.
    pub user: u32,
    /// Group id of the owner.
    pub group: u32,
    /// The device to which a device node refers (`st_rdev`).
    pub special: DeviceNumber,
    /// Size in bytes.
    pub size: u64,
    /// Memory used, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
    /// Last access.
    pub accessed: Moment,
    /// Last change of the contents.
    pub modified: Moment,
    /// Last change of the inode.
    pub changed: Moment,
    /// Creation time.
    pub created: Moment,
}

/// Size of `struct stat` in bytes.
pub const STAT_SIZE: usize = size_of::<raw::stat>();
/// Size of `struct statx` in bytes.
pub const STATX_SIZE: usize = size_of::<raw::statx>();
/// Size of `struct statfs` in bytes.
pub const STATFS_SIZE: usize = size_of::<raw::statfs>();

/// Stores the bytes of a field at `offset` of a structure.
fn put<const N: usize>(record: &mut [u8], offset: usize, value: [u8; N]) {
    record[offset..offset + N].copy_from_slice(&value);
}

impl Attributes {
    /// Returns `st_mode`: type and permissions.
    #[must_use]
    pub const fn mode(&self) -> u32 {
        self.kind.mode() | self.permissions
    }

    /// Encodes the attributes as `struct stat`.
    #[must_use]
    pub fn to_stat(&self) -> [u8; STAT_SIZE] {
        let mut record = [0; STAT_SIZE];
        let wide = [
            (offset_of!(raw::stat, st_dev), self.device.encode()),
            (offset_of!(raw::stat, st_ino), self.inode),
            (offset_of!(raw::stat, st_nlink), u64::from(self.links)),
            (offset_of!(raw::stat, st_rdev), self.special.encode()),
            (offset_of!(raw::stat, st_size), self.size),
            (
                offset_of!(raw::stat, st_blksize),
                u64::from(self.block_size),
            ),
            (offset_of!(raw::stat, st_blocks), self.blocks),
        ];
        for (offset, value) in wide {
            put(&mut record, offset, value.to_le_bytes());
        }
        put(
            &mut record,
            offset_of!(raw::stat, st_mode),
            self.mode().to_le_bytes(),
        );
        put(
            &mut record,
            offset_of!(raw::stat, st_uid),
            self.user.to_le_bytes(),
        );
        put(
            &mut record,
            offset_of!(raw::stat, st_gid),
            self.group.to_le_bytes(),
        );
        let times = [
            (offset_of!(raw::stat, st_atime), self.accessed),
            (offset_of!(raw::stat, st_mtime), self.modified),
            (offset_of!(raw::stat, st_ctime), self.changed),
        ];
        for (offset, time) in times {
            put(&mut record, offset, time.seconds.to_le_bytes());
            put(
                &mut record,
                offset + 8,
                u64::from(time.nanoseconds).to_le_bytes(),
            );
        }
        record
    }

    /// Encodes the attributes as `struct statx`, including the creation time. `mount` is the mount id. `mount_root`
    /// states whether the inode is the root of a mount.
    #[must_use]
    pub fn to_statx(&self, mount: u64, mount_root: bool) -> [u8; STATX_SIZE] {
        let mut record = [0; STATX_SIZE];
        let mask = raw::STATX_BASIC_STATS | raw::STATX_BTIME | raw::STATX_MNT_ID;
        let root = u64::from(raw::STATX_ATTR_MOUNT_ROOT);
        let narrow = [
            (offset_of!(raw::statx, stx_mask), mask),
            (offset_of!(raw::statx, stx_blksize), self.block_size),
            (offset_of!(raw::statx, stx_nlink), self.links),
            (offset_of!(raw::statx, stx_uid), self.user),
            (offset_of!(raw::statx, stx_gid), self.group),
            (offset_of!(raw::statx, stx_rdev_major), self.special.major),
            (offset_of!(raw::statx, stx_rdev_minor), self.special.minor),
            (offset_of!(raw::statx, stx_dev_major), self.device.major),
            (offset_of!(raw::statx, stx_dev_minor), self.device.minor),
        ];
        for (offset, value) in narrow {
            put(&mut record, offset, value.to_le_bytes());
        }
        let mode = self.mode() as u16;
        put(
            &mut record,
            offset_of!(raw::statx, stx_mode),
            mode.to_le_bytes(),
        );
        let wide = [
            (offset_of!(raw::statx, stx_ino), self.inode),
            (offset_of!(raw::statx, stx_size), self.size),
            (offset_of!(raw::statx, stx_blocks), self.blocks),
            (offset_of!(raw::statx, stx_attributes_mask), root),
            (
                offset_of!(raw::statx, stx_attributes),
                if mount_root { root } else { 0 },
            ),
            (offset_of!(raw::statx, stx_mnt_id), mount),
        ];
        for (offset, value) in wide {
            put(&mut record, offset, value.to_le_bytes());
        }
        let times = [
            (offset_of!(raw::statx, stx_atime), self.accessed),
            (offset_of!(raw::statx, stx_btime), self.created),
            (offset_of!(raw::statx, stx_ctime), self.changed),
            (offset_of!(raw::statx, stx_mtime), self.modified),
        ];
        for (offset, time) in times {
            put(&mut record, offset, time.seconds.to_le_bytes());
            put(&mut record, offset + 8, time.nanoseconds.to_le_bytes());
        }
        record
    }
}

/// The status of a file system that `statfs` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemStatus {
    /// The file system's magic number.
    pub magic: u32,
    /// Size of a block in bytes.
    pub block_size: u64,
    /// Capacity, in blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Maximum number of inodes; 0 if unlimited.
    pub nodes: u64,
    /// Number of inodes that can still be created.
    pub free_nodes: u64,
    /// The device of the file system, which also serves as its id (`f_fsid`).
    pub device: DeviceNumber,
    /// The flags of the mount.
    pub flags: MountFlags,
}

impl SystemStatus {
    /// Encodes the status as `struct statfs`.
    #[must_use]
    pub fn to_statfs(&self) -> [u8; STATFS_SIZE] {
        let mut record = [0; STATFS_SIZE];
        let fields = [
            (offset_of!(raw::statfs, f_type), u64::from(self.magic)),
            (offset_of!(raw::statfs, f_bsize), self.block_size),
            (offset_of!(raw::statfs, f_blocks), self.blocks),
            (offset_of!(raw::statfs, f_bfree), self.free),
            (offset_of!(raw::statfs, f_bavail), self.free),
            (offset_of!(raw::statfs, f_files), self.nodes),
            (offset_of!(raw::statfs, f_ffree), self.free_nodes),
            (offset_of!(raw::statfs, f_fsid), self.device.encode()),
            (
                offset_of!(raw::statfs, f_namelen),
                crate::fs::name::NAME_MAX as u64,
            ),
            (offset_of!(raw::statfs, f_frsize), self.block_size),
            // 0x0020 is `ST_VALID` of `include/linux/statfs.h`.
            (
                offset_of!(raw::statfs, f_flags),
                0x0020 | u64::from(self.flags.bits()),
            ),
        ];
        for (offset, value) in fields {
            put(&mut record, offset, value.to_le_bytes());
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Attributes = Attributes {
        device: DeviceNumber::new(0, 0x1234),
        inode: 77,
        kind: Kind::Regular,
        permissions: 0o644,
        links: 2,
        user: 1000,
        group: 100,
        special: DeviceNumber::new(1, 3),
        size: 0x1_0000_0001,
        blocks: 8,
        block_size: 4096,
        accessed: Moment {
            seconds: 1,
            nanoseconds: 2,
        },
        modified: Moment {
            seconds: -3,
            nanoseconds: 4,
        },
        changed: Moment {
            seconds: 5,
            nanoseconds: 6,
        },
        created: Moment {
            seconds: 7,
            nanoseconds: 8,
        },
    };

    fn word(record: &[u8], offset: usize) -> u64 {
        u64::from_le_bytes(record[offset..offset + 8].try_into().unwrap())
    }

    #[test]
    fn stat_has_the_layout_of_the_interface() {
        let record = SAMPLE.to_stat();
        assert_eq!(record.len(), 144);
        assert_eq!(word(&record, 0), 0x34 | 0x12 << 20);
        assert_eq!(word(&record, 8), 77);
        assert_eq!(word(&record, 16), 2);
        assert_eq!(record[24..28], 0o100_644_u32.to_le_bytes());
        assert_eq!(word(&record, 40), 0x103);
        assert_eq!(word(&record, 48), 0x1_0000_0001);
        assert_eq!(word(&record, 88) as i64, -3);
        assert_eq!(word(&record, 96), 4);
    }

    #[test]
    fn statx_has_the_layout_of_the_interface() {
        let record = SAMPLE.to_statx(21, true);
        assert_eq!(record.len(), 256);
        assert_eq!(record[0x1c..0x1e], 0o100_644_u16.to_le_bytes());
        assert_eq!(word(&record, 0x20), 77);
        assert_eq!(word(&record, 0x28), 0x1_0000_0001);
        assert_eq!(word(&record, 0x50), 7);
        assert_eq!(word(&record, 0x70) as i64, -3);
        assert_eq!(word(&record, 0x90), 21);
    }

    #[test]
    fn device_numbers_survive_encoding() {
        for (major, minor) in [(0, 0), (1, 3), (4095, 0xf_ffff), (5, 0x1ff)] {
            let device = DeviceNumber::new(major, minor);
            assert_eq!(DeviceNumber::decode(device.encode() as u32), device);
        }
        assert_eq!(DeviceNumber::new(1, 3).encode(), 0x103);
    }
}
