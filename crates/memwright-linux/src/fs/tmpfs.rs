//! What a tmpfs is mounted with (Linux 7.2 `mm/shmem.c`, `shmem_parse_one` and `shmem_show_options`).

use super::permission::Subject;
use crate::{
    Memory,
    errno::Errno,
    sync::{Lock, Rank},
};
use alloc::{sync::Arc, vec::Vec};
use core::{
    fmt,
    sync::atomic::{AtomicU32, Ordering},
};
use linux_raw_sys::general as raw;
use memwright::{SharedMode, object::Room};
use memwright_table::PAGE_SIZE;

/// Bytes of a node as the limit of their number counts them (`BOGO_INODE_SIZE`).
const NODE_SIZE: u64 = 1024;

/// Permissions of the root, unless others are given.
const DEFAULT_MODE: u32 = 0o1777;

flags! {
    /// What holds for a mount, in the bits of `statfs` (`include/linux/statfs.h`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MountFlags: u32 {
        /// Programs get no rights of their owners, which they get nowhere here.
        const NO_SET_ID = 0x2;
        /// Devices cannot be opened.
        const NO_DEVICES = 0x4;
        /// Nothing can be executed.
        const NO_EXECUTION = 0x8;
        /// Reads are not recorded.
        const NO_ACCESS_TIMES = 0x400;
        /// Nor those of directories, which are nowhere recorded here.
        const NO_DIRECTORY_TIMES = 0x800;
        /// Reads are recorded once after a change, or a day.
        const RELATIVE_TIMES = 0x1000;
    }
}

impl MountFlags {
    /// Those with the words of `/proc/mounts`, in its order.
    const WORDS: [(Self, &'static str); 6] = [
        (Self::NO_SET_ID, ",nosuid"),
        (Self::NO_DEVICES, ",nodev"),
        (Self::NO_EXECUTION, ",noexec"),
        (Self::NO_ACCESS_TIMES, ",noatime"),
        (Self::NO_DIRECTORY_TIMES, ",nodiratime"),
        (Self::RELATIVE_TIMES, ",relatime"),
    ];

    /// What says when reads are recorded.
    const TIMES: Self = Self::NO_ACCESS_TIMES
        .union(Self::NO_DIRECTORY_TIMES)
        .union(Self::RELATIVE_TIMES);

    /// Decodes the flags of `mount`, of a new mount or of a change of one that has the flags `before` (Linux 7.2
    /// `fs/namespace.c`, `path_mount`): it keeps what it has of times unless they say something of them.
    ///
    /// # Errors
    /// `EINVAL` for all that is not a mount to be read and written.
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

    /// Writes their words, each behind a comma.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn show(self, out: &mut dyn fmt::Write) -> fmt::Result {
        let set = Self::WORDS.iter().filter(|(flag, _)| self.contains(*flag));
        set.map(|(_, word)| word)
            .try_for_each(|word| out.write_str(word))
    }
}

/// The options of a tmpfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TmpfsOptions {
    /// Most pages of its files; 0 without a limit.
    pub pages: u64,
    /// Most nodes; 0 without a limit.
    pub nodes: u64,
    /// Permissions of its root.
    pub permissions: u32,
    /// Owner of its root.
    pub owner: Subject,
    /// Which of its files have huge pages.
    pub huge: SharedMode,
}

impl TmpfsOptions {
    /// Those of a machine with so many pages where nothing is said: half of them, and a node for each of these.
    #[must_use]
    pub const fn default_of(total: u64, owner: Subject) -> Self {
        Self {
            pages: total / 2,
            nodes: total / 2,
            permissions: DEFAULT_MODE,
            owner,
            huge: SharedMode::Never,
        }
    }

    /// Reads what is said, on a machine with so many pages: words behind commas. A comma before a digit separates
    /// nothing.
    ///
    /// # Errors
    /// `EINVAL` for an unknown word, and for a value that is none.
    pub fn parse(total: u64, owner: Subject, text: &[u8]) -> Result<Self, Errno> {
        Self::default_of(total, owner).with(total, text)
    }

    /// The same, with what is said beside.
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

    /// The most pages, if there is a limit.
    fn most_pages(&self) -> Option<u64> {
        (self.pages != 0).then_some(self.pages)
    }

    fn read(&mut self, total: u64, word: &[u8]) -> Result<(), Errno> {
        let word = core::str::from_utf8(word).map_err(|_| Errno::EINVAL)?;
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (word, None),
        };
        match (key, value) {
            // What has no key is passed over, and what holds anyway.
            ("", _) | ("rw" | "async" | "nolazytime" | "nomand" | "inode64", None) => {}
            (_, None | Some("")) => return Err(Errno::EINVAL),
            ("size", Some(value)) => self.pages = pages_of(value, total)?,
            ("nr_blocks", Some(value)) => {
                self.pages = whole(value)
                    .filter(|pages| *pages <= i64::MAX as u64)
                    .ok_or(Errno::EINVAL)?;
            }
            ("nr_inodes", Some(value)) => {
                let fits = |nodes: &u64| *nodes <= u64::MAX / NODE_SIZE;
                self.nodes = whole(value).filter(fits).ok_or(Errno::EINVAL)?;
            }
            ("mode", Some(value)) => {
                let mode = u32::from_str_radix(value, 8).map_err(|_| Errno::EINVAL)?;
                self.permissions = mode & 0o7777;
            }
            ("uid", Some(value)) => self.owner.user = id(value)?,
            ("gid", Some(value)) => self.owner.group = id(value)?,
            ("huge", Some(value)) => self.huge = huge(value)?,
            (_, Some(_)) => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// What holds for a mounted file system with these options and so many pages and nodes once `text` is said of it (Linux
    /// 7.2 `mm/shmem.c`, `shmem_reconfigure`). Permissions and owner of its root stay.
    ///
    /// # Errors
    /// `EINVAL` as for a new one, for a limit below what is used, and for one where there was none.
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

    /// Writes what differs from the defaults of a machine with so many pages, each behind a comma.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn show(&self, total: u64, out: &mut dyn fmt::Write) -> fmt::Result {
        let default = Self::default_of(total, Subject::ROOT);
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

/// A number as C writes it, and what follows it (`simple_strtoull`).
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

/// A number with a suffix for powers of 1,024 (`memparse`), and what follows it; `None` if it is too large.
fn amount(text: &str) -> Option<(u64, &str)> {
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

/// The same, with nothing behind it.
fn whole(text: &str) -> Option<u64> {
    amount(text)
        .filter(|(_, rest)| rest.is_empty())
        .map(|(value, _)| value)
}

/// Pages for so many bytes, or for so many hundredths of memory.
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

/// A user or group; the largest number is none.
fn id(text: &str) -> Result<u32, Errno> {
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
    /// With what.
    options: Lock<TmpfsOptions>,
    /// What holds for the mount.
    flags: AtomicU32,
    /// What it was said to be mounted from.
    pub source: Vec<u8>,
    /// Room for the pages of its files.
    pub room: Arc<Room>,
}

impl Tmpfs {
    /// One that has no file.
    #[must_use]
    pub fn new(memory: &Memory, options: TmpfsOptions, flags: MountFlags, source: Vec<u8>) -> Self {
        let room = Room::new(memory.huge(), options.most_pages(), options.huge);
        Self {
            options: Lock::new(Rank::Leaf, options),
            flags: AtomicU32::new(flags.bits()),
            source,
            room: Arc::new(room),
        }
    }

    /// With what it is mounted now.
    #[must_use]
    pub fn options(&self) -> TmpfsOptions {
        *self.options.lock()
    }

    /// What holds for the mount.
    #[must_use]
    pub fn flags(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Sets what holds for the mount.
    pub fn set_flags(&self, flags: MountFlags) {
        self.flags.store(flags.bits(), Ordering::Relaxed);
    }

    /// Changes the options while there are so many nodes; says how many there may be from now on. One changes them at a
    /// time.
    ///
    /// # Errors
    /// `EINVAL`, and nothing has changed.
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

    const OWNER: Subject = Subject::ROOT;
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
            // Before, what is said, what holds then; 8 pages and 3 nodes are used.
            ("size=64k", "",                       Ok(",size=64k,inode64")),
            ("size=64k", "size=32k",               Ok(",size=32k,inode64")),
            ("size=64k", "size=31k,huge=advise",   Ok(",size=32k,inode64,huge=advise")),
            ("size=64k", "size=28k",               Err(Errno::EINVAL)),
            ("size=64k", "nr_inodes=3",            Ok(",size=64k,nr_inodes=3,inode64")),
            ("size=64k", "nr_inodes=2",            Err(Errno::EINVAL)),
            ("size=64k", "size=0,nr_inodes=0",     Ok(",size=0k,nr_inodes=0,inode64")),
            // What had no limit gets none.
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
