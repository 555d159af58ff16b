//! Mount options of hugetlbfs (Linux 7.3 `fs/hugetlbfs/inode.c`, `hugetlbfs_parse_param`, `hugetlbfs_validate` and
//! `hugetlbfs_show_options`).

use crate::fs::{
    permission::Owner,
    tmpfs::{amount, id, value_of},
};
use alloc::sync::Arc;
use core::fmt;
use memwright::object::{HUGE_BYTES, HugeSubpool};
use memwright_linux_abi::{M, Memory, errno::Errno};

/// Default permissions of the root directory.
const DEFAULT_MODE: u32 = 0o755;

/// Permission bits that the option `mode` can set.
const MODE_BITS: u32 = 0o1777;

/// A size in an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the pool.
    Percent(u64),
}

impl Size {
    /// Parses a size. Ignores text after the number, as Linux does.
    fn parse(text: &str) -> Option<Self> {
        let (value, rest) = numeral(text)?;
        Some(match rest.starts_with('%') {
            true => Self::Percent(value),
            false => Self::Bytes(value),
        })
    }

    /// Returns the size in huge pages, rounded down. The pool has `pool` huge pages.
    fn pages(self, pool: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes / HUGE_BYTES,
            Self::Percent(percent) => (u128::from(percent) * u128::from(pool) / 100) as u64,
        }
    }
}

/// Parses a number with a suffix. Returns the number and the rest of the text, or `None` if the text does not begin
/// with a digit.
fn numeral(text: &str) -> Option<(u64, &str)> {
    let digit = text.starts_with(|first: char| first.is_ascii_digit());
    amount(text).filter(|_| digit)
}

/// The mount options of a hugetlbfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugetlbfsOptions {
    /// Maximum number of huge pages of its files; `None` for no limit.
    most: Option<u64>,
    /// Number of huge pages of the pool that are reserved for its files (`min_size`); `None` for no reservation.
    least: Option<u64>,
    /// Maximum number of inodes, including the root; `None` for no limit.
    pub nodes: Option<u64>,
    /// Permissions of the root directory.
    pub permissions: u32,
    /// Owner of the root directory.
    pub owner: Owner,
}

impl HugetlbfsOptions {
    /// Parses options, which are separated by commas. The pool has `pool` huge pages.
    ///
    /// # Errors
    /// `EINVAL` for an unknown option, an invalid value, and a page size other than 2 MiB.
    pub fn parse(pool: u64, owner: Owner, text: &[u8]) -> Result<Self, Errno> {
        let mut options = Self {
            most: None,
            least: None,
            nodes: None,
            permissions: DEFAULT_MODE,
            owner,
        };
        for word in text.split(|byte| *byte == b',') {
            options.read(pool, word)?;
        }
        Ok(options)
    }

    fn read(&mut self, pool: u64, word: &[u8]) -> Result<(), Errno> {
        let Some((key, value)) = value_of(word)? else {
            return Ok(());
        };
        match key {
            "size" => {
                let size = Size::parse(value).ok_or(Errno::EINVAL)?;
                self.most = Some(size.pages(pool));
            }
            "min_size" => {
                let size = Size::parse(value).ok_or(Errno::EINVAL)?;
                self.least = Some(size.pages(pool));
            }
            "nr_inodes" => {
                let (nodes, _) = numeral(value).ok_or(Errno::EINVAL)?;
                self.nodes = (nodes <= i64::MAX as u64).then_some(nodes);
            }
            "pagesize" => {
                let (bytes, _) = numeral(value).ok_or(Errno::EINVAL)?;
                if bytes != HUGE_BYTES {
                    return Err(Errno::EINVAL);
                }
            }
            "mode" => {
                let mode = u32::from_str_radix(value, 8).map_err(|_| Errno::EINVAL)?;
                self.permissions = mode & MODE_BITS;
            }
            "uid" => self.owner.user = id(value)?,
            "gid" => self.owner.group = id(value)?,
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Writes the page size and the options that differ from the defaults, each preceded by a comma.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn show(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        if self.owner.user != 0 {
            write!(out, ",uid={}", self.owner.user)?;
        }
        if self.owner.group != 0 {
            write!(out, ",gid={}", self.owner.group)?;
        }
        if self.permissions != DEFAULT_MODE {
            write!(out, ",mode={:o}", self.permissions)?;
        }
        if let Some(nodes) = self.nodes {
            write!(out, ",nr_inodes={nodes}")?;
        }
        write!(out, ",pagesize={}M", HUGE_BYTES >> 20)?;
        if let Some(most) = self.most {
            write!(out, ",size={}", most.wrapping_mul(HUGE_BYTES))?;
        }
        if let Some(least) = self.least {
            write!(out, ",min_size={}", least.wrapping_mul(HUGE_BYTES))?;
        }
        Ok(())
    }
}

/// A hugetlbfs that a program mounted.
pub struct Hugetlbfs {
    /// The options, which a remount does not change.
    pub options: HugetlbfsOptions,
    /// The limit and the reservation of huge pages; `None` if the mount has neither.
    pub subpool: Option<Arc<HugeSubpool<M>>>,
}

impl Hugetlbfs {
    /// Creates the state of a new mount (`hugetlbfs_fill_super`).
    ///
    /// # Errors
    /// `EINVAL` if `min_size` exceeds `size`; `ENOMEM` if the pool has fewer pages than `min_size`, or if the limit on
    /// inodes excludes the root.
    pub fn new(memory: &Arc<Memory>, options: HugetlbfsOptions) -> Result<Self, Errno> {
        let HugetlbfsOptions { most, least, .. } = options;
        if let (Some(most), Some(least)) = (most, least)
            && least > most
        {
            return Err(Errno::EINVAL);
        }
        let subpool = if most.is_some() || least.is_some() {
            let opened = HugeSubpool::new(memory.frames().clone(), most, least);
            Some(Arc::new(opened.map_err(|_| Errno::ENOMEM)?))
        } else {
            None
        };
        if options.nodes == Some(0) {
            return Err(Errno::ENOMEM);
        }
        Ok(Self { options, subpool })
    }

    /// Returns the capacity and the number of free huge pages that `statfs` reports. Without a limit on pages, Linux
    /// reports -1 for each of the two numbers if pages are reserved, and 0 otherwise.
    #[must_use]
    pub fn pages(&self) -> (u64, u64) {
        let counts = self.subpool.as_ref().and_then(|subpool| subpool.counts());
        match counts {
            None => (0, 0),
            Some(counts) => match counts.most {
                Some(most) => (most, most.saturating_sub(counts.held)),
                None => (u64::MAX, u64::MAX),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn shown(text: &str) -> Result<String, Errno> {
        let options = HugetlbfsOptions::parse(10, Owner::ROOT, text.as_bytes())?;
        let mut out = String::new();
        options.show(&mut out).unwrap();
        Ok(out)
    }

    #[test]
    fn options_are_read_and_shown() {
        #[rustfmt::skip]
        let rows: [(_, Result<_, Errno>); 10] = [
            ("", Ok(",pagesize=2M")),
            (",,=no key,rw,", Ok(",pagesize=2M")),
            ("pagesize=2048k,size=5M", Ok(",pagesize=2M,size=4194304")),
            ("pagesize=2Mrest,size=1Mrest", Ok(",pagesize=2M,size=0")),
            ("size=50%,min_size=19%", Ok(",pagesize=2M,size=10485760,min_size=2097152")),
            ("min_size=4M,size=4M", Ok(",pagesize=2M,size=4194304,min_size=4194304")),
            ("uid=3,gid=0x4,mode=7777,nr_inodes=1k", Ok(",uid=3,gid=4,mode=1777,nr_inodes=1024,pagesize=2M")),
            ("nr_inodes=18446744073709551615", Ok(",pagesize=2M")),
            ("mode=0755,nr_inodes=0", Ok(",nr_inodes=0,pagesize=2M")),
            ("min_size=4M,size=2M", Ok(",pagesize=2M,size=2097152,min_size=4194304")),
        ];
        for (text, expected) in rows {
            assert_eq!(shown(text).as_deref(), expected.as_ref().copied(), "{text}");
        }
        #[rustfmt::skip]
        let refused = [
            "size", "size=", "size=-1", "size=k", "size=99999999999999999999", "min_size=x", "nr_inodes=-1", "pagesize",
            "pagesize=0", "pagesize=4k", "pagesize=1G", "pagesize=4M", "pagesize=x", "mode=8", "uid=-1", "gid=x",
            "uid=4294967295", "unknown", "unknown=1", "huge=always", "nr_blocks=3", "ro",
        ];
        for text in refused {
            assert_eq!(shown(text), Err(Errno::EINVAL), "{text}");
        }
    }
}
