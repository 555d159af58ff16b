//! Flags of all mounts, and mount options of tmpfs (Linux 7.2 `mm/shmem.c`, `shmem_parse_one` and
//! `shmem_show_options`).

use crate::fs::permission::Owner;
use alloc::sync::Arc;
use core::fmt;
use linux_raw_sys::general as raw;
use memwright::{SharedMode, object::Room};
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_base::flags;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::PAGE_SIZE;

/// The number of bytes of extended attributes that count as one inode against the limit `nr_inodes`
/// (`BOGO_INODE_SIZE`).
pub const NODE_SIZE: u64 = 1024;

/// Default permissions of the root directory of a tmpfs.
const DEFAULT_MODE: u32 = 0o1777;

flags! {
    /// Mount flags, with the values that `statfs` reports (`include/linux/statfs.h`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MountFlags: u32 {
        /// Set-id bits have no effect. This kernel ignores them on every mount.
        const NO_SET_ID = 0x2;
        /// Device nodes cannot be opened.
        const NO_DEVICES = 0x4;
        /// Files cannot be executed.
        const NO_EXECUTION = 0x8;
        /// Access times are not updated.
        const NO_ACCESS_TIMES = 0x400;
        /// Access times of directories are not updated. This kernel never updates access times of directories.
        const NO_DIRECTORY_TIMES = 0x800;
        /// Access times are updated only after a change of the file, or when they are a day old.
        const RELATIVE_TIMES = 0x1000;
    }
}

impl MountFlags {
    /// The flags with their text in `/proc/mounts`, in the order in which `/proc/mounts` shows them.
    const WORDS: [(Self, &'static str); 6] = [
        (Self::NO_SET_ID, ",nosuid"),
        (Self::NO_DEVICES, ",nodev"),
        (Self::NO_EXECUTION, ",noexec"),
        (Self::NO_ACCESS_TIMES, ",noatime"),
        (Self::NO_DIRECTORY_TIMES, ",nodiratime"),
        (Self::RELATIVE_TIMES, ",relatime"),
    ];

    /// The flags about access times.
    const TIMES: Self = Self::NO_ACCESS_TIMES
        .union(Self::NO_DIRECTORY_TIMES)
        .union(Self::RELATIVE_TIMES);

    /// Decodes the flags of `mount`. For a remount, `before` is the set of present flags. The present flags about
    /// access times are kept unless `flags` contains a flag about access times (Linux 7.2 `fs/namespace.c`,
    /// `path_mount`).
    ///
    /// # Errors
    /// `EINVAL` for anything other than a read-write mount.
    pub fn decode(flags: u32, before: Option<Self>) -> Result<Self, Errno> {
        let bits = [
            (raw::MS_NOSUID, Self::NO_SET_ID),
            (raw::MS_NODEV, Self::NO_DEVICES),
            (raw::MS_NOEXEC, Self::NO_EXECUTION),
            (raw::MS_NOATIME, Self::NO_ACCESS_TIMES),
            (raw::MS_NODIRATIME, Self::NO_DIRECTORY_TIMES),
        ];
        let known = bits.iter().fold(0, |known, (bit, _)| known | bit);
        let times = raw::MS_RELATIME | raw::MS_STRICTATIME;
        if flags & !(known | times | raw::MS_SILENT) != 0 {
            return Err(Errno::EINVAL);
        }
        let given = bits.iter().filter(|(bit, _)| flags & bit != 0);
        let mut decoded = given.fold(Self::empty(), |decoded, (_, meant)| decoded | *meant);
        decoded.set(Self::RELATIVE_TIMES, flags & raw::MS_NOATIME == 0);
        if flags & raw::MS_STRICTATIME != 0 {
            decoded -= Self::RELATIVE_TIMES | Self::NO_ACCESS_TIMES;
        }
        let said = times | raw::MS_NOATIME | raw::MS_NODIRATIME;
        if let Some(before) = before.filter(|_| flags & said == 0) {
            decoded = decoded.difference(Self::TIMES) | before.intersection(Self::TIMES);
        }
        Ok(decoded)
    }

    /// Writes the text of the flags for `/proc/mounts`, each preceded by a comma.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn show(self, out: &mut dyn fmt::Write) -> fmt::Result {
        let set = Self::WORDS.iter().filter(|(flag, _)| self.contains(*flag));
        set.map(|(_, word)| word)
            .try_for_each(|word| out.write_str(word))
    }
}

/// The mount options of a tmpfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TmpfsOptions {
    /// Maximum number of pages of its files; 0 for no limit.
    pub pages: u64,
    /// Maximum number of inodes; 0 for no limit.
    pub nodes: u64,
    /// Permissions of the root directory.
    pub permissions: u32,
    /// Owner of the root directory.
    pub owner: Owner,
    /// Which of its files use huge pages.
    pub huge: SharedMode,
}

impl TmpfsOptions {
    /// Returns the default options on a machine with `total` pages of memory. The limits on pages and on inodes are
    /// half of that number.
    #[must_use]
    pub const fn default_of(total: u64, owner: Owner) -> Self {
        Self {
            pages: total / 2,
            nodes: total / 2,
            permissions: DEFAULT_MODE,
            owner,
            huge: SharedMode::Never,
        }
    }

    /// Parses options, which are separated by commas. A comma before a digit is not a separator. The machine has
    /// `total` pages of memory.
    ///
    /// # Errors
    /// `EINVAL` for an unknown option or an invalid value.
    pub fn parse(total: u64, owner: Owner, text: &[u8]) -> Result<Self, Errno> {
        Self::default_of(total, owner).with(total, text)
    }

    /// Returns these options after applying the options in `text`.
    fn with(self, total: u64, text: &[u8]) -> Result<Self, Errno> {
        let mut options = self;
        let mut rest = text;
        while !rest.is_empty() {
            let is_end =
                |at: &usize| rest[*at] == b',' && !rest.get(at + 1).is_some_and(u8::is_ascii_digit);
            let end = (0..rest.len()).find(is_end);
            let word = &rest[..end.unwrap_or(rest.len())];
            rest = end.map_or(&[], |end| &rest[end + 1..]);
            options.read(total, word)?;
        }
        Ok(options)
    }

    /// Returns the limit on pages, or `None` if there is no limit.
    fn most_pages(&self) -> Option<u64> {
        (self.pages != 0).then_some(self.pages)
    }

    fn read(&mut self, total: u64, word: &[u8]) -> Result<(), Errno> {
        if word == b"inode64" {
            return Ok(());
        }
        let Some((key, value)) = value_of(word)? else {
            return Ok(());
        };
        match key {
            "size" => self.pages = pages_of(value, total)?,
            "nr_blocks" => {
                self.pages = whole(value)
                    .filter(|pages| *pages <= i64::MAX as u64)
                    .ok_or(Errno::EINVAL)?;
            }
            "nr_inodes" => {
                let fits = |nodes: &u64| *nodes <= u64::MAX / NODE_SIZE;
                self.nodes = whole(value).filter(fits).ok_or(Errno::EINVAL)?;
            }
            "mode" => {
                let mode = u32::from_str_radix(value, 8).map_err(|_| Errno::EINVAL)?;
                self.permissions = mode & 0o7777;
            }
            "uid" => self.owner.user = id(value)?,
            "gid" => self.owner.group = id(value)?,
            "huge" => self.huge = huge(value)?,
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Returns the options after a remount with the options in `text`, while the file system has `pages` pages and
    /// `nodes` inodes (Linux 7.2 `mm/shmem.c`, `shmem_reconfigure`). The permissions and owner of the root are
    /// unchanged.
    ///
    /// # Errors
    /// `EINVAL` for an unknown option, an invalid value, a limit below the number in use, and a limit that was not set
    /// before.
    fn changed(self, total: u64, text: &[u8], pages: u64, nodes: u64) -> Result<Self, Errno> {
        let new = Self {
            permissions: self.permissions,
            owner: self.owner,
            ..self.with(total, text)?
        };
        let may = |before: u64, after: u64, used: u64| {
            after == before || after == 0 || before != 0 && used <= after
        };
        if may(self.pages, new.pages, pages) && may(self.nodes, new.nodes, nodes) {
            Ok(new)
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// Writes `inode64` and the options that differ from the defaults of a machine with `total` pages of memory, each
    /// preceded by a comma.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn show(&self, total: u64, out: &mut dyn fmt::Write) -> fmt::Result {
        let default = Self::default_of(total, Owner::ROOT);
        if self.pages != default.pages {
            write!(out, ",size={}k", self.pages * (PAGE_SIZE as u64 / 1024))?;
        }
        if self.nodes != default.nodes {
            write!(out, ",nr_inodes={}", self.nodes)?;
        }
        if self.permissions != default.permissions {
            write!(out, ",mode={:03o}", self.permissions)?;
        }
        if self.owner.user != 0 {
            write!(out, ",uid={}", self.owner.user)?;
        }
        if self.owner.group != 0 {
            write!(out, ",gid={}", self.owner.group)?;
        }
        out.write_str(",inode64")?;
        let named = SharedMode::ALL.iter().find(|(mode, _)| *mode == self.huge);
        match named {
            Some((mode, name)) if *mode != SharedMode::Never => write!(out, ",huge={name}"),
            Some(_) | None => Ok(()),
        }
    }
}

/// Splits a mount option into its key and value. Returns `None` for an option without effect: one without a key, or one
/// that is always in effect and has no value.
///
/// # Errors
/// `EINVAL` for another option without a value.
pub(in crate::fs) fn value_of(word: &[u8]) -> Result<Option<(&str, &str)>, Errno> {
    let word = core::str::from_utf8(word).map_err(|_| Errno::EINVAL)?;
    let (key, value) = match word.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (word, None),
    };
    match (key, value) {
        ("", _) | ("rw" | "async" | "nolazytime" | "nomand", None) => Ok(None),
        (_, None | Some("")) => Err(Errno::EINVAL),
        (_, Some(value)) => Ok(Some((key, value))),
    }
}

/// Parses the digits at the start of `text` as a number in C notation (`simple_strtoull`). Returns the number and the
/// rest of the text, or `None` if the number exceeds 64 bits.
fn number(text: &str) -> Option<(u64, &str)> {
    let (radix, digits) = match text.as_bytes() {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => (16, &text[2..]),
        [b'0', ..] => (8, text),
        _ => (10, text),
    };
    let end = digits.find(|digit: char| !digit.is_digit(radix));
    let (digits, rest) = digits.split_at(end.unwrap_or(digits.len()));
    if digits.is_empty() {
        return Some((0, rest));
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    Some((value, rest))
}

/// Parses a number with a suffix for powers of 1,024 (`memparse`). Returns the number and the rest of the text, or
/// `None` if the number exceeds 64 bits.
pub(in crate::fs) fn amount(text: &str) -> Option<(u64, &str)> {
    let (value, rest) = number(text)?;
    let shift = match rest
        .bytes()
        .next()
        .map(|suffix| suffix.to_ascii_lowercase())
    {
        Some(b'k') => 10,
        Some(b'm') => 20,
        Some(b'g') => 30,
        Some(b't') => 40,
        Some(b'p') => 50,
        Some(b'e') => 60,
        Some(_) | None => return Some((value, rest)),
    };
    Some((value.checked_mul(1 << shift)?, &rest[1..]))
}

/// Parses a number with a suffix as [`amount`] does. Returns `None` if text follows the number.
fn whole(text: &str) -> Option<u64> {
    amount(text)
        .filter(|(_, rest)| rest.is_empty())
        .map(|(value, _)| value)
}

/// Parses a size in bytes, or in percent of the `total` pages of memory. Returns the size in pages, rounded up.
fn pages_of(text: &str, total: u64) -> Result<u64, Errno> {
    let (value, rest) = amount(text).ok_or(Errno::EINVAL)?;
    match rest {
        "" => Ok(value.div_ceil(PAGE_SIZE as u64)),
        "%" => {
            let bytes = u128::from(value) * u128::from(total) * PAGE_SIZE as u128 / 100;
            let bytes = u64::try_from(bytes).map_err(|_| Errno::EINVAL)?;
            Ok(bytes.div_ceil(PAGE_SIZE as u64))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Parses a user or group id. The largest 32-bit number is invalid.
pub(in crate::fs) fn id(text: &str) -> Result<u32, Errno> {
    let (value, rest) = number(text).ok_or(Errno::EINVAL)?;
    let id = u32::try_from(value).map_err(|_| Errno::EINVAL)?;
    let is_number = text.starts_with(|first: char| first.is_ascii_digit()) && rest.is_empty();
    if is_number && id != u32::MAX {
        Ok(id)
    } else {
        Err(Errno::EINVAL)
    }
}

fn huge(text: &str) -> Result<SharedMode, Errno> {
    let named = SharedMode::ALL.iter().find(|(_, name)| *name == text);
    match named.map(|(mode, _)| *mode) {
        Some(SharedMode::Deny | SharedMode::Force) | None => Err(Errno::EINVAL),
        Some(mode) => Ok(mode),
    }
}

/// A tmpfs that a program mounted.
pub struct Tmpfs {
    /// The options of the mount, which a remount changes.
    options: Lock<TmpfsOptions>,
    /// The limit on its pages, and their accounting.
    pub room: Arc<Room>,
}

impl Tmpfs {
    /// Creates the state of a new mount.
    #[must_use]
    pub fn new(memory: &Memory, options: TmpfsOptions) -> Self {
        let room = Room::new(memory.huge(), options.most_pages(), options.huge);
        Self {
            options: Lock::new(Rank::Leaf, options),
            room: Arc::new(room),
        }
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> TmpfsOptions {
        *self.options.lock()
    }

    /// Applies the options `text` of a remount, while there are `nodes` inodes. Returns the new limit on inodes. The
    /// caller serialises changes.
    ///
    /// # Errors
    /// `EINVAL` for an invalid option or limit. The options are unchanged after an error.
    pub fn change(&self, memory: &Memory, text: &[u8], nodes: u64) -> Result<u64, Errno> {
        let total = memory.frames().total();
        let used = self.room.used();
        let options = self.options().changed(total, text, used, nodes)?;
        self.room.set_most(options.most_pages());
        self.room.set_huge(memory.huge(), options.huge);
        *self.options.lock() = options;
        Ok(options.nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    const OWNER: Owner = Owner::ROOT;
    const TOTAL: u64 = 1000;

    fn shown(text: &str) -> Result<String, Errno> {
        let options = TmpfsOptions::parse(TOTAL, OWNER, text.as_bytes())?;
        let mut out = String::new();
        options.show(TOTAL, &mut out).unwrap();
        Ok(out)
    }

    #[test]
    fn options_are_read_and_shown() {
        #[rustfmt::skip]
        let rows = [
            ("", ",inode64"),
            (",,=no key,", ",inode64"),
            ("size=4194304,huge=always", ",size=4096k,inode64,huge=always"),
            ("huge=always,size=4m", ",size=4096k,inode64,huge=always"),
            ("size=1", ",size=4k,inode64"),
            ("size=4097", ",size=8k,inode64"),
            ("size=0", ",size=0k,inode64"),
            ("size=m", ",size=0k,inode64"),
            ("size=50%", ",inode64"),
            ("size=1%", ",size=40k,inode64"),
            ("size=0x10K", ",size=16k,inode64"),
            ("size=010k", ",size=8k,inode64"),
            ("nr_blocks=1k", ",size=4096k,inode64"),
            ("nr_inodes=3,mode=755,uid=7,gid=0x8", ",nr_inodes=3,mode=755,uid=7,gid=8,inode64"),
            ("mode=71777,rw,inode64", ",inode64"),
            ("huge=never", ",inode64"),
            ("huge=within_size", ",inode64,huge=within_size"),
            ("huge=advise,huge=never", ",inode64"),
        ];
        for (text, expected) in rows {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_option_is_refused() {
        #[rustfmt::skip]
        let rows = [
            "size", "size=", "size=1x", "size=1%%", "size=16384p", "nr_inodes=2%", "nr_inodes=16384t", "mode=8",
            "mode=-1", "uid=-1", "uid=4294967295", "uid=x", "gid=1k", "huge", "huge=deny", "huge=force", "huge=some",
            "mpol=local", "noswap", "ro", "remount", "size=4k,3", "unknown", "unknown=1", "inode64=1", "quota",
        ];
        for text in rows {
            assert_eq!(shown(text), Err(Errno::EINVAL), "{text}");
        }
    }

    #[test]
    fn flags_are_decoded_and_shown() {
        #[rustfmt::skip]
        let rows = [
            (0, Ok(",relatime")),
            (raw::MS_NOSUID, Ok(",nosuid,relatime")),
            (raw::MS_NODEV | raw::MS_NOEXEC | raw::MS_NOATIME, Ok(",nodev,noexec,noatime")),
            (raw::MS_STRICTATIME | raw::MS_NOATIME, Ok("")),
            (raw::MS_NODIRATIME | raw::MS_RELATIME | raw::MS_SILENT, Ok(",nodiratime,relatime")),
            (raw::MS_RDONLY, Err(Errno::EINVAL)),
            (raw::MS_BIND | raw::MS_REC, Err(Errno::EINVAL)),
            (raw::MS_MOVE, Err(Errno::EINVAL)),
            (raw::MS_PRIVATE, Err(Errno::EINVAL)),
        ];
        for (flags, expected) in rows {
            let shown = MountFlags::decode(flags, None).map(|decoded| {
                let mut out = String::new();
                decoded.show(&mut out).unwrap();
                out
            });
            assert_eq!(shown.as_deref(), expected.as_ref().copied(), "{flags:x}");
        }
    }

    #[test]
    fn a_change_keeps_what_it_says_nothing_of() {
        use MountFlags as F;
        #[rustfmt::skip]
        let rows = [
            (F::RELATIVE_TIMES | F::NO_SET_ID, 0, F::RELATIVE_TIMES),
            (F::NO_ACCESS_TIMES | F::NO_DEVICES, raw::MS_NOEXEC, F::NO_ACCESS_TIMES | F::NO_EXECUTION),
            (F::NO_ACCESS_TIMES, raw::MS_RELATIME, F::RELATIVE_TIMES),
            (F::RELATIVE_TIMES, raw::MS_STRICTATIME, F::empty()),
            (F::empty(), 0, F::empty()),
            (F::NO_ACCESS_TIMES, raw::MS_NODIRATIME, F::NO_DIRECTORY_TIMES | F::RELATIVE_TIMES),
        ];
        for (before, flags, expected) in rows {
            let decoded = MountFlags::decode(flags, Some(before));
            assert_eq!(decoded, Ok(expected), "{before:?}, {flags:x}");
        }
    }

    #[test]
    fn limits_do_not_go_below_what_is_used() {
        #[rustfmt::skip]
        let rows = [
            // The options before, the text of the remount, and the options afterwards or the error. The file system has
            // 8 pages and 3 inodes.
            ("size=64k", "",                       Ok(",size=64k,inode64")),
            ("size=64k", "size=32k",               Ok(",size=32k,inode64")),
            ("size=64k", "size=31k,huge=advise",   Ok(",size=32k,inode64,huge=advise")),
            ("size=64k", "size=28k",               Err(Errno::EINVAL)),
            ("size=64k", "nr_inodes=3",            Ok(",size=64k,nr_inodes=3,inode64")),
            ("size=64k", "nr_inodes=2",            Err(Errno::EINVAL)),
            ("size=64k", "size=0,nr_inodes=0",     Ok(",size=0k,nr_inodes=0,inode64")),
            // A remount cannot set a limit that was not set before.
            ("size=0",      "size=64k",            Err(Errno::EINVAL)),
            ("size=0",      "huge=always",         Ok(",size=0k,inode64,huge=always")),
            ("nr_inodes=0", "nr_inodes=9",         Err(Errno::EINVAL)),
            ("mode=700",    "mode=755,uid=3",      Ok(",mode=700,inode64")),
            ("size=64k",    "size=64k,unknown",    Err(Errno::EINVAL)),
        ];
        for (before, text, expected) in rows {
            let options = TmpfsOptions::parse(TOTAL, OWNER, before.as_bytes()).unwrap();
            let changed = options
                .changed(TOTAL, text.as_bytes(), 8, 3)
                .map(|options| {
                    let mut out = String::new();
                    options.show(TOTAL, &mut out).unwrap();
                    out
                });
            assert_eq!(
                changed.as_deref(),
                expected.as_ref().copied(),
                "{before}, {text}"
            );
        }
    }
}
