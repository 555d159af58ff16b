//! Reads `xtask/mistakes`: the mistakes, the edits that plant them, and the test that must notice each mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::edit::{self, Edit};

/// The files of `xtask/mistakes`, in the order of the table in the documentation.
const THEMES: &[(&str, &str)] = &[
    ("flush", include_str!("../../mistakes/flush.toml")),
    ("pending", include_str!("../../mistakes/pending.toml")),
    ("locks", include_str!("../../mistakes/locks.toml")),
    ("entries", include_str!("../../mistakes/entries.toml")),
    ("fork", include_str!("../../mistakes/fork.toml")),
    ("share", include_str!("../../mistakes/share.toml")),
    ("fault", include_str!("../../mistakes/fault.toml")),
    ("tracking", include_str!("../../mistakes/tracking.toml")),
    ("huge", include_str!("../../mistakes/huge.toml")),
    ("swap", include_str!("../../mistakes/swap.toml")),
    ("merge", include_str!("../../mistakes/merge.toml")),
    ("numa", include_str!("../../mistakes/numa.toml")),
    ("hugetlb", include_str!("../../mistakes/hugetlb.toml")),
    ("device", include_str!("../../mistakes/device.toml")),
    (
        "architectures",
        include_str!("../../mistakes/architectures.toml"),
    ),
];

/// A mistake that can be planted.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Mistake {
    /// The name, by which the mistake is enabled at run time.
    pub name: String,
    /// The description of the effect, in one sentence.
    pub what: String,
    /// The test that must notice the mistake, as `BINARY::TEST`. A binary is a file in `crates/memwright-sim/tests`, or
    /// `scenarios`.
    test: String,
    /// The simulated machine on which the test notices the mistake, or `None` for each that runs the test.
    #[serde(default)]
    pub simulated: Option<String>,
}

impl Mistake {
    /// Returns the binary and the name of the test.
    pub fn test(&self) -> (&str, &str) {
        self.test.split_once("::").unwrap_or(("", &self.test))
    }
}

/// The contents of one or more files.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// All mistakes of the files.
    #[serde(rename = "mistake")]
    pub mistakes: Vec<Mistake>,
    /// All edits. Some edits plant several mistakes, and some mistakes need several edits.
    #[serde(rename = "edit")]
    pub edits: Vec<Edit>,
}

impl List {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file is not a valid list, if two mistakes have the same name, if no edit plants a mistake, or if an edit
    /// plants no mistake or an unknown one.
    pub fn read() -> Result<Self> {
        let mut list = Self::default();
        for (name, text) in THEMES {
            let more = Self::parse(text).with_context(|| format!("xtask/mistakes/{name}.toml"))?;
            list.mistakes.extend(more.mistakes);
            list.edits.extend(more.edits);
        }
        list.check()?;
        Ok(list)
    }

    fn parse(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    fn check(&self) -> Result<()> {
        let mut names = BTreeSet::new();
        for mistake in &self.mistakes {
            let name = mistake.name.as_str();
            ensure!(names.insert(name), "two mistakes are named {name}");
            ensure!(
                mistake.test.contains("::"),
                "{name} names no binary of tests"
            );
        }
        let mut planted = BTreeSet::new();
        for edit in &self.edits {
            let switches = edit.switches();
            let place = place_of(edit);
            ensure!(
                !switches.is_empty(),
                "{place}: the replacement asks for no mistake"
            );
            for name in switches {
                ensure!(names.contains(name), "{place}: no mistake is named {name}");
                planted.insert(name);
            }
        }
        let left = names.difference(&planted).next();
        ensure!(left.is_none(), "no edit plants {}", left.unwrap_or(&""));
        Ok(())
    }

    /// Returns the mistake of this name.
    pub fn mistake(&self, name: &str) -> Option<&Mistake> {
        self.mistakes.iter().find(|mistake| mistake.name == name)
    }

    /// Returns the texts of the edited files with every edit applied, by the name of the file.
    ///
    /// # Errors
    /// If a file cannot be read, or if edits do not apply. The error names the file, the function and the mistakes of
    /// each such edit.
    pub fn edited(&self, root: &Path) -> Result<BTreeMap<String, String>> {
        let mut files: BTreeMap<&str, Vec<&Edit>> = BTreeMap::new();
        for edit in &self.edits {
            files.entry(&edit.file).or_default().push(edit);
        }
        let (mut edited, mut misfits) = (BTreeMap::new(), Vec::new());
        for (file, edits) in files {
            let path = root.join(file);
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            match edit::apply(&text, &edits) {
                Ok(text) => drop(edited.insert(file.to_owned(), text)),
                Err(found) => misfits.extend(found.into_iter().map(|(number, why)| {
                    let edit = edits[number];
                    let names = edit.switches().join(", ");
                    format!("{}, for {names}: {why}", place_of(edit))
                })),
            }
        }
        ensure!(misfits.is_empty(), "{}", misfits.join("\n"));
        Ok(edited)
    }

    /// Returns the table of mistakes for the documentation.
    pub fn table(&self) -> String {
        let mut text = String::from("| mistake | what it does | noticed by |\n|---|---|---|\n");
        for mistake in &self.mistakes {
            let Mistake {
                name,
                what,
                test,
                simulated,
            } = mistake;
            let machine = simulated.as_ref();
            let machine = machine.map_or_else(String::new, |name| format!(" on {name}"));
            text.push_str(&format!("| `{name}` | {what} | `{test}`{machine} |\n"));
        }
        text
    }
}

fn place_of(edit: &Edit) -> String {
    format!("{}, fn {}", edit.file, edit.function)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    const LIST: &str = r#"
[[mistake]]
name = "late"
what = "The flush comes last."
test = "cow::a_test"

[[edit]]
file = "a.rs"
function = "flush"
find = "all();"
replace = 'if !planted("late") { all(); }'
"#;

    fn complaint(list: &str) -> String {
        let list = List::parse(list).expect("a list");
        format!("{:#}", list.check().expect_err("senseless"))
    }

    #[test]
    fn every_edit_applies_to_this_tree() {
        let list = List::read().expect("the list");
        let edited = list.edited(&shell::root()).expect("edits that apply");
        assert!(list.mistakes.len() >= 25 && edited.len() >= 10);
    }

    #[test]
    fn every_file_of_mistakes_is_read() {
        let folder = shell::root().join("xtask/mistakes");
        let files = std::fs::read_dir(folder).expect("the folder");
        let mut found: Vec<String> = files
            .map(|file| {
                file.expect("a file")
                    .file_name()
                    .into_string()
                    .expect("a name")
            })
            .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
            .collect();
        let mut read: Vec<&str> = THEMES.iter().map(|(name, _)| *name).collect();
        found.sort_unstable();
        read.sort_unstable();
        assert_eq!(found, read);
    }

    #[test]
    fn a_list_that_makes_no_sense_is_refused() {
        assert!(List::parse(LIST).expect("a list").check().is_ok());
        let other = LIST.replace("name = \"late\"", "name = \"early\"");
        assert_eq!(
            complaint(&other),
            "a.rs, fn flush: no mistake is named late"
        );
        let (mistake, edit) = LIST.split_once("[[edit]]").expect("both");
        let twice = format!("{mistake}{mistake}[[edit]]{edit}");
        assert_eq!(complaint(&twice), "two mistakes are named late");
        let another = mistake.replace("late", "early");
        let unplanted = format!("{mistake}[[edit]]{edit}{another}");
        assert_eq!(complaint(&unplanted), "no edit plants early");
        let always = LIST.replace("planted(\"late\")", "is_late()");
        assert_eq!(
            complaint(&always),
            "a.rs, fn flush: the replacement asks for no mistake"
        );
        let nowhere = LIST.replace("cow::", "");
        assert_eq!(complaint(&nowhere), "late names no binary of tests");
        assert!(List::parse(&LIST.replace("what", "does")).is_err());
    }

    #[test]
    fn an_edit_that_does_not_apply_is_named() {
        let list = List::parse(LIST).expect("a list");
        let folder = std::env::temp_dir().join(format!("mistakes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let outcome = |text: &str| {
            std::fs::write(folder.join("a.rs"), text).expect("written");
            list.edited(&folder).map_err(|error| format!("{error:#}"))
        };
        let edited = outcome("fn flush() {\n    all();\n}\n").expect("applies");
        assert!(edited["a.rs"].contains("planted(\"late\")"));
        assert_eq!(
            outcome("fn flush() {}\n"),
            Err("a.rs, fn flush, for late: the function does not have the code to find".to_owned())
        );
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
