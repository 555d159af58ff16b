//! Sizes as people write them.

use std::fmt;

/// Guest memory, a whole number of MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySize(u64);

/// The least memory that the kernel boots with.
pub const LEAST: u64 = 16 << 20;
/// The most: frames are numbered with 32 bits, and QEMU's low memory map is simple below this.
pub const MOST: u64 = 1 << 40;

impl MemorySize {
    /// The least that there is.
    #[cfg(test)]
    pub const fn least() -> Self {
        Self(LEAST)
    }

    /// What a guest has where nothing is said.
    pub const fn usual() -> Self {
        Self(512 << 20)
    }

    /// What a guest of a bench has: room for a mapping of 1 GiB on any kernel.
    pub const fn of_bench() -> Self {
        Self(2 << 30)
    }

    /// The same with room for a mapping of 4 GiB.
    pub const fn of_large_bench() -> Self {
        Self(5 << 30)
    }

    /// What a guest of a bench has whose program wants more.
    pub const fn of_small_bench() -> Self {
        Self(128 << 20)
    }

    /// So many MiB.
    pub const fn from_mebibytes(mebibytes: u64) -> Self {
        Self(mebibytes << 20)
    }

    /// Number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// Number of MiB.
    pub fn mebibytes(self) -> u64 {
        self.0 >> 20
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}M", self.mebibytes())
    }
}

/// Parses `512M`, `1G`, `262144K` or a number of bytes; a unit may end in `B` or `iB`, in either case.
///
/// # Errors
/// What is wrong with the text, in words.
pub fn parse_memory_size(text: &str) -> Result<MemorySize, String> {
    let bytes = parse_bytes(text)?;
    // First, because who forgot the unit has far too little.
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

/// A number of huge pages of 2 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages(u64);

impl HugePages {
    /// How many.
    pub fn count(self) -> u64 {
        self.0
    }

    /// Their bytes.
    pub fn bytes(self) -> u64 {
        self.0.saturating_mul(2 << 20)
    }
}

/// Parses a size as [`parse_memory_size`] does, and rounds it up to huge pages.
///
/// # Errors
/// What is wrong with the text, in words.
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

/// What keeps the pages of a swap device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapKind {
    /// The guest's memory, compressed.
    Zram,
    /// A disk.
    Disk,
}

/// The most bytes of a swap device: one piece of the kernel's heap holds a bit for each of its pages.
const MOST_SWAP: u64 = 63 << 30;

/// A swap device of the guest, for so many bytes of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwapSize {
    /// What keeps them.
    pub kind: SwapKind,
    /// How many.
    pub size: MemorySize,
}

impl SwapSize {
    /// Bytes of pages that go out to it.
    pub fn bytes(self) -> u64 {
        self.size.bytes()
    }
}

impl fmt::Display for SwapSize {
    /// As the kernel reads it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            SwapKind::Zram => "zram",
            SwapKind::Disk => "disk",
        };
        write!(formatter, "{kind}:{}", self.size.bytes())
    }
}

/// Parses `zram:256M` or `disk:1G`.
///
/// # Errors
/// What is wrong with the text, in words.
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

/// Bytes as MiB, rounded up, for messages.
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
