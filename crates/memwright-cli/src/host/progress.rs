//! Displays the progress of the command: on a terminal a spinner for each stage, elsewhere a line for each stage.
//!
//! A stage displays its elapsed time, and the time that it took in its last run.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::host::cache;
use crate::host::host_file::{self, LARGEST_DOCUMENT};
use crate::host::output::{add_spinner, remove_spinner, say};

/// The interval at which a spinner is redrawn.
const TURN: Duration = Duration::from_millis(120);
/// The name of the file with the times of stages.
const TIMES: &str = "times.json";
/// The maximum number of stages whose times are stored.
const MOST: usize = 1000;

/// A stage of the command, such as the runs on one kernel. Dropping it removes its spinner.
#[must_use]
pub struct Stage {
    name: String,
    began: Instant,
    spinner: Option<ProgressBar>,
}

impl Stage {
    /// Begins a stage. `name` is displayed, and is also the key under which the stage's time is stored.
    pub fn begin(name: &str) -> Self {
        let expected = file().and_then(|path| Times::read(&path).of(name));
        let is_terminal = io::stderr().is_terminal();
        let spinner = is_terminal.then(|| {
            let spinner = add_spinner(ProgressBar::new_spinner());
            let template = ProgressStyle::with_template("{spinner} {msg} {elapsed}{prefix}");
            spinner.set_style(template.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            spinner.set_message(name.to_owned());
            spinner.set_prefix(
                expected.map_or_else(String::new, |time| format!(" of about {}", words(time))),
            );
            spinner.enable_steady_tick(TURN);
            spinner
        });
        if !is_terminal {
            say(name);
        }
        Self {
            name: name.to_owned(),
            began: Instant::now(),
            spinner,
        }
    }

    /// Ends a stage that succeeded, and stores its time as the estimate for the next stage of this name.
    pub fn done(self) {
        // If another command writes the file at the same time, the estimate of one of the commands is lost.
        if let Some(path) = file() {
            let _ = Times::note(&path, &self.name, self.began.elapsed());
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            remove_spinner(spinner);
        }
    }
}

fn file() -> Option<PathBuf> {
    Some(cache::folder().ok()?.join(TIMES))
}

/// Formats a duration in seconds or minutes.
fn words(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

/// The times of stages in milliseconds, by name.
#[derive(Debug, Default)]
struct Times(BTreeMap<String, u64>);

impl Times {
    /// Reads the stored times. The result is empty if the file does not exist or is malformed.
    fn read(path: &Path) -> Self {
        let bytes = host_file::read(path, LARGEST_DOCUMENT).unwrap_or_default();
        Self(serde_json::from_slice(&bytes).unwrap_or_default())
    }

    fn of(&self, name: &str) -> Option<Duration> {
        self.0.get(name).copied().map(Duration::from_millis)
    }

    /// Records the time of a stage. A mutex serializes the threads of a command.
    fn note(path: &Path, name: &str, time: Duration) -> io::Result<()> {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = Self::read(path);
        if times.0.len() >= MOST && !times.0.contains_key(name) {
            times.0.clear();
        }
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        times.0.insert(name.to_owned(), milliseconds);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let fresh = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&fresh, serde_json::to_vec(&times.0)?)?;
        fs::rename(&fresh, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_time_of_a_stage_is_kept() {
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("new").join(TIMES);
        assert_eq!(Times::read(&path).of("x"), None);
        for seconds in [3, 2] {
            Times::note(&path, "x", Duration::from_secs(seconds)).unwrap();
        }
        assert_eq!(Times::read(&path).of("x"), Some(Duration::from_secs(2)));
        for number in 0..MOST {
            Times::note(&path, &number.to_string(), Duration::ZERO).unwrap();
        }
        assert!(Times::read(&path).0.len() <= MOST);
        fs::write(&path, "{").unwrap();
        assert_eq!(Times::read(&path).of("x"), None);
        Times::note(&path, "x", Duration::from_secs(1)).unwrap();
        assert_eq!(Times::read(&path).of("x"), Some(Duration::from_secs(1)));
    }

    #[test]
    fn times_are_said_as_people_do() {
        for (milliseconds, text) in [
            (0, "0.0 s"),
            (1540, "1.5 s"),
            (61_000, "61 s"),
            (121_000, "3 min"),
        ] {
            assert_eq!(words(Duration::from_millis(milliseconds)), text);
        }
    }
}
