//! What the rows of the account are called, and how reports group them.

/// Groups in the order of reports, each with the beginnings of its rows' names. Rows of no group come last.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Page faults",
        &["fault_", "stack_growth", "write_faults_avoided"],
    ),
    ("Page-table entries changed", &["entries_"]),
    ("Flushes", &["flush_", "paging_structure_", "tagged_"]),
    ("Frames", &["frames_", "lazy_freed"]),
    ("Page tables", &["table_"]),
    ("Address spaces", &["fork", "areas_"]),
    ("Instructions", &["instructions_"]),
];
/// The group of all other rows.
const OTHERS: &str = "Processes";

/// A row's name in reports; one that this command does not know keeps its own.
pub fn title(name: &str) -> &str {
    memwright::ROWS
        .iter()
        .find(|definition| definition.name == name)
        .map_or(name, |definition| definition.title)
}

/// The titles of all groups in order.
pub fn groups() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().map(|(title, _)| *title).chain([OTHERS])
}

/// The group that a row belongs to.
pub fn group(name: &str) -> &'static str {
    let belongs = |beginnings: &[&str]| {
        beginnings
            .iter()
            .any(|beginning| name.starts_with(beginning))
    };
    GROUPS
        .iter()
        .find(|(_, beginnings)| belongs(beginnings))
        .map_or(OTHERS, |(title, _)| title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_titles_and_groups() {
        assert_eq!(
            (title("fault_copy"), group("fault_copy")),
            ("faults: copy-on-write", "Page faults")
        );
        assert_eq!(
            (title("later_row"), group("later_row")),
            ("later_row", "Processes")
        );
        for definition in memwright::ROWS {
            assert_ne!(group(definition.name), OTHERS, "{}", definition.name);
        }
    }
}
