//! A count in a table, and whether it repeats.

use crate::number::grouped;

/// The mark of a count that does not repeat.
const MARK: &str = " \\*";

/// A count of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The count of the first run.
    pub value: u64,
    /// Whether all counts of the second run were equal to those of the first.
    pub repeats: bool,
}

impl Count {
    /// Returns the text of the count's cell.
    pub fn cell(self) -> String {
        let mark = if self.repeats { "" } else { MARK };
        format!("{}{mark}", grouped(self.value))
    }

    /// Parses a cell, or returns `None` if its text is not that of [`Count::cell`].
    pub fn parse(cell: &str) -> Option<Self> {
        let digits = cell.strip_suffix(MARK);
        Some(Self {
            value: digits.unwrap_or(cell).replace(',', "").parse().ok()?,
            repeats: digits.is_none(),
        })
    }
}

/// Returns the cells of a row of a table, which contain no bars.
pub fn cells(row: &str) -> Vec<&str> {
    let row = row.trim_end();
    let inner = row
        .strip_prefix("| ")
        .and_then(|row| row.strip_suffix(" |"));
    inner.map_or_else(Vec::new, |inner| inner.split(" | ").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_read_again() {
        for (value, repeats, cell) in [(0, true, "0"), (1_234_567, false, "1,234,567 \\*")] {
            let count = Count { value, repeats };
            assert_eq!(count.cell(), cell);
            assert_eq!(Count::parse(cell), Some(count));
        }
        assert_eq!(Count::parse("+4 %"), None);
    }

    #[test]
    fn a_row_has_cells() {
        assert_eq!(cells("| `x` | 1 \\* | 2 |\n"), ["`x`", "1 \\*", "2"]);
        assert_eq!(cells("|---|---:|"), [""; 0]);
    }
}
