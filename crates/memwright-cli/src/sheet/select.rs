//! Selects rows by the patterns of `--rows`.

use std::fmt;

use crate::sheet::{Section, Sheet};

/// The maximum number of names that an error suggests.
const MOST_CLOSE: usize = 3;
/// The minimum similarity of a suggested name, from 0 to 1.
const ALIKE: f64 = 0.6;

/// A pattern that matches no row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownRow {
    /// The pattern, as the user wrote it.
    pub pattern: String,
    /// Similar names, the closest first.
    pub close: Vec<String>,
}

impl fmt::Display for UnknownRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "there is no row {:?}", self.pattern)?;
        match self.close.as_slice() {
            [] => write!(formatter, "; --csv - lists the names"),
            close => write!(formatter, "; close names: {}", close.join(", ")),
        }
    }
}

impl std::error::Error for UnknownRow {}

/// Returns whether a name matches a pattern, in which `*` matches any characters.
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Checks that a pattern matches one of `rows`, each of which is a name and a group.
///
/// # Errors
/// [`UnknownRow`], with similar names.
pub fn check<'a>(
    pattern: &str,
    rows: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Result<(), UnknownRow> {
    if rows
        .clone()
        .any(|(name, group)| fits(pattern, name) || pattern == group)
    {
        return Ok(());
    }
    let names = rows.clone().map(|(name, _)| name);
    let mut texts: Vec<&str> = Vec::new();
    for text in names.chain(rows.map(|(_, group)| group)) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    Err(UnknownRow {
        pattern: pattern.to_owned(),
        close: close(pattern, &texts),
    })
}

/// Returns at most `MOST_CLOSE` names that are similar to a pattern, the most similar first. Names that contain the
/// pattern or end with it precede names that differ from it in a few letters.
pub fn close(pattern: &str, names: &[&str]) -> Vec<String> {
    let plain = pattern.replace('*', "");
    let alike = |name: &str| {
        if !plain.is_empty() && name.ends_with(&format!(".{plain}")) {
            return 2.0;
        }
        let whole = strsim::normalized_damerau_levenshtein(&plain, name);
        if !plain.is_empty() && name.contains(&plain) {
            return 1.0 + whole;
        }
        let tail = name.split_once('.').map_or(name, |(_, tail)| tail);
        whole.max(strsim::normalized_damerau_levenshtein(&plain, tail))
    };
    let mut found: Vec<(f64, &str)> = names
        .iter()
        .map(|name| (alike(name), *name))
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let found = found.into_iter().take(MOST_CLOSE);
    found.map(|(_, name)| name.to_owned()).collect()
}

impl Sheet {
    /// Returns the sheet with only the rows whose name or group matches one of the patterns. Without patterns, it keeps
    /// all rows.
    ///
    /// # Errors
    /// If a pattern matches no row, because a comparison of no rows must not succeed.
    pub fn select(mut self, patterns: &[String]) -> Result<Self, UnknownRow> {
        if patterns.is_empty() {
            return Ok(self);
        }
        let rows = self.sections.iter().flat_map(|section| &section.rows);
        let rows = rows.map(|row| (row.name.as_str(), row.group.as_str()));
        for pattern in patterns {
            check(pattern, rows.clone())?;
        }
        for section in &mut self.sections {
            section.rows.retain(|row| {
                patterns
                    .iter()
                    .any(|pattern| fits(pattern, &row.name) || *pattern == row.group)
            });
        }
        self.sections
            .retain(|section: &Section| !section.rows.is_empty());
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::example;

    #[test]
    fn patterns_fit_names() {
        for (pattern, name, expected) in [
            ("run.invlpg", "run.invlpg", true),
            ("run.invlpg", "run.invlpg2", false),
            ("invlpg", "run.invlpg", false),
            ("*.invlpg", "run.invlpg", true),
            ("region.*.invlpg", "region.12.invlpg", true),
            ("region.1.*", "region.12.invlpg", false),
            ("*faults*write", "run.user_faults.write", true),
            ("*faults*write", "run.user_faults.write_protect", false),
            ("*", "anything", true),
            ("a*a", "a", false),
            ("", "", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn rows_are_chosen_by_name_and_by_group() {
        let chosen = |patterns: &[&str]| -> Result<Vec<String>, String> {
            let patterns: Vec<String> = patterns.iter().map(|one| (*one).to_owned()).collect();
            let sheet = example().select(&patterns);
            let sheet = sheet.map_err(|unknown| unknown.to_string())?;
            let rows = sheet.sections.into_iter().flat_map(|section| section.rows);
            Ok(rows.map(|row| row.name).collect())
        };
        assert_eq!(chosen(&[]).unwrap().len(), 4);
        assert_eq!(chosen(&["Page faults"]).unwrap().len(), 4);
        assert_eq!(
            chosen(&["run.write_protect"]).unwrap(),
            ["run.write_protect"]
        );
        assert_eq!(chosen(&["region.1.*"]).unwrap(), ["region.1.odd"]);
        assert_eq!(
            chosen(&["*.refused", "region.*"]).unwrap(),
            ["run.refused", "region.1.odd"]
        );
        for (pattern, close) in [
            (
                "write_protect",
                "there is no row \"write_protect\"; close names: run.write_protect",
            ),
            (
                "run.write_protcet",
                "there is no row \"run.write_protcet\"; close names: run.write_protect",
            ),
            (
                "page faults",
                "there is no row \"page faults\"; close names: Page faults",
            ),
            ("zzz", "there is no row \"zzz\"; --csv - lists the names"),
        ] {
            assert_eq!(chosen(&["*", pattern]).unwrap_err(), close);
        }
    }
}
