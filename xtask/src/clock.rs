//! Measures wall-clock and processor time.

use std::fs;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// The time that an operation took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// Wall-clock time.
    pub clock: Duration,
    /// User plus system time of this process and of the child processes that it has waited for.
    pub processor: Duration,
}

impl AddAssign for Took {
    fn add_assign(&mut self, other: Took) {
        self.clock += other.clock;
        self.processor += other.processor;
    }
}

/// The start of a measurement.
pub struct Begun {
    clock: Instant,
    processor: Duration,
}

impl Begun {
    pub fn now() -> Begun {
        Begun {
            clock: Instant::now(),
            processor: processor("self").unwrap_or_default(),
        }
    }

    /// Returns the time since the start. A child process counts only after it has been waited for.
    pub fn took(&self) -> Took {
        let processor = processor("self").unwrap_or_default();
        Took {
            clock: self.clock.elapsed(),
            processor: processor.saturating_sub(self.processor),
        }
    }
}

/// Returns the processor time of a process and of the children that it has waited for.
pub fn processor(process: &str) -> Option<Duration> {
    parse(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?).map(|stat| stat.processor)
}

/// Returns whether a child process has ended. It must not have been waited for.
pub fn has_ended(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat"))
        .ok()
        .and_then(|text| parse(&text))
        .is_none_or(|stat| matches!(stat.state, 'Z' | 'X'))
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    processor: Duration,
}

/// The unit of the processor times in `/proc/PID/stat`: 1/USER_HZ second, where USER_HZ is 100 on x86
/// (proc_pid_stat(5)).
const TICK: Duration = Duration::from_millis(10);

fn parse(text: &str) -> Option<Stat> {
    // Field 2 is the name of the command in parentheses. The name may itself contain spaces and parentheses, so split
    // at the last closing one.
    let (_, rest) = text.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace();
    let state = words.next()?.chars().next()?;
    // `rest` begins with field 3, the state. Fields 14 to 17 are utime, stime, cutime and cstime.
    let ticks = words
        .skip(10)
        .take(4)
        .map(|word| word.parse::<u32>().ok())
        .sum::<Option<u32>>()?;
    Some(Stat {
        state,
        processor: TICK * ticks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_process_and_of_its_children_are_added() {
        let text = "12 (a b) c) Z 1 12 12 0 -1 4194560 99 88 0 0 100 20 3 4 39 19 1 0 1000 0 0";
        let expected = Stat {
            state: 'Z',
            processor: Duration::from_millis(1270),
        };
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse(""), None);
        assert!(processor("self").is_some());
    }
}
