//! File types, as in `st_mode` and in directory records.

use linux_raw_sys::general as raw;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    Character,
    /// A block device.
    Block,
    /// A pipe, named or anonymous.
    Fifo,
    /// A socket.
    Socket,
    /// No type: an anonymous inode, such as that of an `eventfd`.
    Anonymous,
}

impl Kind {
    /// Returns the type bits of `st_mode`.
    #[must_use]
    pub const fn mode(self) -> u32 {
        match self {
            Self::Regular => raw::S_IFREG,
            Self::Directory => raw::S_IFDIR,
            Self::Symlink => raw::S_IFLNK,
            Self::Character => raw::S_IFCHR,
            Self::Block => raw::S_IFBLK,
            Self::Fifo => raw::S_IFIFO,
            Self::Socket => raw::S_IFSOCK,
            Self::Anonymous => 0,
        }
    }

    /// Returns the type as a directory record contains it (`d_type`), which is the type bits of `st_mode` shifted down.
    #[must_use]
    pub const fn directory_type(self) -> u8 {
        (self.mode() >> 12) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_types_are_those_of_the_interface() {
        let cases = [
            (Kind::Fifo, raw::DT_FIFO),
            (Kind::Character, raw::DT_CHR),
            (Kind::Block, raw::DT_BLK),
            (Kind::Directory, raw::DT_DIR),
            (Kind::Regular, raw::DT_REG),
            (Kind::Symlink, raw::DT_LNK),
            (Kind::Socket, raw::DT_SOCK),
            (Kind::Anonymous, raw::DT_UNKNOWN),
        ];
        for (kind, number) in cases {
            assert_eq!(u32::from(kind.directory_type()), number);
        }
    }
}
