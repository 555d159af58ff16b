//! Parses and formats sizes.

use std::fmt;

/// Guest memory, a whole number of MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySize(u64);

/// The minimum amount of memory with which the kernel boots, in bytes.
pub const LEAST: u64 = 16 << 20;
/// The maximum amount of memory, in bytes. Frame numbers have 32 bits, and QEMU's low memory map is simple below this
/// size.
pub const MOST: u64 = 1 << 40;

impl MemorySize {
    /// Returns the minimum amount of memory of a guest.
    #[cfg(test)]
    pub const fn least() -> Self {
        Self(LEAST)
    }

    /// Returns the default amount of memory of a guest.
    pub const fn usual() -> Self {
        Self(512 << 20)
    }

    /// Returns the memory of a guest in a bench, enough to map 1 GiB on any kernel.
    pub const fn of_bench() -> Self {
        Self(2 << 30)
    }

    /// Returns the memory of a guest in a bench that maps 4 GiB.
    pub const fn of_large_bench() -> Self {
        Self(5 << 30)
    }

    /// Returns the memory of a guest of a workload.
    pub const fn of_workload() -> Self {
        Self(1 << 30)
    }

    /// Returns the memory of a guest in a bench whose program uses more memory than the guest has.
    pub const fn of_small_bench() -> Self {
        Self(128 << 20)
    }

    /// Returns a size in MiB.
    pub const fn from_mebibytes(mebibytes: u64) -> Self {
        Self(mebibytes << 20)
    }

    /// Returns the number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// Returns the number of MiB.
    pub fn mebibytes(self) -> u64 {
        self.0 >> 20
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}M", self.mebibytes())
    }
}

/// Parses `512M`, `1G`, `262144K` or a number of bytes. A unit may end in `B` or `iB`; case is ignored.
///
/// # Errors
/// The reason why the text is invalid.
pub fn parse_memory_size(text: &str) -> Result<MemorySize, String> {
    let bytes = parse_bytes(text)?;
    // This check comes first, because its message helps if the unit was forgotten: the size is then far too small.
    if !(LEAST..=MOST).contains(&bytes) {
        return Err(format!(
            "expected at least {}M and at most {}G",
            LEAST >> 20,
            MOST >> 30
        ));
    }
    if bytes % (1 << 20) != 0 {
        return Err("expected a whole number of MiB".to_owned());
    }
    Ok(MemorySize(bytes))
}

/// A number of 2 MiB huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages(u64);

impl HugePages {
    /// Returns the number of huge pages.
    pub fn count(self) -> u64 {
        self.0
    }

    /// Returns the size of the huge pages in bytes.
    pub fn bytes(self) -> u64 {
        self.0.saturating_mul(2 << 20)
    }
}

/// Parses a size like [`parse_memory_size`], and rounds it up to huge pages.
///
/// # Errors
/// The reason why the text is invalid.
pub fn parse_huge_pages(text: &str) -> Result<HugePages, String> {
    Ok(HugePages(parse_bytes(text)?.div_ceil(2 << 20)))
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit
        .to_ascii_lowercase()
        .trim_end_matches('b')
        .trim_end_matches('i')
    {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err("expected a number with K, M or G, for example 512M".to_owned()),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(1 << shift))
        .ok_or_else(|| "expected a number with K, M or G, for example 512M".to_owned())
}

/// The backing of a swap device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapKind {
    /// The guest's own memory, compressed.
    Zram,
    /// A disk of the guest.
    Disk,
}

impl SwapKind {
    /// Returns the name of the backing on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zram => "zram",
            Self::Disk => "disk",
        }
    }
}

/// The maximum size of a swap device in bytes. The device's bitmap of pages must fit in one allocation of the kernel's
/// heap.
const MOST_SWAP: u64 = 63 << 30;

/// A swap device of the guest, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwapSize {
    /// The backing of the device.
    pub kind: SwapKind,
    /// The size of the device.
    pub size: MemorySize,
}

impl SwapSize {
    /// Returns the number of bytes of pages that can be swapped out to the device.
    pub fn bytes(self) -> u64 {
        self.size.bytes()
    }
}

impl fmt::Display for SwapSize {
    /// Formats the device in the syntax of Memwright's kernel.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.kind.name(), self.size.bytes())
    }
}

/// Parses `zram:256M` or `disk:1G`.
///
/// # Errors
/// The reason why the text is invalid.
pub fn parse_swap(text: &str) -> Result<SwapSize, String> {
    let (kind, size) = match text.split_once(':') {
        Some(("zram", size)) => (SwapKind::Zram, size),
        Some(("disk", size)) => (SwapKind::Disk, size),
        Some(_) | None => {
            return Err("expected zram:SIZE or disk:SIZE, for example zram:256M".to_owned());
        }
    };
    let size = parse_memory_size(size)?;
    if size.bytes() > MOST_SWAP {
        return Err(format!("expected at most {}G", MOST_SWAP >> 30));
    }
    Ok(SwapSize { kind, size })
}

/// Formats bytes as MiB, rounded up, for messages.
pub fn in_mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_a_kind_and_a_size() {
        assert_eq!(
            parse_swap("zram:256M").unwrap().to_string(),
            "zram:268435456"
        );
        assert_eq!(
            parse_swap("disk:1G").unwrap().to_string(),
            "disk:1073741824"
        );
        for text in [
            "256M",
            "tape:1G",
            "zram:",
            "zram:0",
            "zram:64G",
            "disk:1024G",
        ] {
            assert!(parse_swap(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_parse() {
        for (text, mebibytes) in [
            ("512M", 512),
            ("1G", 1024),
            ("65536K", 64),
            ("33554432", 32),
            ("64m", 64),
            ("2GiB", 2048),
            ("16MB", 16),
        ] {
            assert_eq!(
                parse_memory_size(text).map(MemorySize::mebibytes),
                Ok(mebibytes),
                "{text}"
            );
        }
    }

    #[test]
    fn pools_are_rounded_up_to_huge_pages() {
        for (text, pages) in [("0", 0), ("1", 1), ("2M", 1), ("3M", 2), ("1G", 512)] {
            let parsed = parse_huge_pages(text).map(HugePages::count);
            assert_eq!(parsed, Ok(pages), "{text}");
        }
        assert!(parse_huge_pages("all").is_err());
    }

    #[test]
    fn sizes_that_do_not_parse() {
        for text in [
            "",
            "M",
            "12Q",
            "-5M",
            "1.5G",
            "100K",
            "8M",
            "9999999G",
            "99999999999999999999",
            "512 M",
            "0",
        ] {
            assert!(parse_memory_size(text).is_err(), "{text}");
        }
    }
}
