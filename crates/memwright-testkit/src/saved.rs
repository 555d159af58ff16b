//! Scripts that found a mistake in Memwright, or that detect a mistake in a machine.

/// A script that found a mistake in Memwright, or that detects a mistake in a machine.
pub(crate) struct Saved {
    /// The name of its file.
    pub(crate) name: &'static str,
    /// The script, with comments.
    pub(crate) text: &'static str,
}

/// The line that marks a script whose places are parts of huge pages.
const HUGE: &str = "# huge";

impl Saved {
    /// Returns whether the places of the script are parts of huge pages.
    pub(crate) fn is_huge(&self) -> bool {
        self.text.lines().any(|line| line == HUGE)
    }
}

macro_rules! saved {
    ($($name:literal,)*) => {
        &[$(Saved {
            name: $name,
            text: include_str!(concat!("../scripts/", $name, ".script")),
        },)*]
    };
}

/// All files in the folder `scripts`.
pub(crate) const SAVED: &[Saved] = saved![
    "become-one-with-what-moved",
    "clear-behind-a-huge-page-in-swap",
    "fill-a-file",
    "fill-beyond-the-end",
    "fork-huge-pages",
    "free-a-page-that-a-folio-brought",
    "guard-beyond-the-end",
    "move-several-areas-that-stay",
    "object-that-begins-late",
    "page-out-beside-a-zero-page",
    "page-out-huge-pages",
    "populate-without-memory",
    "protect-huge-pages",
    "punch-under-zeroes",
    "refused-map-over-a-huge-page",
    "refused-store-copies-a-file",
    "refused-stores-to-a-file-are-merged",
    "relief-ends-read-write-protection",
    "relocate-a-guard",
    "split-and-collapse-huge-pages",
    "truncate-a-protected-copy-in-swap",
    "watch-a-part-of-a-huge-page",
    "write-a-folio-where-it-moved",
    "write-after-free-shared-in-swap",
];

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts");
        let files = std::fs::read_dir(folder).expect("the folder");
        let mut count = 0;
        for file in files {
            let name = file.expect("readable").file_name();
            let name = name.to_str().expect("ASCII").trim_end_matches(".script");
            assert!(SAVED.iter().any(|saved| saved.name == name), "{name}");
            count += 1;
        }
        assert_eq!(SAVED.len(), count);
    }
}
