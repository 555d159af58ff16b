//! Checks the links between the pages.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Returns the targets of the links in a page. Ignores code.
fn targets(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for text in page.split("```").step_by(2) {
        // Text in backquotes is code.
        for plain in text.split('`').step_by(2) {
            for (at, _) in plain.match_indices("](") {
                let target = &plain[at + 2..];
                if let Some((target, _)) = target.split_once(')') {
                    found.push(target.trim());
                }
            }
        }
    }
    found
}

/// Returns the anchors of the headings of a page, in the form that common renderers use.
fn anchors(page: &str) -> BTreeSet<String> {
    let outside = page.split("\n```").step_by(2).flat_map(str::lines);
    outside
        .filter_map(|line| line.strip_prefix('#'))
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading
                .chars()
                .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
            kept.map(|letter| if letter == ' ' { '-' } else { letter })
                .collect()
        })
        .collect()
}

/// Resolves a relative path against the folder of a page, without access to the file system.
fn resolve(page: &str, target: &str) -> PathBuf {
    let mut path = Path::new(page).parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;
    use std::fs;

    #[test]
    fn links_and_headings_are_found() {
        let page = "# A b: `c`\n[x](y.md#z) `[n](o)`\n```\n# no\n[n](o)\n```\n## D-e\n[u](../v)\n";
        assert_eq!(targets(page), ["y.md#z", "../v"]);
        assert_eq!(anchors(page), ["a-b-c", "d-e"].map(str::to_owned).into());
        assert_eq!(resolve("docs/a.md", "../v"), Path::new("v"));
        assert_eq!(resolve("docs/a.md", "b/c.md"), Path::new("docs/b/c.md"));
    }

    #[test]
    fn every_link_between_pages_leads_somewhere() {
        // Pages in `crates/*/src` are excluded, because they are only the first parts of generated pages.
        let listed = shell::git(["ls-files", "--", "*.md", ":!crates/*/src/*"]).expect("git");
        let read = |page: &Path| fs::read_to_string(shell::root().join(page));
        let mut broken = Vec::new();
        for page in listed.lines() {
            let text = read(Path::new(page)).expect("a tracked page");
            for target in targets(&text) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let file = match path {
                    "" => PathBuf::from(page),
                    _ => resolve(page, path),
                };
                let leads = shell::root().join(&file).exists()
                    && (anchor.is_empty()
                        || read(&file).is_ok_and(|text| anchors(&text).contains(anchor)));
                if !leads {
                    broken.push(format!("{page}: {target}"));
                }
            }
        }
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }

    /// Returns the fences of a page that are probably broken: an opening fence with several words, as when a reflow has
    /// joined it with the next line, or a closing fence with any word.
    fn broken_fences(page: &str) -> Vec<&str> {
        let fences = page.lines().filter(|line| line.starts_with("```"));
        let (opening, closing): (Vec<_>, Vec<_>) =
            fences.enumerate().partition(|(number, _)| number % 2 == 0);
        let mut broken: Vec<&str> = opening
            .iter()
            .filter_map(|(_, line)| line.contains(' ').then_some(*line))
            .collect();
        broken.extend(
            closing
                .iter()
                .filter_map(|(_, line)| (*line != "```").then_some(*line)),
        );
        broken
    }

    #[test]
    fn every_block_of_code_is_shown_as_one() {
        assert_eq!(broken_fences("```text\na\n```\n"), [""; 0]);
        assert_eq!(broken_fences("```text a\nb\n```\n"), ["```text a"]);
        assert_eq!(broken_fences("```\na\n```text\n"), ["```text"]);
        let listed = shell::git(["ls-files", "--", "*.md", ":!crates/*/src/*"]).expect("git");
        for page in listed.lines() {
            let text = fs::read_to_string(shell::root().join(page)).expect("a tracked page");
            assert_eq!(broken_fences(&text), [""; 0], "{page}");
        }
    }

    #[test]
    fn every_path_in_the_column_of_our_files_exists() {
        let page = fs::read_to_string(shell::root().join("docs/semantics.md")).expect("a page");
        let ours = page.lines().filter_map(|line| line.split(" | ").nth(2));
        let paths: Vec<&str> = ours
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .collect();
        assert!(paths.len() > 50, "{paths:?}");
        let file = |path: &str| match path.split_once('/') {
            Some(("crates", _)) => path.to_owned(),
            Some((part, rest)) if part == "table" || part.starts_with("linux") => {
                format!("crates/memwright-{part}/src/{rest}")
            }
            Some(_) | None => format!("crates/memwright/src/{path}"),
        };
        let is_missing = |path: &&&str| !shell::root().join(file(path)).exists();
        let missing: Vec<_> = paths.iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
