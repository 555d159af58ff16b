//! Generated blocks of Markdown pages.

/// The block of a page between the lines `<!-- generated: NAME -->` and `<!-- end -->`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The page, relative to the root of the workspace.
    pub page: &'static str,
    /// The NAME in the line before the block.
    pub name: &'static str,
    /// The text of the block, without the two lines around it.
    pub text: String,
}

impl Block {
    /// Returns the page with the text of this block replaced, or `None` if the page has no block of this name.
    pub fn put(&self, page: &str) -> Option<String> {
        let begin = format!("<!-- generated: {} -->\n", self.name);
        let (before, rest) = page.split_once(&begin)?;
        let (_, after) = rest.split_once("<!-- end -->\n")?;
        let text = &self.text;
        Some(format!("{before}{begin}{text}<!-- end -->\n{after}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_replaces_what_stands_in_its_place() {
        let block = Block {
            page: "a",
            name: "b",
            text: "new\n".to_owned(),
        };
        let page = "x\n<!-- generated: b -->\nold\n<!-- end -->\ny\n";
        let put = block.put(page).unwrap();
        assert_eq!(put, "x\n<!-- generated: b -->\nnew\n<!-- end -->\ny\n");
        for page in [
            "x\n<!-- generated: c -->\n<!-- end -->\n",
            "<!-- generated: b -->\nx\n",
        ] {
            assert_eq!(block.put(page), None, "{page}");
        }
    }
}
