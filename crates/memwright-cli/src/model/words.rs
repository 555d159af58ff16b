//! Formats values in words for reports.

use crate::model::memwright_run::Ending;

/// Returns the number of CPUs as a phrase.
pub fn cpus(count: u8) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} CPU{plural}")
}

/// Returns how the program ended, as a phrase.
pub fn ending(outcome: Option<Ending>) -> String {
    match outcome {
        Some(Ending::Exited(code)) => format!("exited with code {code}"),
        Some(Ending::Killed(signal)) => format!("killed by signal {signal}"),
        Some(Ending::NotStarted(errno)) => format!("could not be started (error {errno})"),
        Some(Ending::TripleFault {}) => "ended in a triple fault".to_owned(),
        None => "no result".to_owned(),
    }
}

/// Formats a number with commas between thousands.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        for (count, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (12_345_678, "12,345,678"),
        ] {
            assert_eq!(grouped(count), text);
        }
    }
}
