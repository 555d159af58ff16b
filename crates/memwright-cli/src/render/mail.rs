//! Renders a sheet as plain text with 72 columns, for a mail with a patch.

use crate::sheet::change::Changed;
use crate::sheet::{Row, Section, Sheet};

/// The maximum length of a line on mailing lists, in characters.
const WIDTH: usize = 72;
/// The indentation of continuation lines.
const INDENT: &str = "    ";

/// Returns the sheet as text for a mail: the changes (or all rows, if nothing is compared), then notes, versions and
/// hashes, then the commands that reproduce the result.
pub fn mail(sheet: &Sheet, all: bool) -> String {
    let mut out = wrapped("", &sheet.heading);
    out.push('\n');
    if sheet.compares {
        let changes = sheet.changes();
        out.push_str(&wrapped("", &format!("{}.", changes.summary)));
        out.push('\n');
        let lines: Vec<Line> = changes.rows.into_iter().map(changed_line).collect();
        if !lines.is_empty() {
            out.push_str(&table(&changes.headings[1..], &lines));
            out.push('\n');
        }
    }
    let wanted = |section: &&Section| all || !sheet.compares || section.is_ranked;
    for section in sheet.sections.iter().filter(wanted) {
        let grid = sheet.grid(section);
        if !section.title.is_empty() {
            out.push_str(&wrapped("", &format!("{}:", section.heading())));
        }
        let rows = grid.lines.iter();
        let rows = rows.filter(|one| sheet.compares || !one.row.is_idle());
        let lines = rows.map(|one| Line {
            label: label(section, one.row),
            texts: one.texts[sheet.words()..].to_vec(),
        });
        let headings = &grid.headings[sheet.words()..];
        out.push_str(&table(headings, &lines.collect::<Vec<_>>()));
        out.push('\n');
    }
    let mut rows = sheet.sections.iter().flat_map(|section| &section.rows);
    if !sheet.compares && rows.any(Row::is_idle) {
        out.push_str("Rows that are 0 are left out.\n\n");
    }
    for note in &sheet.notes {
        out.push_str(&wrapped(INDENT, note));
    }
    if !sheet.commands.is_empty() {
        out.push_str("\nTo reproduce:\n\n");
    }
    for command in &sheet.commands {
        out.push_str(&command_lines(command));
    }
    out
}

/// A line of a table: a label and numbers.
struct Line {
    label: String,
    texts: Vec<String>,
}

fn changed_line(mut changed: Changed<'_>) -> Line {
    Line {
        label: changed.label_with_unit(),
        texts: changed.texts.split_off(1),
    }
}

/// Returns the label of a row, including its statistic if tables have a column for it.
fn label(section: &Section, row: &Row) -> String {
    match row.statistic.filter(|one| one.has_column()) {
        Some(statistic) => format!(
            "{}: {}, {} ({})",
            row.group,
            row.title,
            statistic.name(),
            row.unit
        ),
        None => section.label(row),
    }
}

/// Returns a table with the numbers under their headings. A label that is too long is on a line before its numbers.
/// Numbers that do not fit in one line continue on the next line.
fn table(headings: &[String], lines: &[Line]) -> String {
    let width = |column: usize| {
        let texts = lines.iter().filter_map(|line| line.texts.get(column));
        let texts = texts.chain(headings.get(column));
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let numbers = |texts: &[String]| -> Vec<String> {
        let cells = texts.iter().zip(&widths);
        cells
            .map(|(text, width)| format!("  {text:>width$}"))
            .collect()
    };
    let mut out = placed("", &numbers(headings));
    for line in lines {
        out.push_str(&placed(&line.label, &numbers(&line.texts)));
    }
    out
}

/// Returns a label at the left and numbers at the right, in as many lines as necessary.
fn placed(label: &str, numbers: &[String]) -> String {
    let mut rows: Vec<String> = vec![String::new()];
    for number in numbers {
        let last = rows.last().map_or(0, |row| row.chars().count());
        if last > 0 && last + number.chars().count() > WIDTH {
            rows.push(String::new());
        }
        if let Some(row) = rows.last_mut() {
            row.push_str(number);
        }
    }
    let mut out = String::new();
    let first = rows.first().map_or(0, |row| row.chars().count());
    let left = if label.chars().count() + first > WIDTH {
        out.push_str(&wrapped("", label));
        ""
    } else {
        label
    };
    for (index, row) in rows.iter().enumerate() {
        let label = if index == 0 { left } else { "" };
        let room = WIDTH - label.chars().count();
        out.push_str(format!("{label}{row:>room$}").trim_end());
        out.push('\n');
    }
    out
}

/// Wraps text at spaces to [`WIDTH`], and indents continuation lines. A word that is longer than a line is broken.
fn wrapped(indent: &str, text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_ascii_whitespace() {
        let mut word = word;
        loop {
            let start = if lines.is_empty() { "" } else { indent };
            if line.is_empty() {
                line.push_str(start);
            }
            let is_first = line.len() == start.len();
            let gap = usize::from(!is_first);
            let room = WIDTH.saturating_sub(line.chars().count() + gap);
            if word.chars().count() <= room {
                line.push_str(&" "[..gap]);
                line.push_str(word);
                break;
            }
            if is_first {
                let cut = word
                    .char_indices()
                    .nth(room)
                    .map_or(word.len(), |(at, _)| at);
                line.push_str(&word[..cut]);
                word = &word[cut..];
            }
            lines.push(std::mem::take(&mut line));
        }
    }
    lines.push(line);
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// Wraps a shell command to [`WIDTH`], with a backslash at the end of each line except the last. A word that is longer
/// than a line is split by a backslash and a line break, both of which the shell removes. A word with quotes cannot be
/// split in this way and stays on one line.
fn command_lines(command: &str) -> String {
    let most = WIDTH - " \\".len();
    let mut lines: Vec<String> = Vec::new();
    let mut line = "  ".to_owned();
    for word in words(command) {
        let gap = usize::from(!line.trim_start().is_empty());
        if line.chars().count() + gap + word.chars().count() <= most {
            line.push_str(&" "[..gap]);
            line.push_str(word);
            continue;
        }
        if gap == 1 {
            lines.push(format!("{line} \\"));
            line = INDENT.to_owned();
        }
        let mut rest = word;
        while !rest.contains(['\'', '"', '\\'])
            && line.chars().count() + rest.chars().count() > most
        {
            let room = WIDTH - 1 - line.chars().count();
            let cut = rest
                .char_indices()
                .nth(room)
                .map_or(rest.len(), |(at, _)| at);
            lines.push(format!("{line}{}\\", &rest[..cut]));
            // The rest of the word is not indented, because a space would begin a new word.
            line = String::new();
            rest = &rest[cut..];
        }
        line.push_str(rest);
    }
    lines.push(line);
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// Splits a shell command into words, including their quotes.
fn words(command: &str) -> Vec<&str> {
    let (mut words, mut start, mut quote) = (Vec::new(), 0, None);
    for (at, letter) in command.char_indices() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if letter == open => quote = None,
            (None, ' ') => {
                words.push(&command[start..at]);
                start = at + 1;
            }
            (None | Some(_), _) => {}
        }
    }
    words.push(&command[start..]);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::{counts, example, with_figures};

    fn fits(text: &str) {
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{} {line}", line.len());
            assert_eq!(line.trim_end(), line);
        }
    }

    #[test]
    fn a_mail_has_what_changed_versions_hashes_and_commands() {
        let mut sheet = example();
        let hash = "0123456789abcdef".repeat(4);
        let version = "6.12.57+deb13-cloud-amd64 (debian-kernel@lists.debian.org) #1 SMP PREEMPT_DYNAMIC Debian 6.12.57-1";
        sheet.notes = vec![format!("after: {version} (sha256 {hash})")];
        sheet.commands = vec![format!(
            "memwright compare --kernel before=./old --kernel after=/{}/new --append 'a b' ./prog <1>",
            "folder/".repeat(12)
        )];
        let text = mail(&sheet, false);
        fits(&text);
        let shown = "./prog <1> & 2

2 of 4 rows changed, the largest relative change first; 1 not measured
in every column.

                                   before   after    delta        change
region 1: user, \"odd\" (faults)          1  12,345  +12,344  +1234400.0 %
run: user, write-protect (faults)     256       0     -256      -100.0 %

after: 6.12.57+deb13-cloud-amd64 (debian-kernel@lists.debian.org) #1 SMP
    PREEMPT_DYNAMIC Debian 6.12.57-1 (sha256
    0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef)
";
        assert!(text.starts_with(shown), "{text}");
        // A shell must parse the wrapped command to the same words.
        let shown = text.split_once("To reproduce:\n\n").unwrap().1;
        let joined = shown.replace("\\\n", "");
        let joined: Vec<&str> = words(joined.trim());
        assert_eq!(joined, words(&sheet.commands[0]));
    }

    #[test]
    fn what_does_not_fit_has_lines_of_its_own() {
        let mut sheet = example();
        sheet.columns.push("a third kernel".to_owned());
        sheet.sections[0].rows = vec![counts(
            "x",
            "a measure whose name is as long as any that a kernel has in all of them",
            &[Some(u64::MAX), Some(0), Some(u64::MAX / 3)],
        )];
        let text = mail(&sheet, true);
        fits(&text);
        for number in [
            "18,446,744,073,709,551,615",
            "-100.0 %",
            "6,148,914,691,236,517,205",
        ] {
            assert!(text.contains(number), "{text}");
        }
        fits(&mail(&with_figures(), false));
        assert!(mail(&with_figures(), false).contains("fault: first write, median (instructions)"));
    }

    #[test]
    fn an_account_leaves_out_what_is_0() {
        let mut sheet = example();
        (sheet.compares, sheet.columns) = (false, vec!["memwright".to_owned()]);
        sheet.sections.truncate(1);
        sheet.sections[0].rows = vec![
            counts("a", "some", &[Some(1)]),
            counts("b", "zero", &[Some(0)]),
            counts("c", "unknown", &[None]),
        ];
        let text = mail(&sheet, true);
        assert!(text.contains("some") && text.contains("unknown"), "{text}");
        assert!(!text.contains("zero"), "{text}");
        assert!(text.contains("Rows that are 0 are left out."), "{text}");
        sheet.sections[0].rows.remove(1);
        assert!(!mail(&sheet, true).contains("left out"));
    }

    #[test]
    fn words_of_a_command_keep_their_quotes() {
        assert_eq!(
            words("a 'b  c' \"d 'e\" f"),
            ["a", "'b  c'", "\"d 'e\"", "f"]
        );
    }
}
