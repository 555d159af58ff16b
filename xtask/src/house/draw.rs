//! Draws a random sample of the paragraphs of the prose, for a review.

use super::prose::prose;
use super::source::Source;

/// A paragraph of the prose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The file and the number of the first line, as `path:line`.
    pub place: String,
    /// The text, on one line.
    pub text: String,
}

/// Draws `count` different paragraphs. The sample of a commit is always the same.
pub fn draw(sources: &[Source], commit: &str, count: usize) -> Vec<Item> {
    let mut items: Vec<Item> = sources.iter().flat_map(paragraphs).collect();
    let mut random = Random::new(commit);
    let mut drawn = Vec::new();
    while drawn.len() < count && !items.is_empty() {
        let at = random.below(items.len());
        drawn.push(items.swap_remove(at));
    }
    drawn
}

/// Returns the paragraphs of a file: consecutive lines of prose without an empty line between them.
pub fn paragraphs(source: &Source) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut previous = 0;
    for (line, text) in prose(source) {
        let text = text.trim_start_matches(['/', '!', '*', '#']).trim();
        if text.is_empty() || text.starts_with('|') {
            continue;
        }
        match items.last_mut() {
            Some(item) if previous + 1 == line => {
                item.text.push(' ');
                item.text.push_str(text);
            }
            _ => items.push(Item {
                place: format!("{}:{line}", source.path),
                text: text.to_owned(),
            }),
        }
        previous = line;
    }
    // Drop paragraphs that are a single word.
    items.retain(|item| item.text.contains(' '));
    items
}

/// A SplitMix64 random number generator (Steele, Lea and Flood, 2014), seeded by the bytes of a text.
struct Random(u64);

impl Random {
    fn new(seed: &str) -> Self {
        let mix =
            |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(seed.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % end as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_always_gives_the_same_paragraphs() {
        let text =
            "/// One two,\n/// three.\n///\n/// Four five.\nfn f() {} // Six seven.\n// word\n";
        let source = Source {
            path: "a.rs".to_owned(),
            text: text.to_owned(),
        };
        let all = paragraphs(&source);
        let texts: Vec<&str> = all.iter().map(|item| &*item.text).collect();
        assert_eq!(texts, ["One two, three.", "Four five. Six seven. word"]);
        assert_eq!(all[0].place, "a.rs:1");
        let sources = [source];
        assert_eq!(draw(&sources, "abc", 2), draw(&sources, "abc", 2));
        assert_eq!(draw(&sources, "abc", 60).len(), 2);
    }
}
