//! Checks against `docs/rules.md` that cited design rules exist, and that the page names existing mistakes.

use std::collections::BTreeSet;

/// Returns the names in the lists that follow `mark` in a text. A list ends at the first character that is not part of
/// a name.
fn cited<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices(mark) {
        let list = &text[at + mark.len()..];
        let end = list
            .find(|letter: char| !letter.is_ascii_lowercase() && !matches!(letter, '-' | ',' | ' '))
            .unwrap_or(list.len());
        names.extend(list[..end].split(", ").filter(|name| name.contains('-')));
    }
    names
}

/// Returns the names of the rules: the headings of the page.
fn rules(page: &str) -> BTreeSet<&str> {
    page.lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::{draw, source};
    use crate::mutants;
    use crate::shell;

    fn page() -> String {
        std::fs::read_to_string(shell::root().join("docs/rules.md")).expect("docs/rules.md")
    }

    #[test]
    fn names_are_found_in_their_list() {
        assert_eq!(cited("(rule: a-b; only so)", "rule: "), ["a-b"]);
        assert_eq!(cited("(rules: a-b, c-d): x", "rules: "), ["a-b", "c-d"]);
        assert_eq!(cited("Rule a-b: an object", "Rule "), ["a-b"]);
        assert_eq!(rules("# All\n## a-b\ntext\n"), ["a-b"].into());
    }

    #[test]
    fn every_rule_that_is_cited_is_on_the_page() {
        let page = page();
        let known = rules(&page);
        let mut cited_anywhere = BTreeSet::new();
        for source in source::all().expect("the sources") {
            if source.path == "docs/rules.md" {
                continue;
            }
            for item in draw::paragraphs(&source) {
                for name in ["rule: ", "rules: ", "Rule "]
                    .iter()
                    .flat_map(|mark| cited(&item.text, mark))
                {
                    assert!(
                        known.contains(name),
                        "{}: no rule is named {name}",
                        item.place
                    );
                    cited_anywhere.insert(name.to_owned());
                }
            }
        }
        assert!(cited_anywhere.len() > known.len() / 2, "{cited_anywhere:?}");
    }

    #[test]
    fn every_mistake_on_the_page_can_be_planted() {
        let planted = mutants::names().expect("the list of mistakes");
        let page = page();
        let lists = page.split("*Mistakes:*").skip(1);
        let mut count = 0;
        for list in lists.map(|rest| rest.split("\n\n").next().unwrap_or_default()) {
            for name in list.split('`').skip(1).step_by(2) {
                assert!(
                    planted.iter().any(|one| one == name),
                    "no mistake is named {name}"
                );
                count += 1;
            }
        }
        assert!(count > 60, "{count}");
    }
}
