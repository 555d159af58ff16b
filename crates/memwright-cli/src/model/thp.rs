//! The setting of `--thp-size`: which anonymous memory is backed by folios of one size.

use memwright::{LARGEST_ORDER, SMALLEST_ORDER, SizeMode};
use std::fmt;

/// Which anonymous memory gets folios of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThpSize {
    /// The order of the folios: their size is 4 KiB shifted left by the order.
    order: u8,
    mode: SizeMode,
}

impl ThpSize {
    /// Returns the setting in the syntax of Memwright's kernel: the order and the mode.
    pub fn for_manifest(self) -> String {
        format!("{}:{}", self.order, self.word())
    }

    fn word(self) -> &'static str {
        let mut all = SizeMode::ALL.into_iter();
        let found = all.find(|(mode, _)| *mode == self.mode);
        found.map_or("never", |(_, word)| word)
    }
}

impl fmt::Display for ThpSize {
    /// Formats the setting in the syntax of the option, which is that of Linux's `thp_anon` (since 6.12).
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kibibytes = 4 << self.order;
        if kibibytes % 1024 == 0 {
            write!(formatter, "{}M:{}", kibibytes / 1024, self.word())
        } else {
            write!(formatter, "{kibibytes}K:{}", self.word())
        }
    }
}

/// Parses `64K:always`.
///
/// # Errors
/// The reason why the text is invalid.
pub fn parse_thp_size(text: &str) -> Result<ThpSize, String> {
    let expected = || {
        "expected SIZE:WHICH, a size from 16K to 2M and always, inherit, madvise or never"
            .to_owned()
    };
    let (size, word) = text.split_once(':').ok_or_else(expected)?;
    let named = |order: &u8| {
        let kibibytes = 4_u64 << order;
        size == format!("{kibibytes}K")
            || (kibibytes.is_multiple_of(1024) && size == format!("{}M", kibibytes / 1024))
    };
    let mut orders = SMALLEST_ORDER..=LARGEST_ORDER;
    let order = orders.find(named).ok_or_else(expected)?;
    let mut modes = SizeMode::ALL.into_iter();
    let (mode, _) = modes.find(|(_, name)| *name == word).ok_or_else(expected)?;
    Ok(ThpSize { order, mode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_one_of_eight() {
        for (text, shown, read) in [
            ("16K:always", "16K:always", "2:always"),
            ("64K:madvise", "64K:madvise", "4:madvise"),
            ("1024K:never", "1M:never", "8:never"),
            ("2M:inherit", "2M:inherit", "9:inherit"),
        ] {
            let size = parse_thp_size(text).unwrap();
            assert_eq!(
                (size.to_string().as_str(), size.for_manifest().as_str()),
                (shown, read)
            );
        }
        for text in [
            "",
            "64K",
            "4K:always",
            "64k:always",
            "96K:always",
            "4M:always",
            "64K:yes",
            "64K:",
        ] {
            assert!(parse_thp_size(text).is_err(), "{text}");
        }
    }
}
