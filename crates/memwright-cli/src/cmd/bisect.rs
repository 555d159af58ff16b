//! The exit codes of `memwright check --bisect`, which `git bisect run` interprets.

use std::ffi::OsString;

use clap::CommandFactory;

use crate::cmd::args::{Cli, OnPanic};
use crate::cmd::front::front;
use crate::compare::limit::{Judged, Judgement};
use crate::linux::no_result::NoResult;
use crate::model::failure::{Failure, SIGNAL_BASE, TIMEOUT};

/// The run exceeds no limit.
pub const GOOD: u8 = 0;
/// The run exceeds a limit.
pub const BAD: u8 = 1;
/// The commit cannot be tested, because its image is absent, does not boot, or panics.
pub const SKIP: u8 = 125;
/// The usage is wrong. This code and the codes below stop the bisection, as all codes from 128 on do. They are larger
/// than the codes for signals, which are 128 plus the signal's number.
pub const USAGE: u8 = 194;
/// QEMU, a compiler or another tool is missing, or fails.
pub const ENVIRONMENT: u8 = 195;
/// No verdict is possible, because the counts do not repeat or are not comparable.
pub const NO_CLAIM: u8 = 196;
/// `--timeout` expired.
pub const TOO_LATE: u8 = 197;
/// Any other error, such as a full disk.
pub const INTERNAL: u8 = 198;

/// Returns the exit code for the judgements on the limits of a run.
///
/// # Errors
/// If the row of a limit does not exist or was not measured, because a guessed verdict would mislead the bisection.
pub fn verdict(judged: &[Judged]) -> Result<u8, Failure> {
    let absent = judged.iter().find(|one| match one.result {
        Judgement::Absent => true,
        Judgement::Good { .. } | Judgement::Bad { .. } | Judgement::NotMeasured => false,
    });
    if let Some(one) = absent {
        return Err(Failure::Skipped(format!(
            "no claim is possible: there is no row {}: the program marked no such region, or passed it only once",
            one.limit.given()
        )));
    }
    let unmeasured = judged
        .iter()
        .find(|one| one.result == Judgement::NotMeasured);
    if let Some(one) = unmeasured {
        return Err(Failure::Environment(anyhow::anyhow!(
            "{} was not measured (memwright doctor says what is missing)",
            one.limit.given()
        )));
    }
    let is_bad = |one: &Judged| match one.result {
        Judgement::Bad { .. } => true,
        Judgement::Good { .. } | Judgement::Absent | Judgement::NotMeasured => false,
    };
    Ok(if judged.iter().any(is_bad) { BAD } else { GOOD })
}

/// Returns the exit code of a failure. `panic` determines the code if the kernel panicked.
pub fn failure_code(failure: &Failure, panic: OnPanic) -> u8 {
    match failure {
        Failure::NoImage(_) => SKIP,
        Failure::Guest(error) => match (error.downcast_ref::<NoResult>(), panic) {
            (Some(NoResult::Panicked(_)), OnPanic::Bad) => BAD,
            (Some(NoResult::Panicked(_)), OnPanic::Skip)
            | (Some(NoResult::Ended(_) | NoResult::Silent), _) => SKIP,
            (Some(NoResult::QemuFailed(_)), _) => ENVIRONMENT,
            (None, _) => INTERNAL,
        },
        Failure::NotFound(_) | Failure::NotExecutable(_) | Failure::Usage(_) => USAGE,
        Failure::Environment(_) => ENVIRONMENT,
        Failure::Skipped(_) => NO_CLAIM,
        Failure::Ended(TIMEOUT, _) => TOO_LATE,
        Failure::Ended(code, _) if *code >= SIGNAL_BASE => *code,
        Failure::Ended(..) | Failure::Broken(_) => INTERNAL,
    }
}

/// Returns whether `--bisect` is an option of `check` in a command line that does not parse. A word `--bisect` after
/// PROGRAM, or as the value of another option, is not the option.
pub fn is_asked_for(words: &[OsString]) -> bool {
    let command = Cli::command();
    let Some(check) = command.find_subcommand("check") else {
        return false;
    };
    if words.get(1).is_none_or(|word| word != "check") {
        return false;
    }
    let options = front(check, words).options;
    options.iter().any(|one| one.name == "bisect")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::limit::Limit;
    use anyhow::anyhow;

    /// Returns how `git bisect run` interprets an exit code (git-bisect(1)).
    fn means(code: u8) -> &'static str {
        match code {
            0 => "good",
            125 => "skip",
            1..=127 => "bad",
            128.. => "stop",
        }
    }

    #[test]
    fn the_codes_are_documented() {
        let page = include_str!("../../../../docs/bisect.md");
        for code in [
            GOOD,
            BAD,
            SKIP,
            USAGE,
            ENVIRONMENT,
            NO_CLAIM,
            TOO_LATE,
            INTERNAL,
        ] {
            let row = format!("\n| {code} | {} | ", means(code));
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn failures_are_codes_of_git_bisect() {
        let guest =
            |no_result: NoResult| Failure::Guest(anyhow::Error::from(no_result).context("x"));
        let words = String::new;
        for (failure, code, meaning) in [
            (Failure::NoImage(anyhow!("x")), 125, "skip"),
            (guest(NoResult::Panicked(words())), 125, "skip"),
            (guest(NoResult::Ended(words())), 125, "skip"),
            (guest(NoResult::Silent), 125, "skip"),
            (guest(NoResult::QemuFailed(words())), 195, "stop"),
            (Failure::Guest(anyhow!("cannot make a folder")), 198, "stop"),
            (Failure::Usage(anyhow!("x")), 194, "stop"),
            (Failure::NotFound(words()), 194, "stop"),
            (Failure::NotExecutable(words()), 194, "stop"),
            (Failure::Environment(anyhow!("x")), 195, "stop"),
            (Failure::Skipped(words()), 196, "stop"),
            (Failure::Ended(TIMEOUT, words()), 197, "stop"),
            (Failure::Ended(129, words()), 129, "stop"),
            (Failure::Ended(130, words()), 130, "stop"),
            (Failure::Ended(143, words()), 143, "stop"),
            (Failure::Ended(126, words()), 198, "stop"),
            (Failure::Broken(anyhow!("No space left")), 198, "stop"),
        ] {
            let found = failure_code(&failure, OnPanic::Skip);
            assert_eq!((found, means(found)), (code, meaning), "{failure:?}");
        }
        let panic = guest(NoResult::Panicked(words()));
        assert_eq!(means(failure_code(&panic, OnPanic::Bad)), "bad");
        let silent = guest(NoResult::Silent);
        assert_eq!(means(failure_code(&silent, OnPanic::Bad)), "skip");
    }

    #[test]
    fn judgements_are_codes_of_git_bisect() {
        let (baseline, now) = (None, 1);
        let good = Judgement::Good { baseline, now };
        let bad = Judgement::Bad { baseline, now };
        for (results, meaning) in [
            (vec![good], "good"),
            (vec![good, good], "good"),
            (vec![good, bad], "bad"),
            (vec![bad], "bad"),
            (vec![bad, Judgement::Absent], "stop"),
            (vec![good, Judgement::NotMeasured], "stop"),
        ] {
            let limit: Limit = "run.invlpg=1".parse().unwrap();
            let judged = results.iter().map(|result| Judged {
                limit: limit.clone(),
                result: *result,
            });
            let judged: Vec<Judged> = judged.collect();
            let code = verdict(&judged).unwrap_or_else(|error| failure_code(&error, OnPanic::Bad));
            assert_eq!(means(code), meaning, "{results:?}");
        }
    }

    #[test]
    fn a_command_line_that_does_not_parse_still_asks() {
        for (line, expected) in [
            ("memwright check --bisect --limit x", true),
            ("memwright check --no-such --bisect ./p", true),
            ("memwright check --kernel k --bisect", true),
            ("memwright check --limit=x --bisect ./p", true),
            ("memwright check --limit x", false),
            ("memwright check --env --bisect ./p", false),
            ("memwright check -- --bisect", false),
            ("memwright check --baseline b ./prog --bisect", false),
            ("memwright run --bisect ./prog", false),
            ("memwright", false),
        ] {
            let words = line.split(' ').map(OsString::from);
            let words: Vec<OsString> = words.collect();
            assert_eq!(is_asked_for(&words), expected, "{line}");
        }
    }
}
