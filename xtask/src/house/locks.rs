//! The table of locks of ARCHITECTURE.md, from the ranks and their documentation.

/// Returns the ranks of `memwright-table/src/sync/order.rs` in their order, each with the first paragraph of its
/// documentation.
fn ranks(source: &str) -> Vec<(String, String)> {
    let body = source
        .split_once("pub enum Rank {")
        .and_then(|(_, rest)| rest.split_once("\n}"))
        .map_or("", |(body, _)| body);
    let mut ranks = Vec::new();
    let mut about = String::new();
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            about.push_str(text);
        } else if let Some(name) = line.strip_suffix(',') {
            ranks.push((
                name.to_owned(),
                std::mem::take(&mut about).trim().to_owned(),
            ));
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::ranks;
    use crate::shell;
    use std::fmt::Write;
    use std::fs;

    #[test]
    fn ranks_have_their_order_and_their_documentation() {
        let source = "pub enum Rank {\n    /// The first,\n    /// explained.\n    One,\n    /// Next.\n    Two,\n}\n";
        let expected = [("One", "The first, explained."), ("Two", "Next.")];
        let expected = expected.map(|(name, about)| (name.to_owned(), about.to_owned()));
        assert_eq!(ranks(source), expected);
    }

    /// `MEMWRIGHT_UPDATE_DOCS=1` updates the table.
    #[test]
    fn the_architecture_has_the_table_of_locks() {
        const BEGIN: &str = "<!-- locks -->\n";
        const END: &str = "<!-- end -->";
        let source =
            fs::read_to_string(shell::root().join("crates/memwright-table/src/sync/order.rs"));
        let mut table = "| rank | guards |\n|---|---|\n".to_owned();
        for (name, about) in ranks(&source.expect("the ranks")) {
            writeln!(table, "| `{name}` | {about} |").expect("memory");
        }
        let path = shell::root().join("ARCHITECTURE.md");
        let text = fs::read_to_string(&path).expect("ARCHITECTURE.md");
        let (before, rest) = text.split_once(BEGIN).expect("a place for the table");
        let (old, after) = rest.split_once(END).expect("its end");
        if old == table {
            return;
        }
        assert!(
            std::env::var_os("MEMWRIGHT_UPDATE_DOCS").is_some(),
            "ARCHITECTURE.md is not up to date: run with MEMWRIGHT_UPDATE_DOCS=1"
        );
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).expect("written");
    }
}
