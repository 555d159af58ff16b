//! Renders a sheet as CSV (RFC 4180), with one line for each value.

use crate::model::statistic::Statistic;
use crate::sheet::{Sheet, Value};

/// Returns all rows of the sheet as CSV, whether or not they changed.
pub fn csv(sheet: &Sheet) -> String {
    let mut heading = vec!["name", "section", "group", "measure", "unit"];
    if sheet.has_statistics() {
        heading.push("statistic");
    }
    heading.extend(["column", "value"]);
    let mut out = line(&heading);
    for section in &sheet.sections {
        let title = section.heading();
        for row in &section.rows {
            let label = row.label();
            for (column, cell) in sheet.columns.iter().zip(&row.cells) {
                // An empty field stands for a value that was not measured.
                let value = cell.map_or_else(String::new, Value::plain);
                let mut fields = vec![
                    row.name.as_str(),
                    title.as_str(),
                    row.group.as_str(),
                    label.as_str(),
                    row.unit.as_str(),
                ];
                if sheet.has_statistics() {
                    fields.push(row.statistic.map_or("", Statistic::name));
                }
                fields.extend([column.as_str(), value.as_str()]);
                out.push_str(&line(&fields));
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
    use crate::sheet::tests::{example, with_figures};

    #[test]
    fn each_value_is_a_line() {
        let text = csv(&example());
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines[0], "name,section,group,measure,unit,column,value");
        assert_eq!(
            lines[1],
            "run.write_protect,run,Page faults,\"user, write-protect\",faults,before,256"
        );
        assert_eq!(
            lines[6],
            "run.refused,run,Page faults,\"user, refused\",faults,after,"
        );
        assert_eq!(
            lines[7],
            "region.1.odd,region 1,Page faults,\"user, \"\"odd\"\"\",faults,before,1"
        );
        assert_eq!(lines.len(), 1 + 8 + 1);
    }

    #[test]
    fn a_value_says_its_unit_and_its_statistic() {
        let text = csv(&with_figures());
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(
            lines[0],
            "name,section,group,measure,unit,statistic,column,value"
        );
        assert_eq!(
            lines[1],
            ",,fault,first write,instructions,minimum,memwright,538"
        );
        assert_eq!(
            lines[6],
            ",,fault,first write,instructions,mean,linux,1200.5"
        );
        assert_eq!(lines[8], ",,fault,flushes,flushes per round,value,linux,");
    }
}
