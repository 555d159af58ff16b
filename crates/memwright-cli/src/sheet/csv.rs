//! A sheet for other programs, as RFC 4180 says: one line for each value.

use super::Sheet;

/// The sheet as CSV.
pub fn csv(sheet: &Sheet) -> String {
    let mut out = line(&["section", "group", "measure", "column", "value"]);
    for section in &sheet.sections {
        for row in &section.rows {
            for (column, cell) in sheet.columns.iter().zip(&row.cells) {
                // An empty field is no measure.
                let value = cell
                    .value
                    .map_or_else(String::new, |value| value.to_string());
                out.push_str(&line(&[
                    &section.title,
                    &row.group,
                    &row.title,
                    column,
                    &value,
                ]));
            }
        }
    }
    out
}

fn line(fields: &[&str]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
    format!("{}\r\n", fields.join(","))
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\r', '\n']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::example;

    #[test]
    fn each_value_is_a_line() {
        let text = csv(&example());
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines[0], "section,group,measure,column,value");
        assert_eq!(
            lines[1],
            "run,Page faults,\"user, write-protect\",before,256"
        );
        assert_eq!(lines[6], "run,Page faults,\"user, refused\",after,");
        assert_eq!(
            lines[7],
            "region 1,Page faults,\"user, \"\"odd\"\"\",before,1"
        );
        assert_eq!(lines.len(), 1 + 8 + 1);
    }
}
