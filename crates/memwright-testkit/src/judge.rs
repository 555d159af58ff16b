//! Runs a script until its end or its first failure, and shortens scripts that fail.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::lockstep::{Difference, Lockstep, Successes};
use crate::machine::TestMachine;
use crate::script::{Script, Step};

/// Runs a script. With the feature `std`, a panic counts as a difference, so that a script that causes one can be
/// shortened.
///
/// # Errors
/// The first difference, or a report that a value of the run still holds the frame allocator at the end.
pub fn judge<M: TestMachine>(
    start: impl FnOnce() -> Lockstep<M>,
    script: &Script,
) -> Result<Successes, Difference> {
    caught(|| {
        let lockstep = start();
        let frames = Arc::downgrade(lockstep.host().frames());
        let successes = lockstep.run(script)?;
        match frames.strong_count() {
            0 => Ok(successes),
            left => Err(Difference::Disagreement(format!(
                "{left} holders of all frames are left"
            ))),
        }
    })
}

#[cfg(feature = "std")]
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, Difference>) -> Result<T, Difference> {
    use alloc::string::String;

    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("without a message");
        Err(Difference::Disagreement(format!("panic: {text}")))
    })
}

#[cfg(not(feature = "std"))]
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, Difference>) -> Result<T, Difference> {
    run()
}

/// Shortens a script as long as `fails` returns an error: removes steps, and makes steps run in the first process or on
/// the first CPU. Calls `fails` at most `tries` times. Returns the last script for which `fails` returned an error, and
/// that error.
pub fn shorten<E>(
    script: Script,
    error: E,
    tries: usize,
    mut fails: impl FnMut(&Script) -> Result<(), E>,
) -> (Script, E) {
    let (mut script, mut error, mut left) = (script, error, tries);
    let mut attempt = |steps: Vec<Step>| {
        left = left.checked_sub(1)?;
        let shorter = Script(steps);
        fails(&shorter).err().map(|error| (shorter, error))
    };
    let mut size = script.0.len() / 2;
    while size > 0 {
        let before = script.0.len();
        let mut start = 0;
        while start < script.0.len() {
            let mut steps = script.0.clone();
            steps.drain(start..(start + size).min(script.0.len()));
            match attempt(steps) {
                Some(shorter) => (script, error) = shorter,
                None => start += size,
            }
        }
        // Single steps are removed until none can be removed any more.
        if size > 1 || script.0.len() == before {
            size /= 2;
        }
    }
    for index in 0..script.0.len() {
        let step = script.0[index];
        let here = Step { cpu: 0, ..step };
        for simple in [
            Step { process: 0, ..here },
            Step { process: 0, ..step },
            here,
        ] {
            if simple != script.0[index] {
                let mut steps = script.0.clone();
                steps[index] = simple;
                if let Some(simpler) = attempt(steps) {
                    (script, error) = simpler;
                    break;
                }
            }
        }
    }
    (script, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Action;

    #[test]
    fn only_the_steps_that_a_failure_needs_remain() {
        let step = |process, page| Step {
            process,
            cpu: 1,
            action: Action::Fetch(page),
        };
        let long = Script((0..40).map(|page| step(3, page)).collect());
        let has = |script: &Script, page| {
            let mut steps = script.0.iter();
            steps.any(|step| step.action == Action::Fetch(page))
        };
        let fails = |script: &Script| match has(script, 7) && has(script, 31) {
            true => Err("fails"),
            false => Ok(()),
        };
        let (short, error) = shorten(long, "failed", 500, fails);
        assert_eq!(error, "fails");
        let simple = |page| Step {
            cpu: 0,
            ..step(0, page)
        };
        assert_eq!(short, Script(Vec::from([simple(7), simple(31)])));
    }
}
